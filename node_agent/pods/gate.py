"""Finds the Pods for the gate in Slurm's Prolog. The gate must wait for Pods that are gone, but still
have processes.

The kernel knows best which Pods still have processes, because kube-apiserver forgets a Pod that was
deleted by force. But the agent can never report the Node as free. Only the extender knows whether the
job of another Pod has ended, and whether a Pod may still be bound to the Node. A Pod in deletion does
not count as gone, because the Pod's job may run until the deletion has ended.
"""

from collections.abc import Iterable, Mapping

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim, Stage


def lingering(
    claims: Mapping[str, Claim], removed: Mapping[str, str], cgroups: Iterable[PodCgroup]
) -> tuple[str, ...]:
    """Returns the names of jobs' Pods that have ended or are gone, but still have processes. Parameter
    `claims` has the Node's Pods by uid. Parameter `removed` has the names of jobs' Pods that
    kube-apiserver no longer has, by uid."""
    over = (each for each in claims.values() if each.of_job and each.stage is Stage.ENDED)
    gone = {each.uid: each.pod for each in over} | dict(removed)
    here = {cgroup.uid for cgroup in cgroups if cgroup.populated}
    return tuple(sorted(gone[uid] for uid in gone.keys() & here))
