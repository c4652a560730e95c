"""The rule for a Pod that asks for GPUs of a node that native jobs may share.

Slurm chooses the GPUs of a job. Without a node agent the kubelet chooses the GPUs of a Pod, by its
device plugin, and neither knows of the other's choice: a Pod and a native job on one node may get the
same GPU, though both count what there is. That cannot be where no native job is on the Pod's node: where
the Pod's job has the whole node (sbatch(1) --exclusive), or shares it with jobs of its own user alone
(--exclusive=user), and every job of that user is a Pod's. MCS and topology keep others away only where
Slurm has the plugins for them, and do not count.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from slurm_client import gres
from slurm_client.model import JobSpec, Sharing

SharedGpus = Literal["refuse", "isolate", "allow", "node-agent"]
"""The setting: `refuse` such a Pod; give it nodes of its user alone where only Pods have that user, and
refuse it otherwise; allow it, with a warning; or allow it where a node agent gives the Pod exactly the
GPUs of its job."""

_GPUS = gres.SHARED | {"gpu"}
"""The GRES that are GPUs, or parts of them (gres.conf(5))."""
_ALLOWED = (
    "a native job may use the GPUs of this Pod: both share the node, and Slurm does not know which ones"
    " the Pod has"
)
_ISOLATED = "exclusive is user for this Pod, so that no native job uses its GPUs"


class Finding(NamedTuple):
    """How such a Pod's job shares its node, the problem, and the warning for the Pod's author."""

    shared: str | None
    problem: str | None = None
    warning: str | None = None
    needs_agent: bool = False
    """Whether only Nodes with a node agent will do."""


def shared_gpus(
    job: JobSpec,
    setting: SharedGpus,
    pod_users: Collection[int | None],
    prefix: str,
    uncounted: str = "",
) -> Finding | None:
    """Returns the finding about a Pod with such a job; None where no native job can have its GPUs.
    Among the users that only Pods have, None is the token's own. `prefix` is the annotations'.
    `uncounted` is the problem of a Pod with GPUs that are no GRES (`uncounted_gpus`)."""
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
    """Returns the problem of a Pod that requests GPUs by names that are no GRES; empty if there are no
    such names. `gres` is what is mapped."""
    if not names:
        return ""
    example = json.dumps({**gres, **{name: _likely(name) for name in names}})
    return (
        f"the Pod requests {', '.join(names)}: Slurm does not count this GPU, and may give it to a"
        " native job as well. The administrator of slurm-extender maps the resource to a GRES of"
        f' slurm.conf, or to "" if it is no GPU: SLURM_EXTENDER_GRES={example} (gpuTypes in the chart).'
        f" Or set the annotation {prefix}exclusive to none, for a node of its own"
    )


def _likely(resource: str) -> str:
    """Returns the GRES that such a resource mostly is: MIG devices are typed GPUs, and GPUs that
    NVIDIA's device plugin shares by time are shards."""
    name = resource.partition("/")[2]
    if name.startswith("mig-"):
        return f"gpu:{name.removeprefix('mig-')}"
    return "shard" if name.endswith(".shared") else "gpu"


def _problem(job: JobSpec, prefix: str, *, only_pods: bool) -> str:
    asked = ", ".join(f"{name}:{count}" for name, count in job.gres)
    user = "the user of the extender's token" if job.user_id is None else f"user {job.user_id}"
    where = "" if only_pods else f", of which {user} is none: the policy lists them as podUsers"
    return (
        f"the Pod requests {asked}, and a native job on its node may use the same GPUs: set the"
        f" annotation {prefix}exclusive to none, for a node of its own, or to user, with a user that"
        f" only Pods have{where}"
    )
