"""Tests of Pods and native jobs that got their devices before slurmd renumbered the devices."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from node_agent import agent as agent_module
from node_agent import app
from node_agent.enforcement.keeper import Keeper
from node_agent.enforcement.native_jobs import NativeJobs
from node_agent.enforcement.numbering import FILE, renumbered
from node_agent.machine import numbered
from node_agent.pods.cgroups import EVENTS, PodCgroups
from node_agent.pods.claims import Claim
from node_agent.reporting import device_health
from node_agent.reporting.node_condition import Condition
from tests.eventually import until
from tests.node_agent.machines import look
from tests.node_agent.node import A, B, C, D
from tests.node_agent.test_gone_pods import PlainNode, make_pod
from tests.node_agent.test_native_jobs import SCOPE, make_job
from wellknown.names import DEVICE_PROBLEM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from node_agent.enforcement.decision import Decision, Entry
    from node_agent.settings import Settings

HELD = (
    "a job from before slurmd renumbered the devices may have a device of this Pod's job (see the Node's"
    f" condition {DEVICE_PROBLEM})"
)
MOVED = "its processes have devices that are no more its job's"
SWAPPED = "gpu 0 (/dev/d1) was gpu 1, gpu 1 (/dev/d0) was gpu 0"


def words(holders: str, devices: str = SWAPPED) -> str:
    return (
        f"wait until the jobs from before have ended, or end them ({holders}). Slurm may give their"
        f" devices to other jobs: {devices}"
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("gpu a b", "gpu a b", {}),
        ("gpu a b", "gpu a b c", {}),  # another device
        ("gpu a b c", "gpu a b", {}),  # the last device is gone
        ("gpu a b c", "gpu a c", {"gpu 1": "gpu 2"}),
        ("gpu a b", "gpu a c", {}),  # no job from before has c
        ("gpu a b c", "gpu b a c", {"gpu 0": "gpu 1", "gpu 1": "gpu 0"}),
        ("gpu a b", "accel a b", {"accel 0": "gpu 0", "accel 1": "gpu 1"}),
        ("gpu a,ra b,rb", "gpu b,rb a,ra", {"gpu 0": "gpu 1", "gpu 1": "gpu 0"}),
        ("gpu a,1 a,2", "gpu a,1", {}),  # MIG instances of the same GPU
        ("gpu a,1 a,2", "gpu a,1 a,2 a,3", {}),
        ("gpu a,1 a,2 b", "gpu a,2 a,1 b", {"gpu 0": "gpu 1", "gpu 1": "gpu 0"}),
    ],
)
def test_device_is_renumbered_if_its_files_have_other_numbers(
    before: str, now: str, expected: dict[str, str]
) -> None:
    def numbers(text: str) -> dict[str, list[str]]:
        name, *devices = text.split()
        return {f"{name} {number}": each.split(",") for number, each in enumerate(devices)}

    assert renumbered(numbers(before), numbers(now)) == expected


class Guard:
    """Stand-in for the guard: entries that give Pods access to devices in the kernel. The entries
    outlive agents."""

    def __init__(self) -> None:
        self.entries: set[Entry] = set()

    def known(self) -> set[Entry]:
        return set(self.entries)

    def change(self, less: Iterable[Entry], more: Iterable[Entry]) -> None:
        self.entries = self.entries.difference(less).union(more)

    def close(self, _: object) -> None:
        pass

    def put_on(self, *_: object) -> tuple[int, ...]:
        return ()


def write_list(gres: Path, devices: str, shards: int = 0) -> None:
    """Writes slurmd's list of the devices d0 to d9, in this order."""
    kinds = [("shard", shards, "SHARED")] if shards else []
    lines = (
        f"slurmd: Gres Name={name} Type=(null) Count={count} ID=7 File=/dev/d{each} Flags={flags}\n"
        for each in devices
        for name, count, flags in (*kinds, ("gpu", 1, "HAS_FILE"))
    )
    new = gres.with_suffix(".new")
    new.write_text("".join(lines))
    new.replace(gres)


