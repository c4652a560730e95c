"""Tests of a lost volume `mariadb`: slurmdbd starts with a new database. Jobs continue to run, and the
new database records new jobs. test_database.py tests the restore of the old records from a dump."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.slurm.database import copy_system_tables
from deploy.local.spec import DEFAULT_RELEASE, ClusterSpec
from tests.eventually import eventually
from tests.slurm_chart.controller import Controller, parameters
from tests.slurm_chart.native_jobs import NativeJobs
from tests.slurm_programs import tree_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture
def controller() -> Iterator[Controller]:
    spec = ClusterSpec(
        nodes=1,
        kubernetes=False,
        extender=False,
        accounting=True,
        slurm_conf=parameters(DEFAULT_RELEASE),
    )
    with (
        tempfile.TemporaryDirectory(prefix="lost-database-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        made = Controller(cluster)
        made.restart()
        yield made


def test_jobs_keep_running_while_slurmdbd_starts_with_a_new_database(controller: Controller) -> None:
    cluster, native = controller.cluster, NativeJobs(controller.cluster, 0)
    job, folder = native.submit(), controller.volume / "database"
    eventually(lambda: "RUNNING" in native.books()[job], "sacct has it")
    with database_away(cluster):
        kept = folder.rename(folder.with_name("kept"))
        copy_system_tables(tree_of(cluster.spec.release), folder)
    eventually(lambda: not native.books(), "slurmdbd has a new database")
    assert native.queue()[job] == "RUNNING"
    cluster.kill("slurmctld")
    controller.start()
    new = native.submit(1)
    eventually(lambda: "COMPLETED" in native.books()[new], "sacct has what is new", 60)
    with database_away(cluster):
        shutil.rmtree(folder)
        kept.rename(folder)
    cluster.kill("slurmctld")
    controller.start()
    assert native.queue()[job] == "RUNNING"
    eventually(lambda: "RUNNING" in native.books()[job], "sacct has the old ones again")
    assert new not in native.books()


@contextmanager
def database_away(cluster: Cluster) -> Iterator[None]:
    for component in ("slurmdbd", "mariadbd"):
        cluster.stop(component, within_s=60)
    yield
    for component in ("mariadbd", "slurmdbd"):
        cluster.start(component)
