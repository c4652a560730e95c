"""The Node's own word for the Prolog's gate: Pods that should be gone, and still have processes.

The kernel knows best which Pods are here: a Pod that was deleted by force may still have processes. Only
the extender knows whether the job of a remaining Pod has ended, and whether a Pod may yet be bound to
the Node: no Node can say that it is clear.
"""

from collections.abc import Iterable, Mapping

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim


def lingering(
    claims: Mapping[str, Claim], removed: Mapping[str, str], cgroups: Iterable[PodCgroup]
) -> tuple[str, ...]:
    """Returns the names of jobs' Pods that should be gone, and have processes. Parameter `claims` has
    the Node's Pods by uid, `removed` the names of jobs' Pods that kube-apiserver lacks, by uid."""
    leaving = {uid: claim.pod for uid, claim in claims.items() if claim.of_job and claim.leaves}
    gone = leaving | dict(removed)
    here = {cgroup.uid for cgroup in cgroups if cgroup.populated}
    return tuple(sorted(gone[uid] for uid in gone.keys() & here))