class Machine:
    """A Node with plain files for cgroups, and with agents one after the other."""

    def __init__(self, folder: Path) -> None:
        self.root, self.gres = folder / "cgroup", folder / "gres"
        (self.root / "kubepods").mkdir(parents=True)
        self.guard: Any = Guard()
        self.claims = dict[str, Claim]()
        self.lists("012")
        self.restart()

    def lists(self, devices: str, shards: int = 0) -> None:
        write_list(self.gres, devices, shards)

    def restart(self) -> None:
        cgroups = PodCgroups(self.root)
        self.keeper, self._native = Keeper(self.gres, cgroups, self.guard), NativeJobs(cgroups)

    def pod(self, uid: str, *numbers: int, name: str = "gpu", runs: bool = True) -> None:
        self.claims[uid] = Claim(uid, f"ml/{uid}", {name: numbers} if numbers else {}, job=7)
        make_pod(self.root / "kubepods", uid, populated=runs)

    def ends(self, uid: str) -> None:
        make_pod(self.root / "kubepods", uid, populated=False)

    def looks(self, *, knows_pods: bool = True) -> Decision | None:
        self.keeper.read_devices()
        claims = self.claims if knows_pods else None
        return self.keeper.keep(claims, None, lambda: self._native.present(self.claims))

    def problems(self) -> Mapping[str, str]:
        """Makes the agent decide, and returns the problems of Pods."""
        decision = self.looks()
        assert decision is not None
        return decision.problems

    def has(self, uid: str) -> str:
        number = (self.root / f"kubepods/pod{uid}").stat().st_ino
        return "".join(sorted(str(e.number.minor) for e in self.guard.entries if e.cgroup == number))

    @property
    def words(self) -> str:
        return self.keeper.numbering.words


@pytest.fixture(autouse=True)
def devices_need_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered, "_look", look)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_pod_keeps_its_file_and_delays_the_next_pod(machine: Machine) -> None:
    machine.pod(A, 0)
    assert machine.problems() == {}
    machine.lists("102")
    machine.pod(B, 1, runs=False)
    machine.pod(C, 2, runs=False)
    for _ in range(2):
        problems = machine.problems()
        assert problems.keys() == {A, B}
        assert problems[A].startswith(MOVED)
        assert problems[B] == f"Pod ml/{A} has a device of its job"
        assert (machine.has(A), machine.has(B), machine.has(C)) == ("0", "", "2")
        assert machine.words == words(f"Pod ml/{A}", "gpu 1 (/dev/d0) was gpu 0")
    del machine.claims[A]  # a deletion by force
    assert machine.problems()[B] == "processes of a Pod that is gone have a device of its job"
    assert machine.words
    machine.ends(A)
    assert machine.problems() == {}
    assert (machine.has(A), machine.has(B), machine.words) == ("", "0", "")


def test_two_pods_that_would_swap_device_files_keep_them(machine: Machine) -> None:
    machine.pod(A, 0)
    machine.pod(B, 1)
    machine.looks()
    machine.lists("102")
    assert machine.problems().keys() == {A, B}
    assert (machine.has(A), machine.has(B)) == ("0", "1")
    assert machine.words == words(f"Pod ml/{A}, Pod ml/{B}")
    machine.ends(B)
    del machine.claims[B]
    assert machine.problems()[A].startswith(MOVED)
    assert machine.has(A) == "0"


def test_native_job_delays_pods_with_renumbered_devices(machine: Machine) -> None:
    """The agent does not know the devices of native jobs."""
    job = make_job(machine.root)
    make_job(machine.root, "job_7")  # the Pod's own job
    make_job(machine.root, "job_34", runs=False)
    machine.pod(A, 2)
    machine.looks()
    machine.lists("102")
    machine.pod(B, 1, runs=False)
    make_job(machine.root, "job_35")
    assert machine.problems() == {B: HELD}
    assert machine.words == words("job_33, job_35")
    assert (machine.has(A), machine.has(B)) == ("2", "")
    make_job(machine.root, "job_36")  # the devices of job_36 have the new numbers
    shutil.rmtree(machine.root / SCOPE / "job_35")
    assert machine.problems() == {B: HELD}
    assert machine.words == words("job_33")
    (job / EVENTS).write_text("populated 0\n")
    assert machine.problems() == {}
    assert (machine.has(B), machine.words) == ("0", "")


