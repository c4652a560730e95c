"""The Node's own word for the Prolog's gate: Pods that are gone, and still have processes.

The kernel knows best which Pods are here: a Pod that was deleted by force may still have processes. Only
the extender knows whether the job of another Pod has ended, and whether a Pod may yet be bound to the
Node: no Node can say that it is clear. The job of a Pod in deletion may run until the Pod is gone.
"""

from collections.abc import Iterable, Mapping

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim, Stage


def lingering(
    claims: Mapping[str, Claim], removed: Mapping[str, str], cgroups: Iterable[PodCgroup]
) -> tuple[str, ...]:
    """Returns the names of jobs' Pods that have ended or are gone, and have processes. Parameter
    `claims` has the Node's Pods by uid, `removed` the names of jobs' Pods that kube-apiserver lacks, by
    uid."""
    over = (each for each in claims.values() if each.of_job and each.stage is Stage.ENDED)
    gone = {each.uid: each.pod for each in over} | dict(removed)
    here = {cgroup.uid for cgroup in cgroups if cgroup.populated}
    return tuple(sorted(gone[uid] for uid in gone.keys() & here))
