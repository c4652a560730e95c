"""Tests of the paths of Pods' cgroups, by the kubelet's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node_agent.pods.cgroups import PodCgroups, depth

if TYPE_CHECKING:
    from pathlib import Path

UID = "0f5cbb08-9b1c-4f33-a4a7-0c8e3f1f5d1a"
STATIC = "c70ec165edcd57eafdfe2a7ab4bdffe9"
PODS = {
    f"kubepods/pod{UID}": UID,
    f"kubepods/besteffort/pod{UID}": UID,
    f"kubepods/burstable/pod{STATIC}": STATIC,
    f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice": UID,
    f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice": UID,
    f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{STATIC}.slice": STATIC,
}


def make(root: Path, cgroup: str, populated: int = 0) -> None:
    """Makes the files of a cgroup that the agent reads."""
    (root / cgroup).mkdir(parents=True, exist_ok=True)
    for place in (root / cgroup, *(root / cgroup).parents):
        (place / "cgroup.procs").touch()
        if place == root:
            break
        (place / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")


@pytest.mark.parametrize("cgroup", PODS)
def test_a_pod_is_found_by_its_uid(tmp_path: Path, cgroup: str) -> None:
    make(tmp_path, f"{cgroup}/container", populated=1)
    (found,) = PodCgroups(tmp_path).pods()
    assert (found.uid, found.number) == (PODS[cgroup], (tmp_path / cgroup).stat().st_ino)
    assert found.populated


def test_other_cgroups_are_no_pods(tmp_path: Path) -> None:
    for name in ("kubepods/podinfo", "kubepods/burstable/x", f"kubepods/pod{UID}x", "system.slice/pod1"):
        make(tmp_path, name)
    assert list(PodCgroups(tmp_path).pods()) == []


def test_pods_below_a_configured_cgroup_root_are_found(tmp_path: Path) -> None:
    root = "kubelet.slice/kubelet-kubepods.slice"
    burstable = "kubelet-kubepods-burstable"
    make(tmp_path, f"{root}/{burstable}.slice/{burstable}-pod{UID.replace('-', '_')}.slice")
    (found,) = PodCgroups(tmp_path, [root]).pods()
    assert (found.uid, found.populated) == (UID, False)
    assert depth(tmp_path / root) == 2


def test_pod_removed_during_the_read_is_skipped(tmp_path: Path) -> None:
    make(tmp_path, f"kubepods/pod{UID}")
    make(tmp_path, f"kubepods/pod{STATIC}")
    (tmp_path / f"kubepods/pod{UID}/cgroup.events").unlink()
    assert [found.uid for found in PodCgroups(tmp_path).pods()] == [STATIC]


def test_missing_cgroup_of_pods_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no cgroup .*/kubepods or .*/kubepods\.slice"):
        PodCgroups(tmp_path).roots()


def test_partly_mounted_cgroup_hierarchy_is_an_error(tmp_path: Path) -> None:
    """A container may mount only its own part of the cgroups, but the kernel counts the depth from the
    root."""
    make(tmp_path, "kubepods")
    (tmp_path / "cgroup.events").touch()
    with pytest.raises(OSError, match="not all of the machine's cgroups are mounted here"):
        depth(tmp_path / "kubepods")
