"""Tests of the guard of devices in the kernel."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from node_agent.kernel import bpf
from node_agent.kernel.device_guard import DeviceGuard, known_in, number_of
from tests.cgroup_tree import Tree, make_devices, mounted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Opens = Callable[[str], str]

pytestmark = pytest.mark.real

ONE, OTHER = "kubepods/podA", "kubepods/besteffort/podB"
CONTAINERS = (f"{ONE}/c1", f"{OTHER}/c2")
X, Y = (60, 0), (60, 1)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A Guaranteed Pod and another Pod, with a container each, and a daemon of the host."""
    with mounted(tmp_path) as found:
        found.make(*CONTAINERS, "system.slice")
        yield found


def install(tree: Tree) -> DeviceGuard:
    guard = DeviceGuard(tree.bpf)
    guard.put_on(tree.root / "kubepods", 2)
    return guard


@pytest.fixture
def guard(tree: Tree) -> DeviceGuard:
    installed = install(tree)
    installed.close([X, Y])
    return installed


def let_in(tree: Tree, guard: DeviceGuard, pod: str, *devices: tuple[int, int]) -> None:
    cgroup = number_of(tree.root / pod)
    known = {entry for entry in guard.known() if entry[0] == cgroup}
    wanted = {(cgroup, device, False) for device in devices}
    guard.change(known - wanted, wanted - known)


@pytest.fixture
def has(tree: Tree, tmp_path: Path) -> Opens:
    """Returns the names of the devices that a process in a cgroup may open."""
    devices = make_devices(tmp_path / "dev", "x", "y")
    return lambda cgroup: "".join(device[-1] for device in devices if tree.opens(cgroup, device))


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]) -> Iterator[None]:
    """Makes a call of the kernel fail, and expects the error."""

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(bpf, step, fail)
        with pytest.raises(error):
            yield


@pytest.mark.usefixtures("guard")
def test_pod_without_entries_opens_no_guarded_device(tree: Tree, has: Opens) -> None:
    for container in CONTAINERS:
        assert has(container) == ""
        assert tree.opens(container, "/dev/null")
    assert has("system.slice") == "xy"  # this process is not in a Pod


def test_every_pod_opens_unguarded_devices(tree: Tree, has: Opens) -> None:
    install(tree)
    assert has(CONTAINERS[0]) == "xy"


def test_pod_opens_the_devices_of_its_entries(tree: Tree, guard: DeviceGuard, has: Opens) -> None:
    let_in(tree, guard, ONE, X)
    let_in(tree, guard, OTHER, Y)
    assert (has(CONTAINERS[0]), has(CONTAINERS[1])) == ("x", "y")
    let_in(tree, guard, ONE, Y, X)
    let_in(tree, guard, OTHER)
    assert (has(CONTAINERS[0]), has(CONTAINERS[1])) == ("xy", "")


def test_entries_apply_in_nested_cgroups_of_a_pod(tree: Tree, guard: DeviceGuard, has: Opens) -> None:
    let_in(tree, guard, ONE, X)
    tree.make(f"{ONE}/c1/own/deeper", f"{OTHER}/c2/own")
    assert has(f"{ONE}/c1/own/deeper") == "x"
    assert has(f"{OTHER}/c2/own") == ""


def test_created_device_file_opens_no_other_device(
    tree: Tree, guard: DeviceGuard, tmp_path: Path
) -> None:
    """A container runtime creates the files of all devices for a privileged Pod, and would fail if the
    guard denied the creation."""
    let_in(tree, guard, ONE, X)
    for name, device in (("mine", X), ("foreign", Y)):
        assert tree.makes(CONTAINERS[0], tmp_path / name, *device)
    assert tree.opens(CONTAINERS[0], tmp_path / "mine")
    assert not tree.opens(CONTAINERS[0], tmp_path / "foreign")


def test_recreated_pod_cgroup_has_no_entries(tree: Tree, guard: DeviceGuard, has: Opens) -> None:
    let_in(tree, guard, ONE, X)
    (tree.root / CONTAINERS[0]).rmdir()
    (tree.root / ONE).rmdir()
    tree.make(CONTAINERS[0])
    assert has(CONTAINERS[0]) == ""


def test_guard_outlives_the_agent(tree: Tree, guard: DeviceGuard, has: Opens) -> None:
    let_in(tree, guard, ONE, X)
    del guard
    assert (has(CONTAINERS[0]), has(CONTAINERS[1])) == ("x", "")
    again = install(tree)
    assert again.known() == {(number_of(tree.root / ONE), X, False)}
    assert (has(CONTAINERS[0]), has(CONTAINERS[1])) == ("x", "")
    let_in(tree, again, OTHER, Y)
    assert has(CONTAINERS[1]) == "y"


@pytest.mark.usefixtures("guard")
def test_one_program_is_attached_after_several_starts(tree: Tree, has: Opens) -> None:
    for _ in range(3):
        install(tree)
    (program,) = tree.bpf.glob("program*")
    assert has(CONTAINERS[0]) == ""
    bpf.detach(bpf.pinned(program), tree.root / "kubepods")
    assert has(CONTAINERS[0]) == "xy"


