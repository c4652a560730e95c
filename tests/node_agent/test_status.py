"""Tests of `node-agent status`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from node_agent.enforcement.constraints import Counted
from node_agent.enforcement.decision import Entry
from node_agent.enforcement.native_jobs import Scope
from node_agent.machine import names
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Answers, Device, Number
from node_agent.machine.numbered import Machine
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim
from node_agent.settings import Settings
from node_agent.status import Kernel, Row, document, jobs, other_devices, pod
from tests.node_agent.kubelet import RESOURCE, Kubelet, PodResources
from tests.node_agent.machines import look
from tests.node_agent.test_without_nri import GPUS

if TYPE_CHECKING:
    from pathlib import Path

CORES = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
MACHINE = Machine([Device("gpu", "h100", (f"/dev/d{number}",)) for number in range(4)], look)
CLAIM = Claim("u1", "ml/p", {"gpu": (0, 3)}, (1,), 64)


@pytest.fixture
def cgroup(tmp_path: Path) -> PodCgroup:
    (tmp_path / "cpuset.cpus.effective").write_text("1,5\n")
    (tmp_path / "memory.max").write_text(f"{64 << 20}\n")
    return PodCgroup("u1", 9, populated=True, place=tmp_path)


def test_pod_row_shows_the_grant_and_the_limits_in_force(cgroup: PodCgroup) -> None:
    entries = [Entry(9, Number(60, 0)), Entry(9, Number(60, 3)), Entry(8, Number(60, 1))]
    kernel = Kernel({"u1": cgroup}, entries, MACHINE, CORES)
    memory, devices = ("64 MiB", "64 MiB"), ("gpu 0,3", "gpu 0,3")
    assert pod(CLAIM, kernel) == Row("ml/p", ("1,5", "1,5"), memory, devices)


def test_parts_of_devices_are_shown_as_such(cgroup: PodCgroup) -> None:
    entries = [Entry(9, Number(60, 0)), Entry(9, Number(60, 3), in_part=True)]
    kernel = Kernel({"u1": cgroup}, entries, MACHINE, CORES)
    claim = CLAIM._replace(devices={"gpu": (0,), "shard": (3,)}, parts={"shard": {3: 2}})
    assert pod(claim, kernel).devices == ("gpu 0, part of gpu 3 (shard:2)", "gpu 0, part of gpu 3")


def test_pod_row_shows_limits_that_are_not_in_force(cgroup: PodCgroup) -> None:
    (cgroup.place / "cpuset.cpus.effective").write_text("0-7\n")
    (cgroup.place / "memory.max").write_text("max\n")
    kernel = Kernel({"u1": cgroup}, [Entry(9, Number(60, 0))], MACHINE, CORES)
    expected = Row("ml/p", ("1,5", "0-7"), ("64 MiB", "max"), ("gpu 0,3", "gpu 0"))
    assert pod(CLAIM, kernel) == expected


def test_pod_row_names_a_missing_cgroup_or_unknown_devices() -> None:
    kernel = Kernel({}, [], MACHINE, CORES)
    assert pod(CLAIM, kernel).problem == "it has no cgroup"
    unknown = CLAIM._replace(devices={"gpu": (9,)})
    assert pod(unknown, kernel).problem == "Slurm gave it gpu 9, and this machine has 4"
    assert pod(CLAIM._replace(cores=(7,)), kernel).problem.startswith("Slurm gave it core 7")


async def test_devices_that_the_kubelet_counts_differently_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver names the GPUs. The kubelet may still count a GPU for a Pod under the name that an
    earlier agent used."""
    known = tuple(replace(gpu, uuid=f"GPU-{n}") for n, gpu in enumerate(GPUS))
    monkeypatch.setattr(names, "ask_drivers", lambda: Answers(known))
    listed = PodResources(tmp_path / "pod-resources.sock")
    settings = Settings(
        node="n1",
        gres=tmp_path / "gres",
        cdi=(),
        device_plugins=tmp_path,
        pod_resources=listed.socket,
        resources={RESOURCE: "gpu"},
    )
    claims = [Claim(f"u{n}", f"ml/{n}", {"gpu": (n,)}, job=7) for n in range(3)]
    listed.pods = {"ml/0": ["GPU-0"], "ml/1": ["gpu-1"], "ml/2": ["GPU-0"], "ml/none": ["GPU-2"]}
    Kubelet(tmp_path).counts("GPU-0", "gpu-1", "GPU-2", of_pods=["gpu-1"])
    async with listed.runs():
        found = await other_devices(settings, claims, Machine(GPUS, look))
    assert found == {"ml/2": "the kubelet counts GPU-0 for it, which Slurm did not grant"}


@pytest.mark.parametrize("job", ["job_33", "sEHSM7YS0FD500"])
def test_native_jobs_of_both_releases_are_shown(job: str, tmp_path: Path) -> None:
    scope = tmp_path / "system.slice/n1_slurmstepd.scope"
    (scope / "system").mkdir(parents=True)
    for step in ("step_0", "step_batch"):
        (scope / job / step / "user").mkdir(parents=True)
    (scope / job / "cgroup.events").write_text("populated 1\n")
    (scope / job / "cpuset.cpus").write_text("2\n")
    (scope / job / "cpuset.cpus.effective").write_text("2\n")
    (scope / job / "memory.max").write_text("104857600\n")
    counted = Counted(memory=True, devices=False)
    row = Row(job, ("-", "2"), ("-", "100 MiB"), ("-", "-"))
    assert list(jobs([Scope(scope)], counted)) == [row]
    (scope / job / "memory.max").write_text("max\n")
    (shown,) = jobs([Scope(scope)], counted)
    why = f"ConstrainRAMSpace=yes (cgroup.conf) is not in force for {job}: its memory.max is max"
    assert (shown.memory, shown.problem) == (("-", "max"), why)


def test_rows_are_printed_as_json() -> None:
    row = Row("ml/p", ("1,5", "-"), ("64 MiB", "max"), ("gpu 0", "-"), "it has no cgroup")
    assert json.loads(document([row])) == {
        "rows": [
            {
                "who": "ml/p",
                "cpus": {"granted": "1,5", "inForce": "-"},
                "memory": {"granted": "64 MiB", "inForce": "max"},
                "devices": {"granted": "gpu 0", "inForce": "-"},
                "problem": "it has no cgroup",
            }
        ]
    }