@pytest.mark.parametrize("while_away", [False, True])
def test_next_agent_knows_holders_from_before_the_renumbering(
    machine: Machine, *, while_away: bool
) -> None:
    job = make_job(machine.root)
    machine.pod(A, 0)
    machine.looks()
    machine.lists("102")
    if not while_away:
        machine.looks()
    machine.restart()
    other = make_job(machine.root, "job_34", runs=while_away)
    machine.pod(B, 0, runs=False)
    assert machine.looks(knows_pods=False) is None
    assert machine.words == ("" if while_away else words(f"Pod ml/{A}, job_33"))
    for _ in range(2):
        problems = machine.problems()
        assert problems[A].startswith(MOVED)
        assert problems[B] == HELD
        more = ", job_34" if while_away else ""  # the start of job_34 is unknown
        assert machine.words == words(f"Pod ml/{A}, job_33{more}")
        machine.restart()
    for each in (job, other):
        (each / EVENTS).write_text("populated 0\n")
    machine.ends(A)
    del machine.claims[A]
    assert machine.problems() == {}
    assert (machine.has(B), machine.words) == ("1", "")
    (job / EVENTS).write_text("populated 1\n")
    machine.restart()
    machine.looks(knows_pods=False)
    assert machine.words == ""


def test_next_agent_keeps_the_message_without_a_list(machine: Machine) -> None:
    """slurmd's Pod starts, and has not listed the devices yet."""
    make_job(machine.root)
    machine.pod(A, 0)
    machine.pod(B)
    machine.looks()
    machine.lists("102")
    machine.looks()
    machine.restart()
    machine.gres.unlink()
    machine.keeper.read_devices(list_may_come=True)
    assert machine.keeper.keep(machine.claims) is None
    assert machine.words == words(f"Pod ml/{A}, job_33")


def test_return_to_the_earlier_numbers_ends_the_problem(machine: Machine) -> None:
    machine.pod(A, 0)
    machine.looks()
    machine.lists("102")
    machine.looks()
    make_job(machine.root)
    machine.pod(B, 2)
    assert machine.problems().keys() == {A}
    machine.lists("012")
    assert machine.problems() == {}
    between = "gpu 0 (/dev/d0) was gpu 1, gpu 1 (/dev/d1) was gpu 0"
    assert machine.words == words("job_33", between)
    shutil.rmtree(machine.root / SCOPE)
    machine.looks()
    assert machine.words == ""


def test_second_renumbering_is_compared_with_the_holders_numbers(machine: Machine) -> None:
    machine.pod(A, 0)
    machine.looks()
    for devices, number in (("102", 1), ("120", 2)):
        machine.lists(devices)
        machine.looks()
        assert machine.words == words(f"Pod ml/{A}", f"gpu {number} (/dev/d0) was gpu 0")


def test_pod_without_a_renumbered_device_is_no_holder(machine: Machine) -> None:
    machine.pod(A, 2)
    machine.pod(B)
    machine.looks()
    machine.lists("102")
    assert machine.problems() == {}
    assert (machine.words, machine.has(A)) == ("", "2")


def test_slurmds_pod_is_no_holder(machine: Machine) -> None:
    """slurmd's Pod has access to all devices, for native jobs."""
    machine.pod(A)
    machine.claims[A] = Claim(A, "slurm-nodes/slurmd-n1", slurmd=True)
    for devices in ("012", "102"):
        machine.lists(devices)
        for _ in range(2):
            assert machine.problems() == {}
        assert (machine.words, machine.has(A)) == ("", "012")


