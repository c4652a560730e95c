"""The rule for a Pod with GPUs on a node with native jobs.

Slurm chooses the GPUs of a job. Without a node agent the kubelet chooses the GPUs of a Pod, so a Pod and
a native job on one node may get the same GPU. No native job is on the node if the Pod's job has the
whole node (sbatch(1) --exclusive), or shares the node with jobs of one user (--exclusive=user), and
every job of that user is a Pod's. MCS and topology do not count: both depend on plugins of Slurm.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from slurm_client import gres
from slurm_client.model import JobSpec, Sharing

SharedGpus = Literal["refuse", "isolate", "allow", "node-agent"]
"""The setting: `refuse` such a Pod; `isolate`: set --exclusive=user if only Pods have the user, else
refuse; `allow` with a warning; allow on Nodes where a node agent gives the Pod the GPUs of the job."""

_GPUS = gres.SHARED | {"gpu"}  # GPUs and parts of GPUs (gres.conf(5))
_ALLOWED = (
    "a native job may use the GPUs of this Pod: both share the node, and Slurm does not know which ones"
    " the Pod has"
)
_ISOLATED = "exclusive is user for this Pod, so that no native job uses its GPUs"


class Finding(NamedTuple):
    """The decision about such a Pod."""

    shared: str | None  # of the job
    problem: str | None = None
    warning: str | None = None
    needs_agent: bool = False  # only Nodes with a node agent will do


def shared_gpus(
    job: JobSpec,
    setting: SharedGpus,
    pod_users: Collection[int | None],
    prefix: str,
    uncounted: str = "",
) -> Finding | None:
    """Returns the finding about a Pod with such a job; None if no native job can have the Pod's GPUs.
    Only Pods have `pod_users`; None among these is the token's user. `prefix` is the annotations'.
    `uncounted` is from `uncounted_gpus`."""
    counted = any(name.partition(":")[0] in _GPUS for name, _ in job.gres)
    if job.shared is Sharing.NONE or not (counted or uncounted):
        return None
    only_pods = job.user_id in pod_users
    if job.shared is Sharing.USER and only_pods:
        return None
    if uncounted and setting != "allow":  # no node agent gives the Pod what its job does not have
        return Finding(job.shared, problem=uncounted)
    if setting == "node-agent":
        return Finding(job.shared, needs_agent=True)
    if setting == "allow":
        return Finding(job.shared, warning=_ALLOWED)
    if setting == "isolate" and only_pods:
        return Finding(Sharing.USER, warning=_ISOLATED)
    return Finding(job.shared, problem=_problem(job, prefix, only_pods=only_pods))


def uncounted_gpus(names: Sequence[str], gres: Mapping[str, str], prefix: str) -> str:
    """Returns the problem of GPUs that are no GRES; empty without `names`. `gres` is the mapping."""
    if not names:
        return ""
    example = json.dumps({**gres, **{name: _likely(name) for name in names}})
    return (
        f"the Pod requests {', '.join(names)}: Slurm does not count this GPU, and may give the GPU to a"
        " native job as well. The administrator of slurm-extender maps the resource to a GRES of"
        f' slurm.conf, or to "" if the resource is no GPU: SLURM_EXTENDER_GRES={example} (gpuTypes in'
        f" the chart). Or set the annotation {prefix}exclusive to none, for a whole node"
    )


def _likely(resource: str) -> str:
    """Returns the likely GRES: a typed GPU for a MIG device, a shard for a time-shared GPU."""
    name = resource.partition("/")[2]
    if name.startswith("mig-"):
        return f"gpu:{name.removeprefix('mig-')}"
    return "shard" if name.endswith(".shared") else "gpu"


def _problem(job: JobSpec, prefix: str, *, only_pods: bool) -> str:
    asked = ", ".join(f"{name}:{count}" for name, count in job.gres)
    user = "the user of the extender's token" if job.user_id is None else f"user {job.user_id}"
    where = "" if only_pods else f": the policy does not list {user} in podUsers"
    return (
        f"the Pod requests {asked}, and a native job on the node may use the same GPUs: set the"
        f" annotation {prefix}exclusive to none, for a whole node, or to user, with a user that only"
        f" Pods have{where}"
    )
