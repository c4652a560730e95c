"""The format of the pools' file. The models are the schema of the file, and `read` returns the content
as `Pool` values.

The models check only some fields of a template. kube-apiserver validates the other fields when the first
Pod is created."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from extender.pools.pool import Pool, Update
from service import yaml_file
from wellknown.slurmd_pod import CONTAINER, digest_of

_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
_Label = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9.-]+/)?[A-Za-z0-9._-]+$")]
_Feature = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._=-]+$")]
_Partition = Annotated[str, StringConstraints(pattern=r"^[^\s,=]+$")]
_Percent = Annotated[str, StringConstraints(pattern=r"^([1-9]|[1-9][0-9]|100)%$")]
_Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.,:\[\]-]+$")]
_OURS = (
    *("nodeName", "nodeSelector", "affinity", "serviceAccountName", "schedulerName", "restartPolicy"),
    *("priority", "priorityClassName"),
)
"""Fields of a Pod that the pool or the node agent sets. The priority is one of these fields. With a
lower priority, the kubelet would evict slurmd for another Pod, and the extender would count slurmd's Pod
as an ordinary unmanaged Pod (`exempt`)."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class SlurmModel(_Part):
    """Description of a node that slurmd sends to slurmctld."""

    features: list[_Feature] = Field(
        [], description="features of the nodes; a NodeSet in slurm.conf puts such nodes in a partition"
    )
    weight: int | None = Field(
        None, ge=1, le=4_294_967_280, description="Slurm fills nodes with a low weight first"
    )
    gres: str | None = Field(
        None, description="like gpu:h100:8; absent: the devices that the node agent finds on the Node"
    )
    topology_label: _Label | None = Field(
        None, description="label of the Node: topologyPrefix and the label's value are its Topology"
    )
    topology_prefix: str = Field("", description="like default: for the topology named default")
    conf: str = Field(
        "", description="more parameters of a NodeName= line of slurm.conf, like Parameters= in 26.05"
    )


class UpdateModel(_Part):
    """Strategy for bringing a changed template to the Nodes."""

    max_unavailable: int | _Percent = Field(
        1, description="Nodes, or percentage of the pool, that may be out of service at a time"
    )
    stop_after: int = Field(2, ge=1, description="number of failed new slurmd Pods to stop a roll-out")
    when: Literal["idle", "maintenance"] = Field(
        "idle",
        description="idle: idle nodes first, busy nodes after their jobs;"
        " maintenance: only nodes in a maintenance reservation of Slurm",
    )

    @model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if isinstance(self.max_unavailable, int) and self.max_unavailable < 1:
            raise ValueError("maxUnavailable must be 1 or more")
        return self


class PoolModel(_Part):
    """Nodes that each run one slurmd Pod of a template."""

    name: _Name
    node_selector: dict[_Label, str] = Field(description="labels of the pool's Nodes")
    replicas: int | None = Field(
        None, ge=0, description="number of matching Nodes in the pool; absent: all matching Nodes"
    )
    partitions: list[_Partition] = Field(
        [], description="Slurm partitions of the pool's nodes: the metrics report their pending demand"
    )
    slurm: SlurmModel = SlurmModel()
    scripts: list[_Name] = Field(
        [], description="ConfigMaps with programs to run before slurmd (docs/reference/pools.md)"
    )
    update: UpdateModel = UpdateModel()
    template: dict[str, Any] = Field(
        description=f"Pod template: metadata and spec, with a container {CONTAINER}"
    )

    @model_validator(mode="after")
    def _is_a_template(self) -> Self:
        if wrong := _wrong_template(self.template):
            raise ValueError(wrong)
        return self


class PoolsModel(_Part):
    """The content of the pools' file."""

    controllers: list[_Address] = Field(
        min_length=1, description="address and port of slurmctld, then of backups: slurmd --conf-server"
    )
    pools: list[PoolModel]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [pool.name for pool in self.pools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several pools have the name {', '.join(twice)}")
        return self


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of the file."""
    return PoolsModel.model_json_schema()


def read(path: Path) -> tuple[Pool, ...]:
    """Returns the pools in a file, in the file's order. Raises WrongFile with all errors of the
    file."""
    model = yaml_file.read(path, PoolsModel, "{controllers: [slurmctld:6817], pools: []}")
    return tuple(_pool(pool, model.controllers) for pool in model.pools)


def _pool(model: PoolModel, controllers: list[str]) -> Pool:
    update = model.update
    data = {
        "controllers": controllers,
        "slurm": model.slurm.model_dump(by_alias=True, exclude_defaults=True),
        "scripts": model.scripts,
        "template": model.template,
    }
    strategy = Update(update.max_unavailable, update.stop_after, update.when == "maintenance")
    partitions = frozenset(model.partitions)
    return Pool(model.name, model.node_selector, model.replicas, strategy, data, partitions)


def _wrong_template(template: dict[str, Any]) -> str | None:
    try:
        digest_of(template)
    except (TypeError, ValueError) as error:
        return f"template: quote keys and values that must be text in Kubernetes: {error}"
    spec = template.get("spec")
    if not isinstance(spec, dict) or template.keys() - {"metadata", "spec"}:
        return "template: may only have metadata and spec, like the template of a DaemonSet"
    if ours := [field for field in _OURS if field in spec]:
        return f"template.spec: {', '.join(ours)}: the template may not set this field"
    containers = spec.get("containers")
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        return "template.spec.containers: a list of containers is needed"
    names = [each.get("name") for each in containers]
    if names.count(CONTAINER) != 1:
        return f"template.spec.containers: exactly one container must have the name {CONTAINER}"
    if "lifecycle" in containers[names.index(CONTAINER)]:
        return f"template.spec.containers: {CONTAINER}: the template may not set lifecycle"
    return None
