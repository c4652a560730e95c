"""The rule for a Pod with GPUs on a node with native jobs. A native job is a job without a Pod.

Slurm chooses the GPUs of a job. Without a node agent, the kubelet chooses the GPUs of a Pod. So a Pod
and a native job on one node may get the same GPU.

In two cases, no native job can be on the Pod's node. In the first case, the Pod's job has the whole node
(sbatch(1) --exclusive). In the second case, the job shares the node only with the user's other jobs
(--exclusive=user), and all jobs of this user belong to Pods. The extender does not rely on
--exclusive=mcs and --exclusive=topo, because both depend on plugins of Slurm.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from slurm_client import gres
from slurm_client.model import JobSpec, Sharing

SharedGpus = Literal["refuse", "isolate", "allow", "node-agent"]
"""Values of the setting, for a Pod that could get the GPUs of a native job. `refuse` rejects the Pod.
`isolate` sets --exclusive=user if only Pods have the job's user, and otherwise rejects the Pod. `allow`
accepts the Pod with a warning. `node-agent` accepts the Pod, but only on Nodes where a node agent gives
the Pod the GPUs of the job."""

_GPUS = gres.SHARED | {"gpu"}  # names of GRES for GPUs and for parts of GPUs (gres.conf(5))
_ALLOWED = (
    "a native job may use the GPUs of this Pod: both share the node, and Slurm does not know which ones"
    " the Pod has"
)
_ISOLATED = "exclusive is user for this Pod, so that no native job uses its GPUs"


class Finding(NamedTuple):
    """The decision about a Pod with GPUs."""

    shared: str | None  # new value of the job's field `shared`
    problem: str | None = None
    warning: str | None = None
    needs_agent: bool = False  # the Pod needs a Node with a node agent


def shared_gpus(
    job: JobSpec,
    setting: SharedGpus,
    pod_users: Collection[int | None],
    prefix: str,
    uncounted: str = "",
) -> Finding | None:
    """Returns the finding about a Pod with this job. Returns None if no native job can have the Pod's
    GPUs. `pod_users` are the users that only Pods have, where None stands for the user of the extender's
    token. `prefix` is the prefix of the annotations. `uncounted` is the problem from
    `uncounted_gpus`."""
    counted = any(name.partition(":")[0] in _GPUS for name, _ in job.gres)
    if job.shared is Sharing.NONE or not (counted or uncounted):
        return None
    only_pods = job.user_id in pod_users
    if job.shared is Sharing.USER and only_pods:
        return None
    if uncounted and setting != "allow":  # no node agent gives a Pod GPUs that the job does not have
        return Finding(job.shared, problem=uncounted)
    if setting == "node-agent":
        return Finding(job.shared, needs_agent=True)
    if setting == "allow":
        return Finding(job.shared, warning=_ALLOWED)
    if setting == "isolate" and only_pods:
        return Finding(Sharing.USER, warning=_ISOLATED)
    return Finding(job.shared, problem=_problem(job, prefix, only_pods=only_pods))


def uncounted_gpus(names: Sequence[str], gres: Mapping[str, str], prefix: str) -> str:
    """Returns the problem of GPU resources that have no GRES. Returns an empty text if `names` is empty.
    `gres` maps resources to GRES."""
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
    """Returns the likely GRES of a resource, for the example in a message. A MIG device is a GPU with a
    type, and a time-shared GPU is a shard."""
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
