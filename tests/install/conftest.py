"""Fixtures: a single cluster for all tests. The control plane runs on the host, and the only Node is the
guest, a virtual machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.images.builder import Builder, Built, Choice
from deploy.images.image import SCHEDULER, image
from deploy.local.cluster import Cluster
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import Report
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.install.images import kubernetes_version
from tests.install.installation import Installation
from tests.install.reporting import reporter
from tests.node.boot import brought_up
from tests.slurmd_pods.world import POWER_SAVING

BEFORE = "0.0.9"
"""Version before the upgrade. The images of both versions have the same sources."""


class Images(NamedTuple):
    before: list[Built]
    now: list[Built]
    slurmd: Built
    scheduler: Built

    @property
    def all(self) -> list[Built]:
        return [*self.before, *self.now, self.slurmd, self.scheduler]


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Report:
    """Writes the progress to the terminal, because the tests take minutes."""
    return reporter(request.config)


@pytest.fixture(scope="session")
def images(report: Report) -> Images:
    now, before = Choice(), Choice(version=BEFORE)
    programs = [image(name) for name in ("extender", "node-agent")]
    with Builder(report) as builder:
        return Images(
            [builder.built(each, before) for each in programs],
            [builder.built(each, now) for each in programs],
            builder.built(image("slurmd"), now),
            builder.built(SCHEDULER, Choice(version=kubernetes_version(report))),
        )


@pytest.fixture(scope="session")
def installation(images: Images, report: Report) -> Iterator[Installation]:
    """The cluster before the installation of the chart. The Node already has the images."""
    spec = ClusterSpec(
        nodes=0,
        guest=True,
        guest_in_pool=True,
        in_pods=True,
        own_scheduler=True,
        guest_images=tuple(str(each.archive) for each in images.all),
        extender=False,
        memory_mb=4000,
        kill_wait=30,
        slurm_conf=("ReturnToService=2", *POWER_SAVING),
    )
    with tempfile.TemporaryDirectory(prefix="install-") as directory:
        up = partial(Cluster.up, spec, Path(directory), report=report)
        with brought_up(up, report) as cluster:
            made = Installation(cluster, helm(report), images.slurmd.reference)
            made.prepare()
            yield made


@pytest.fixture(scope="session")
def actors(installation: Installation) -> Iterator[Actors]:
    who = Actors(installation.cluster)
    yield who
    who.close()
