"""The grace period of a Pod, compared with how long Slurm waits for its job to end.

The processes of a job that Slurm ends have KillWait seconds from SIGTERM to SIGKILL (slurm.conf(5)). A
Pod gets the same, less 5 seconds for its kubelet: a Pod that could stay longer might share its node
with the next job. The grace cannot be changed on a Pod that exists.
"""

from dataclasses import dataclass
from typing import Literal

from kubernetes_client.protocol import Manifest

KUBERNETES_DEFAULT_S = 30
"""The grace that kube-apiserver writes into every Pod that names none, before it calls webhooks."""
KUBELET_S = 5
"""Seconds that a kubelet needs in addition, to kill containers that outlast the grace and to report
it."""

DefaultGrace = Literal["lower", "refuse"]


@dataclass(frozen=True, slots=True)
class GraceRule:
    """terminationGracePeriodSeconds < KillWait - 5 s."""

    kill_wait_s: int = 30
    """Slurm's KillWait; 30 is Slurm's own default."""
    default: DefaultGrace = "lower"
    """What is done about Kubernetes' default of 30, which the author mostly did not write."""

    @property
    def longest(self) -> int:
        """Returns the longest grace that a Pod may have, in seconds."""
        return self.kill_wait_s - KUBELET_S - 1

    @property
    def leaves_within(self) -> float:
        """Returns the longest time to wait for a leaving Pod, or for containers that outlive their Pod,
        in seconds: a Pod that stays longer was not deleted by this rule."""
        return float(self.kill_wait_s + KUBELET_S)

    def of_eviction(self, own: int) -> int:
        """Returns the grace that a Pod is evicted with: its own, or the longest where that is shorter.
        Never 0: with that kube-apiserver drops a Pod before its containers have ended."""
        return max(1, min(own, self.longest))

    def lowered(self, spec: Manifest) -> int | None:
        """Returns the grace that a Pod gets in place of Kubernetes' default, None where it keeps its
        own. Never 0: with that kube-apiserver drops a Pod before its containers have ended."""
        too_long = own_grace(spec) == KUBERNETES_DEFAULT_S > self.longest
        return self.longest if too_long and self.default == "lower" and self.longest > 0 else None

    def problem(self, spec: Manifest) -> str | None:
        """Returns what is wrong with a Pod's grace, None where it may stay or will be lowered."""
        grace = own_grace(spec)
        if grace <= self.longest or self.lowered(spec) is not None:
            return None
        bound = f"below {self.longest + 1}, which is Slurm's KillWait less {KUBELET_S} s"
        return f"terminationGracePeriodSeconds: {grace} is not {bound}"

    def warning(self, spec: Manifest) -> str | None:
        """Returns the warning for the author of a Pod whose grace is lowered."""
        lowered = self.lowered(spec)
        if lowered is None:
            return None
        return (
            f"terminationGracePeriodSeconds: the default of {KUBERNETES_DEFAULT_S} becomes {lowered},"
            f" for Slurm's KillWait of {self.kill_wait_s} s"
        )


def own_grace(spec: Manifest) -> int:
    """Returns the grace that a Pod's spec gives it, in seconds."""
    grace = spec.get("terminationGracePeriodSeconds")
    return KUBERNETES_DEFAULT_S if grace is None else grace
