"""The grace period of a Pod (here: grace), compared with Slurm's KillWait.

If Slurm ends a job, the processes of the job have KillWait seconds from SIGTERM to SIGKILL
(slurm.conf(5)). The grace of a Pod must be more than 5 seconds shorter than KillWait, because the
kubelet needs 5 seconds after the grace to kill the containers. Otherwise the Pod might share the node
with the next job. The grace of an existing Pod cannot be changed.
"""

from dataclasses import dataclass
from typing import Literal

from kubernetes_client.protocol import Manifest

KUBERNETES_DEFAULT_S = 30
"""The grace that kube-apiserver writes into every Pod without a grace, before kube-apiserver calls
webhooks."""
KUBELET_S = 5
"""Seconds after the grace in which a kubelet kills the remaining containers, and reports the end."""

DefaultGrace = Literal["lower", "refuse"]


@dataclass(frozen=True, slots=True)
class GraceRule:
    """The rule for the grace of Pods: terminationGracePeriodSeconds < KillWait - 5 s."""

    kill_wait_s: int = 30  # Slurm's KillWait; 30 is Slurm's own default
    default: DefaultGrace = "lower"
    """Treatment of a Pod with Kubernetes' default of 30 s, if 30 s is too long. Few authors of Pods
    write this value themselves, so lowering the value seldom contradicts an author."""

    @property
    def longest(self) -> int:
        """Returns the longest grace that a Pod may have, in seconds."""
        return self.kill_wait_s - KUBELET_S - 1

    @property
    def leaves_within(self) -> float:
        """Returns the longest time, in seconds, from the deletion of a Pod until the Pod and its
        containers are gone."""
        return float(self.kill_wait_s + KUBELET_S)

    def of_eviction(self, own: int) -> int:
        """Returns the grace of an eviction: the Pod's own grace, but at most `longest`. The result is
        never 0, because kube-apiserver would then remove the Pod before the end of the containers."""
        return max(1, min(own, self.longest))

    def lowered(self, spec: Manifest) -> int | None:
        """Returns the grace that replaces Kubernetes' default. Returns None if the Pod keeps the grace
        of the spec. The result is never 0, for the same reason as in `of_eviction`."""
        too_long = own_grace(spec) == KUBERNETES_DEFAULT_S > self.longest
        return self.longest if too_long and self.default == "lower" and self.longest > 0 else None

    def problem(self, spec: Manifest) -> str | None:
        """Returns the problem of a Pod's grace; None for a valid grace, or if the grace is lowered."""
        grace = own_grace(spec)
        if grace <= self.longest or self.lowered(spec) is not None:
            return None
        bound = f"below {self.longest + 1}, which is Slurm's KillWait less {KUBELET_S} s"
        return f"terminationGracePeriodSeconds: {grace} is not {bound}"

    def warning(self, spec: Manifest) -> str | None:
        """Returns the warning about a lowered grace, if any."""
        lowered = self.lowered(spec)
        if lowered is None:
            return None
        return (
            f"terminationGracePeriodSeconds: the default of {KUBERNETES_DEFAULT_S} becomes {lowered},"
            f" for Slurm's KillWait of {self.kill_wait_s} s"
        )


def own_grace(spec: Manifest) -> int:
    """Returns the grace in a Pod's spec, in seconds."""
    grace = spec.get("terminationGracePeriodSeconds")
    return KUBERNETES_DEFAULT_S if grace is None else grace