@pytest.mark.parametrize("step", ["attach", "detach"])
def test_killed_start_leaves_no_second_program(
    tree: Tree, guard: DeviceGuard, has: Opens, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in(tree, guard, ONE, X)
    with failing(monkeypatch, step, SystemExit):
        install(tree)
    assert has(CONTAINERS[0]) == "x"
    install(tree)
    (program,) = tree.bpf.glob("program*")
    bpf.detach(bpf.pinned(program), tree.root / "kubepods")
    assert has(CONTAINERS[1]) == "xy"


def test_guard_can_be_removed(tree: Tree, guard: DeviceGuard, has: Opens) -> None:
    let_in(tree, guard, ONE, X)
    guard.remove([tree.root / "kubepods"])
    assert (has(CONTAINERS[0]), has(CONTAINERS[1])) == ("xy", "xy")
    assert not tree.bpf.exists()
    again = install(tree)
    assert again.known() == set()
    assert has(CONTAINERS[1]) == "xy"


_INSTALL = """
import sys
from pathlib import Path
from node_agent.kernel.device_guard import DeviceGuard
guard = DeviceGuard(Path(sys.argv[2]))
guard.put_on(Path(sys.argv[1]), 2)
guard.close([(60, 0)])
guard.change(set(), {(7, (60, 0), False)})
"""


@pytest.mark.parametrize(
    ("capabilities", "works"), [("+bpf,+net_admin", True), ("+bpf", False), ("+net_admin", False)]
)
def test_guard_needs_exactly_two_capabilities(tree: Tree, capabilities: str, works: bool) -> None:
    bound = ["setpriv", f"--bounding-set=-all,{capabilities}", "--inh-caps=-all"]
    argv = [*bound, sys.executable, "-c", _INSTALL, str(tree.root / "kubepods"), str(tree.bpf)]
    for _ in range(2):  # the second run replaces the first program
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is works, done.stderr


def test_error_of_a_rejected_program_has_the_kernels_message() -> None:
    with pytest.raises(OSError, match=r"bpf PROG_LOAD: .*R0"):
        bpf.load("wrong", [bytes.fromhex("9500000000000000")])


def test_a_map_that_is_full_is_an_error(tree: Tree) -> None:
    tree.bpf.mkdir()
    few = bpf.Map.kept(tree.bpf / "few", 4, 1, 2)
    few.put(b"aaaa", b"1")
    few.put(b"bbbb", b"1")
    with pytest.raises(OSError, match="Argument list too long"):
        few.put(b"cccc", b"1")
    few.remove(b"aaaa")
    few.remove(b"aaaa")
    assert few.entries().keys() == {b"bbbb"}
    assert [place.name for place in tree.bpf.iterdir()] == ["few"]


def test_reading_the_known_entries_creates_no_map(tree: Tree) -> None:
    """If the read created an empty map, the next agent would take this map for the guard's map."""
    assert known_in(tree.bpf) == set()
    assert not tree.bpf.exists()
    guard = install(tree)
    entries = {(7, X, False), (8, X, True), (9, Y, True)}
    guard.change(set(), entries)
    assert guard.known() == known_in(tree.bpf) == entries
    (tree.bpf / "let_in").unlink()
    assert known_in(tree.bpf) == set()
    assert not (tree.bpf / "let_in").exists()


@pytest.mark.parametrize("step", ["attach", "detach"])
def test_error_delays_a_new_program(tree: Tree, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guard, pods = install(tree), tree.root / "kubepods"
    for file in tree.bpf.iterdir():
        file.unlink()
    with failing(monkeypatch, step, OSError):
        guard.put_on(pods, 2)
    guard.put_on(pods, 2)
    (program,) = tree.bpf.glob("program*")
    assert bpf.attached(pods) == (bpf.id_of(bpf.pinned(program)),)


@pytest.mark.usefixtures("guard")
def test_error_delays_the_end_of_a_former_program(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    again, pods = DeviceGuard(tree.bpf), tree.root / "kubepods"
    with failing(monkeypatch, "detach", OSError):
        again.put_on(pods, 2)
    assert again.put_on(pods, 2) == ()
    assert len(list(tree.bpf.glob("program*"))) == len(bpf.attached(pods)) == 1


def test_check_of_the_guard_costs_one_kernel_call(
    tree: Tree, guard: DeviceGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    pods = tree.root / "kubepods"
    programs, in_force = list(tree.bpf.glob("program*")), bpf.attached

    def ask(cgroup: Path) -> tuple[int, ...]:
        asked.append(cgroup)
        return in_force(cgroup)

    monkeypatch.setattr(bpf, "attached", ask)
    assert guard.put_on(pods, 2) == ()
    assert asked == [pods]
    assert list(tree.bpf.glob("program*")) == programs


def test_other_device_programs_of_the_cgroup_are_reported(tree: Tree, guard: DeviceGuard) -> None:
    pods, other = tree.root / "kubepods", DeviceGuard(tree.bpf.with_name("other"))
    (first,) = bpf.attached(pods)
    assert other.put_on(pods, 2) == (first,)
    assert guard.put_on(pods, 2) == tuple(set(bpf.attached(pods)) - {first})
