"""Tests of the file of pools, and of the error messages about invalid files."""

from pathlib import Path

import pytest

from extender.pools.file import read, schema
from extender.pools.pool import Update
from service.yaml_file import WrongFile

LEAST = """\
controllers: [slurmctld:6817]
pools:
- name: gpu
  nodeSelector: {gpu: "yes"}
  template: {spec: {containers: [{name: slurmd, image: i}]}}
"""
TWIN = "{name: gpu, nodeSelector: {}, template: {spec: {containers: [{name: slurmd}]}}}"
ALL = """\
controllers: [a:6817, b:6817]
pools:
- name: gpu
  nodeSelector: {node.kubernetes.io/instance-type: h100}
  replicas: 4
  partitions: [gpu, all]
  slurm: {features: [gpu, h100], weight: 10, gres: "gpu:h100:8", topologyLabel: example.io/rack,
    topologyPrefix: "default:", conf: State=CLOUD}
  scripts: [start-up, more]
  update: {maxUnavailable: 10%, stopAfter: 3, when: maintenance}
  template:
    metadata: {labels: {team: a}}
    spec:
      containers:
      - {name: side, image: s}
      - {name: slurmd, image: i}
- {name: cpu, nodeSelector: {}, template: {spec: {containers: [{name: slurmd, image: i}]}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pools.yaml"


def test_shortest_file_takes_all_matching_nodes_with_defaults(file: Path) -> None:
    file.write_text(LEAST)
    (pool,) = read(file)
    assert (pool.name, pool.selector) == ("gpu", {"gpu": "yes"})
    assert (pool.replicas, pool.update) == (None, Update())
    assert pool.data["controllers"] == ["slurmctld:6817"]
    assert pool.selects({"gpu": "yes", "more": "x"})
    assert not pool.selects({"gpu": "no"})


def test_all_fields_of_the_file_are_read(file: Path) -> None:
    file.write_text(ALL)
    pool, other = read(file)
    assert (pool.replicas, pool.update) == (4, Update("10%", 3, in_maintenance=True))
    assert (pool.partitions, other.partitions) == (frozenset({"gpu", "all"}), frozenset())
    assert pool.data["slurm"] == {
        "features": ["gpu", "h100"],
        "weight": 10,
        "gres": "gpu:h100:8",
        "topologyLabel": "example.io/rack",
        "topologyPrefix": "default:",
        "conf": "State=CLOUD",
    }
    assert pool.data["scripts"] == ["start-up", "more"]
    assert pool.data["template"]["metadata"] == {"labels": {"team": "a"}}
    assert other.selects({})


def test_revision_changes_only_with_the_content_of_the_pod(file: Path) -> None:
    """Changes of `replicas`, `partitions` and `update` replace no slurmd Pod."""
    file.write_text(LEAST)
    (first,) = read(file)
    more = "replicas: 3\n  partitions: [gpu]\n  update: {maxUnavailable: 5}"
    file.write_text(LEAST.replace("name: gpu", f"name: gpu\n  {more}"))
    assert read(file)[0].assignment == first.assignment
    file.write_text(LEAST.replace("image: i", "image: j"))
    changed = read(file)[0].assignment
    assert changed.revision.startswith("gpu-")
    assert changed != first.assignment
    file.write_text(LEAST.replace("slurmctld:6817", "elsewhere:6817"))
    assert read(file)[0].assignment not in (first.assignment, changed)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("", "", "is empty: the shortest valid file is `{controllers: [slurmctld:6817], pools: []}`"),
        ("[slurmctld:6817]", "[]", "1: controllers: must not be empty"),
        ("name: gpu", "name: GPU", '3: pools[0].name: "GPU" does not match'),
        ("nodeSelector", "selector", "3: pools[0].nodeSelector: is missing"),
        ("nodeSelector", "selector", "4: pools[0].selector: is not a field; known fields: name, "),
        ("  template", "  slurm: {feature: [a]}\n  template", "slurm.feature: is not a field; known"),
        ("  template", "  partitions: ['a,b']\n  template", 'pools[0].partitions[0]: "a,b" does not'),
        ("  template", "  replicas: -1\n  template", "5: pools[0].replicas: Input should be great"),
        ("  template", "  update: {maxUnavailable: 0}\n  template", "maxUnavailable must be 1 or more"),
        ("  template", "  update: {maxUnavailable: 101%}\n  template", '"101%" does not match'),
        ("  template", "  update: {when: now}\n  template", "update.when: must be idle or maintenance"),
        ("containers: [{name: slurmd", "containers: [{name: other", "exactly one container must have"),
        ("{spec: {con", "{spec: {nodeName: n1, con", "template.spec: nodeName: the template may not"),
        ("{spec: ", "{status: {}, spec: ", "template: may only have metadata and spec"),
        ("{spec: ", "{metadata: {labels: {on: a}}, spec: ", "template: quote keys and values that"),
        ("- name: gpu", f"- {TWIN}\n- name: gpu", "several pools have the name gpu"),
    ],
)  # fmt: skip
def test_error_names_the_line_and_the_field(file: Path, before: str, after: str, told: str) -> None:
    file.write_text(LEAST.replace(before, after, 1) if before else "")
    with pytest.raises(WrongFile) as wrong:
        read(file)
    assert told in str(wrong.value)


def test_the_schema_names_every_field() -> None:
    assert {"PoolModel", "SlurmModel", "UpdateModel"} <= schema()["$defs"].keys()
