"""Tests of the holders of devices: the metric, and the job files during the life of a Pod."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent import metrics
from node_agent.enforcement.numbering import Numbering
from node_agent.machine.devices import Device, Monitored, Names
from node_agent.machine.numbered import Machine
from node_agent.pods.claims import Claim
from node_agent.pods.node_pods import NodePods
from node_agent.reporting import device_holders
from node_agent.reporting.device_holders import DeviceHolders, Holder, holders
from node_agent.reporting.job_files import JobFiles
from tests.eventually import until
from tests.node_agent.machines import look
from tests.node_agent.test_missing_devices import Known
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GPUS = tuple(Device("gpu", "h100", (f"/dev/nvidia{n}",), shared={"shard": 4}) for n in range(3))
MONITORED = (Monitored("2", "GPU-c"), Monitored("0", "GPU-a"), Monitored("1", "GPU-b", "7"))
"""The GPUs in the order of Slurm's numbers. NVML has another order, and the last device is a MIG
instance."""
JOB = 40_000_007


class Three(Known):
    """A keeper of three GPUs with known names."""

    def __init__(self) -> None:
        self.machine = Machine(GPUS, look)
        self.numbering = Numbering(Path("no file"))
        named = zip(GPUS, MONITORED, strict=True)
        self.names = {frozenset(gpu.files): Names(each.uuid, monitored=each) for gpu, each in named}


class Site:
    """A Node with Pods, and the agent's part for job files."""

    def __init__(self, folder: Path) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.folder = folder
        self.keeper = Three()
        self.pods = NodePods(self.kubernetes, "n1", lambda: None, lambda _: None)
        self.holders = DeviceHolders(self.keeper, self.pods, folder)
        self.problem: Exception | None = None

    def _reports(self, problem: Exception | None) -> None:
        self.problem = problem

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        parts = self.pods.follow(), self.holders.run(self._reports)
        running = [asyncio.create_task(part) for part in parts]
        yield
        for part in running:
            part.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def bind(self, name: str, gres: str, job: int = JOB, **status: str) -> None:
        notes = Allocation(job, "n1", gres).annotations()
        metadata = {"uid": f"uid-{name}", "namespace": "ml", "name": name, "annotations": notes}
        spec = {"nodeName": "n1", "containers": []}
        self.kubernetes.put("pods", {"metadata": metadata, "spec": spec, "status": status})

    async def has(self, files: dict[str, str]) -> None:
        def found() -> dict[str, str]:
            return {file.name: file.read_text() for file in self.folder.glob("[0-9]*")}

        await until(found, holds=lambda now: now == files)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(device_holders, "_LOOK_S", 0.01)
    return Site(tmp_path / "job-mapping")


async def test_job_files_name_the_job_of_a_pod_until_the_pod_is_gone(site: Site) -> None:
    async with site.runs():
        site.bind("one", "gpu:h100:2(IDX:0,2)")
        site.bind("two", "gpu:h100:1(IDX:1)", JOB + 1)
        await site.has({"2": f"{JOB}\n", "1.7": f"{JOB}\n", "0": f"{JOB + 1}\n"})
        await site.kubernetes.delete_pod("ml", "one", {"uid": "uid-one"}, 0)
        await site.has({"2": "", "1.7": "", "0": f"{JOB + 1}\n"})
        site.bind("two", "gpu:h100:1(IDX:1)", JOB + 1, phase="Succeeded")
        await site.has({"2": "", "1.7": "", "0": ""})


async def test_job_file_of_a_shared_gpu_names_the_jobs_of_all_pods(site: Site) -> None:
    async with site.runs():
        site.bind("one", "shard:1(1/4,0/4,0/4)")
        site.bind("two", "shard:2(2/4,0/4,0/4)", JOB + 1)
        await site.has({"2": f"{JOB}\n{JOB + 1}\n"})


async def test_job_files_stay_while_the_pods_are_unknown(site: Site) -> None:
    JobFiles(site.folder).write({"2": [JOB]}, [JOB])
    site.kubernetes.outage(Unavailable(0, "no answer"))
    async with site.runs():
        await asyncio.sleep(0.1)
        assert (site.folder / "2").read_text() == f"{JOB}\n"
        site.kubernetes.outage(None)
        await site.has({"2": ""})


async def test_job_files_stay_while_the_driver_reports_no_names(site: Site) -> None:
    async with site.runs():
        site.bind("one", "gpu:h100:1(IDX:0)")
        await site.has({"2": f"{JOB}\n"})
        site.keeper.names = {}
        site.bind("two", "gpu:h100:1(IDX:1)", JOB + 1)
        await asyncio.sleep(0.1)
        assert (site.folder / "2").read_text() == f"{JOB}\n"


async def test_job_files_stay_while_a_renumbered_device_has_a_holder(site: Site) -> None:
    async with site.runs():
        site.bind("one", "gpu:h100:1(IDX:0)")
        await site.has({"2": f"{JOB}\n"})
        site.keeper.numbering.words = "wait until the jobs from before have ended"
        site.bind("two", "gpu:h100:1(IDX:1)", JOB + 1)
        await asyncio.sleep(0.1)
        assert site.holders.now() == []
        await site.has({"2": f"{JOB}\n"})
        site.keeper.numbering.words = ""
        await site.has({"2": f"{JOB}\n", "0": f"{JOB + 1}\n"})


async def test_changes_by_other_programs_are_repaired(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_holders, "_REPAIR_S", 0.02)
    async with site.runs():
        site.bind("one", "gpu:h100:1(IDX:0)")
        await site.has({"2": f"{JOB}\n"})
        (site.folder / "2").unlink()
        await site.has({"2": f"{JOB}\n"})


async def test_folder_that_cannot_be_written_is_reported(site: Site) -> None:
    site.folder.write_text("a file in the place of the folder")
    async with site.runs():
        await until(lambda: site.problem)
        assert "job-mapping" in str(site.problem)
        site.folder.unlink()
        await until(lambda: site.problem is None)


def claim(**devices: tuple[int, ...]) -> Claim:
    return Claim("u", "ml/p", devices, job=JOB)


def test_each_device_of_a_pod_has_a_holder() -> None:
    known: Any = Three()
    found = holders([claim(gpu=(0, 2)), claim(shard=(1,))], known.machine, known.names)
    assert [*found] == [
        Holder("gpu", 0, MONITORED[0], "ml/p", JOB),
        Holder("gpu", 2, MONITORED[2], "ml/p", JOB),
        Holder("shard", 1, MONITORED[1], "ml/p", JOB),
    ]


def test_device_that_the_machine_does_not_have_has_no_holder() -> None:
    known: Any = Three()
    found = holders([claim(gpu=(7, 1)), claim(disk=(0,))], known.machine, known.names)
    assert [*found] == [Holder("gpu", 1, MONITORED[1], "ml/p", JOB)]


def test_metric_has_the_labels_of_dcgm_exporter() -> None:
    family = metrics._holders([Holder("gpu", 2, MONITORED[2], "ml/p", JOB)])
    (sample,) = family.samples
    assert sample.labels == {
        "gres": "gpu",
        "index": "2",
        "UUID": "GPU-b",
        "gpu": "1",
        "GPU_I_ID": "7",
        "pod_namespace": "ml",
        "pod_name": "p",
        "job_id": str(JOB),
    }