def test_restarted_pod_gets_the_devices_of_the_new_numbers(machine: Machine) -> None:
    """The kubelet has created another sandbox for the Pod, so no process has opened devices by the old
    numbers."""
    machine.pod(A, 0)
    machine.looks()
    machine.lists("102")
    assert machine.problems().keys() == {A}
    machine.ends(A)
    assert machine.problems() == {}
    machine.pod(A, 0)
    assert machine.problems() == {}
    assert (machine.has(A), machine.words) == ("1", "")


def test_part_of_a_renumbered_device_is_not_given(machine: Machine) -> None:
    """Slurm could give parts of a device to one job by the old number, and to another job by the new
    number."""
    machine.lists("012", shards=4)
    machine.pod(A, 0, name="shard")
    machine.looks()
    machine.lists("102", shards=4)
    machine.pod(B, 1, name="shard", runs=False)
    machine.pod(C, 0, name="shard", runs=False)
    assert machine.problems()[B] == HELD
    assert (machine.has(A), machine.has(B), machine.has(C)) == ("0", "", "1")


def test_first_list_is_compared_with_no_other(machine: Machine) -> None:
    make_job(machine.root)
    machine.pod(A, 0)
    assert machine.problems() == {}
    assert (machine.words, machine.has(A)) == ("", "0")


def test_state_that_cannot_be_read_is_replaced(machine: Machine) -> None:
    file = machine.gres.with_name(FILE)
    file.write_text("{}")
    machine.restart()
    machine.looks()
    assert '"gpu 2"' in file.read_text()


def test_state_that_cannot_be_written_is_reported(machine: Machine) -> None:
    blocks = machine.gres.with_name(f"{FILE}.new")
    blocks.mkdir()
    machine.pod(A, 0)
    machine.looks()
    assert "Is a directory" in machine.keeper.numbering.problem
    machine.lists("102")
    machine.looks()
    assert machine.words
    blocks.rmdir()
    machine.looks()
    assert machine.keeper.numbering.problem == ""
    machine.restart()
    machine.looks(knows_pods=False)
    assert machine.words


def test_message_names_few_holders(machine: Machine) -> None:
    for number in range(71, 78):
        make_job(machine.root, f"job_{number}")
    machine.looks()
    machine.lists("102")
    machine.looks()
    assert machine.words == words("job_71, job_72, job_73, job_74, job_75 and 2 more")


async def test_condition_lasts_until_the_earlier_holders_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (agent_module, device_health):
        monkeypatch.setattr(module, "_LOOK_S", 0.05)
    plain, gres = PlainNode(tmp_path), tmp_path / "gres"
    plain.guard = Guard()
    write_list(gres, "012")
    job = make_job(plain.root)
    plain.bind(D, "0")
    message = f"slurmd has renumbered devices under jobs: {words('job_33')}"
    async with plain.agent() as agent:
        await plain.reports(Condition.of({}, []))
        write_list(gres, "102")
        await plain.reports(Condition(True, "Renumbered", message))
        assert agent.health.problems()["numbers of devices"] == words("job_33")
        assert agent.health.ready
    plain.kubernetes.put("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {}})

    async def condition() -> Condition | None:
        return Condition.on(await plain.kubernetes.read_node("n1"))

    async with plain.agent() as agent:
        first = await until(condition, "a condition", holds=lambda found: found is not None)
        assert first == Condition(True, "Renumbered", message)
        (job / EVENTS).write_text("populated 0\n")
        await plain.reports(Condition.of({}, []))
        await until(lambda: "numbers of devices" not in agent.health.problems())


def test_remove_deletes_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubepods").mkdir()
    file = tmp_path / FILE
    file.touch()
    for name, value in (("NODE", "n1"), ("GRES", tmp_path / "gres"), ("CGROUPS", tmp_path)):
        monkeypatch.setenv(f"NODE_AGENT_{name}", str(value))

    async def withdraw(_: Settings) -> None:
        pass

    monkeypatch.setattr(app, "DeviceGuard", lambda _: SimpleNamespace(remove=list))
    monkeypatch.setattr(app, "_withdraw", withdraw)
    assert (app.remove(), app.remove()) == (0, 0)
    assert not file.exists()
