"""Tests of the search for Kubernetes' binaries on this machine: the chosen binaries must together make a
supported cluster."""

from pathlib import Path

import pytest

from deploy.local.programs import kubernetes_binaries
from deploy.local.programs.go_program import progress
from deploy.local.programs.kubernetes_binaries import (
    BINARIES,
    CONTROL_PLANE,
    Version,
    built_place,
    choose,
    find_binaries,
    needs_build,
)
from deploy.local.progress import silent
from deploy.local.spec import KUBERNETES_RELEASES


def plane(*minors: int) -> dict[str, Version]:
    return {name: (1, minor) for name, minor in zip(CONTROL_PLANE, minors, strict=False)}


def test_nothing_found_means_everything_is_built() -> None:
    assert choose({}) == set()


@pytest.mark.parametrize("minor", [31, 34, 37])
def test_a_whole_supported_set_is_used(minor: int) -> None:
    found = {**plane(minor, minor, minor), "etcd": (3, 5), "kubectl": (1, minor), "kwok": (0, 8)}
    assert choose(found) == set(BINARIES)


@pytest.mark.parametrize("minor", [30, 38])
def test_an_unsupported_control_plane_is_not_used(minor: int) -> None:
    assert choose({**plane(minor, minor, minor), "etcd": (3, 6)}) == {"etcd"}


def test_a_control_plane_of_two_versions_is_not_used() -> None:
    assert choose(plane(36, 36, 37)) == set()


def test_part_of_a_control_plane_is_used_only_in_the_built_version() -> None:
    assert choose({"kube-apiserver": (1, 37)}) == {"kube-apiserver"}
    assert choose({"kube-apiserver": (1, 36)}) == set()


def test_requested_release_uses_only_binaries_of_that_release() -> None:
    newest = {**plane(37, 37, 37), "etcd": (3, 7), "kubectl": (1, 37), "kwok": (0, 8)}
    assert choose(newest, "1.37") == set(BINARIES)
    assert choose(newest, "1.31") == {"etcd", "kwok"}
    assert choose({**plane(31, 31, 31), "kubectl": (1, 32)}, "1.31") == {*CONTROL_PLANE, "kubectl"}
    assert choose({"kube-scheduler": (1, 31)}, "1.31") == {"kube-scheduler"}


@pytest.mark.parametrize("release", KUBERNETES_RELEASES)
def test_missing_binaries_are_built_of_the_release_except_etcd_and_kwok(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kubernetes_binaries, "find_binaries", dict)
    assert needs_build(release)
    for each in KUBERNETES_RELEASES:
        built_place(each).mkdir(parents=True)
    assert not needs_build(release)
    found = kubernetes_binaries.kubernetes_binaries(release, silent)
    newest = built_place(KUBERNETES_RELEASES[0])
    assert {name: Path(path).parent for name, path in found.items()} == {
        name: newest if name in ("etcd", "kwok") else built_place(release) for name in BINARIES
    }


@pytest.mark.parametrize("release", KUBERNETES_RELEASES)
def test_build_folder_is_named_after_its_release(release: str) -> None:
    assert built_place(release).name.startswith(f"kubernetes-{release}.")


def test_kubectl_may_be_one_minor_away_from_the_control_plane() -> None:
    assert choose({"kubectl": (1, 36)}) == {"kubectl"}
    assert choose({"kubectl": (1, 32)}) == set()
    assert "kubectl" in choose({**plane(33, 33, 33), "kubectl": (1, 32)})


@pytest.mark.parametrize("found", [{"etcd": (3, 4)}, {"kwok": (0, 5)}, {"etcd": (4, 0)}])
def test_etcd_and_kwok_of_other_versions_are_not_used(found: dict[str, Version]) -> None:
    assert choose(found) == set()


def test_binaries_are_looked_for_in_kubebuilder_assets_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets, path = tmp_path / "assets", tmp_path / "path"
    for folder, version in ((assets, "3.6.8"), (path, "3.5.1")):
        folder.mkdir()
        (folder / "etcd").write_text(f"#!/bin/sh\necho etcd Version: {version}\n")
        (folder / "etcd").chmod(0o755)
    (path / "kwok").write_text("#!/bin/sh\nexit 1\n")
    (path / "kwok").chmod(0o755)
    monkeypatch.setenv("PATH", str(path))
    assert find_binaries() == {"etcd": (path / "etcd", (3, 5))}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert find_binaries() == {"etcd": (assets / "etcd", (3, 6))}


def test_progress_of_a_build_says_how_much_time_is_left() -> None:
    """After a minute, a quarter of the bytes is compiled, so the rest takes three more minutes. At the
    end, the linker takes a further minute."""
    sizes = {"small": 100, "large": 300}
    assert progress([], sizes, 10.0) == "compiled 0 of at most 2 packages"
    assert progress(["small\n"], sizes, 60.0) == "compiled 1 of at most 2 packages, about 3 min left"
    assert progress(["small\n", "large\n"], sizes, 240.0).endswith("about 1 min left")
