"""The format of the file of pools (the models are the schema), and its content as values.

kube-apiserver judges the rest of a template when the first Pod is made."""

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
"""Fields of a Pod that the pool says, or the agent. Of a lower priority the kubelet would end slurmd for
another Pod, and unmanaged Pods would have to fit beside what it requests."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class SlurmModel(_Part):
    """What slurmd tells slurmctld of a node."""

    features: list[_Feature] = Field(
        [], description="features of the nodes; a NodeSet of slurm.conf makes them a partition's"
    )
    weight: int | None = Field(None, ge=1, le=4_294_967_280, description="jobs get light nodes first")
    gres: str | None = Field(
        None, description="like gpu:h100:8; absent: the devices that the agent finds on the Node"
    )
    topology_label: _Label | None = Field(
        None, description="the Node's label whose value is the node's Topology, after topologyPrefix"
    )
    topology_prefix: str = Field("", description="like default: for the topology of that name")
    conf: str = Field(
        "", description="more of a line NodeName= of slurm.conf: Parameters=.. of 26.05, say"
    )


class UpdateModel(_Part):
    """How a changed template comes to the Nodes."""

    max_unavailable: int | _Percent = Field(
        1, description="Nodes, or percent of the pool's, that may be out of service at a time"
    )
    stop_after: int = Field(2, ge=1, description="so many slurmd Pods of it that fail stop the roll-out")
    when: Literal["idle", "maintenance"] = Field(
        "idle",
        description="idle: idle nodes first, busy ones when their jobs have ended;"
        " maintenance: nodes in a maintenance reservation of Slurm's only",
    )

    @model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if isinstance(self.max_unavailable, int) and self.max_unavailable < 1:
            raise ValueError("maxUnavailable must be 1 or more")
        return self


class PoolModel(_Part):
    """Nodes that each run one slurmd Pod of a template."""

    name: _Name
    node_selector: dict[_Label, str] = Field(description="labels that the pool's Nodes have")
    replicas: int | None = Field(
        None, ge=0, description="how many of these Nodes; absent: every Node that matches"
    )
    partitions: list[_Partition] = Field(
        [], description="Slurm's partitions that its nodes are in: whose pending demand is told"
    )
    slurm: SlurmModel = SlurmModel()
    scripts: list[_Name] = Field(
        [], description="ConfigMaps with programs that run before slurmd (docs/pools.md)"
    )
    update: UpdateModel = UpdateModel()
    template: dict[str, Any] = Field(
        description=f"a Pod's template: metadata and spec, with a container {CONTAINER}"
    )

    @model_validator(mode="after")
    def _is_a_template(self) -> Self:
        if wrong := _wrong_template(self.template):
            raise ValueError(wrong)
        return self


class PoolsModel(_Part):
    """The content of a file of pools."""

    controllers: list[_Address] = Field(
        min_length=1, description="slurmctld's address and port, then the backups': slurmd --conf-server"
    )
    pools: list[PoolModel]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [pool.name for pool in self.pools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several pools are called {', '.join(twice)}")
        return self


def schema() -> dict[str, Any]:
    """Returns the format's JSON Schema."""
    return PoolsModel.model_json_schema()


def read(path: Path) -> tuple[Pool, ...]:
    """Returns the pools in a file, in its order. Raises WrongFile with everything that is wrong."""
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
        return f"template: quote keys and values that are no text for Kubernetes: {error}"
    spec = template.get("spec")
    if not isinstance(spec, dict) or template.keys() - {"metadata", "spec"}:
        return "template: has metadata and spec, as the template of a DaemonSet"
    if ours := [field for field in _OURS if field in spec]:
        return f"template.spec: {', '.join(ours)}: is not the template's to say"
    containers = spec.get("containers")
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        return "template.spec.containers: a list of containers is needed"
    names = [each.get("name") for each in containers]
    if names.count(CONTAINER) != 1:
        return f"template.spec.containers: one of them must be called {CONTAINER}"
    if "lifecycle" in containers[names.index(CONTAINER)]:
        return f"template.spec.containers: {CONTAINER}: lifecycle is not the template's to say"
    return None
