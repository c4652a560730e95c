"""Tests of the built images: equal sources give equal images, and each image is small and has no
forbidden contents."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.images.archive import Archive
from deploy.images.builder import Builder, Choice, project_version
from deploy.images.image import IMAGES, Image, image
from deploy.local.programs import debian
from deploy.local.progress import silent

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]

AT_MOST_MB = {
    "extender": 65,
    "node-agent": 55,
    "slurmd": 50,
    "slurmctld": 40,
    "slurmrestd": 30,
    "login": 63,
    "sssd": 35,
    "slurmdbd": 37,
    "mariadb": 41,
    "slurm-cluster": 80,
}
"""By image: maximum compressed size in MB. The maximum is about a tenth more than the present size."""
SAY = {
    "extender": (["slurm-extender", "--help"], "slurm-extender"),
    "node-agent": (["node-agent", "--help"], "node-agent"),
    "slurmd": (["slurmd", "-V"], "slurm-wlm 26.05."),
    "slurmctld": (["slurmctld", "-V"], "slurm-wlm 26.05."),
    "slurmrestd": (["slurmrestd", "-V"], "slurm-wlm 26.05."),
    "slurm-cluster": (["slurm-cluster", "--help"], "slurm-cluster"),
    "login": (["bash", "-c", "command -v sbatch"], "/usr/bin/sbatch"),
    "sssd": (["sssd", "--version"], "2.10."),
    "slurmdbd": (["sh", "-c", "command -v slurmdbd"], "/usr/sbin/slurmdbd"),
    "mariadb": (["mariadbd", "--version"], "-MariaDB"),
}
"""By image: a command, and a required part of the command's output."""


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    with Builder(silent) as opened:
        yield opened


@pytest.fixture(params=IMAGES, ids=lambda each: each.name)
def built(request: pytest.FixtureRequest, builder: Builder) -> tuple[Image, Archive]:
    """Each image with the archive of the image. The archive is from the cache, if the cache has the
    archive."""
    return request.param, Archive(builder.built(request.param, Choice()).archive)


def registries() -> list[str]:
    """Returns the hosts of the package registries that this machine uses."""
    configured = [line.split()[1] for line in debian.sources("trixie")]
    configured += [os.environ[name] for name in ("PIP_INDEX_URL", "UV_INDEX_URL") if name in os.environ]
    return [host for host in map(hostname, configured) if host]


def hostname(url: str) -> str:
    return urlsplit(url).hostname or ""


def run_in(root: Path, user: str, *command: str) -> str:
    """Runs a command as the image's user, with the files of the image as the root folder. Returns the
    output."""
    inside = ["chroot", f"--userspec={user}", str(root), *command]
    path = "/opt/slurm-extender/bin:/usr/sbin:/usr/bin"
    done = subprocess.run(
        inside, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_same_sources_make_the_same_image(tmp_path: Path) -> None:
    digests = set()
    for name in ("first.tar", "second.tar"):
        with Builder(silent) as builder:  # each builder has its own storage
            digests.add(builder.build(image("extender"), Choice(), tmp_path / name).digest)
    assert len(digests) == 1


def test_image_has_no_forbidden_contents(built: tuple[Image, Archive]) -> None:
    _, archive = built
    assert archive.problems(registries()) == []


def test_an_image_is_small(built: tuple[Image, Archive]) -> None:
    which, archive = built
    assert archive.size < AT_MOST_MB[which.name] * 1e6


def test_program_of_an_image_runs_as_its_user(built: tuple[Image, Archive], tmp_path: Path) -> None:
    which, archive = built
    root = tmp_path / "root"  # other users can read this folder
    root.mkdir()
    archive.unpack(root)
    command, words = SAY[which.name]
    assert words in run_in(root, archive.user, *command)
    assert archive.config["config"]["Labels"]["org.opencontainers.image.version"] == project_version()
    if which.name == "extender":
        uid = run_in(root, archive.user, "python3", "-c", "import os; print(os.getuid(), os.getgid())")
        assert uid.split() == ["65532", "65532"]
