"""Tests of the chart's MariaDB and slurmdbd, with their images: accounting records survive restarts, and
a dump restores the records."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.images.archive import Archive
from deploy.images.builder import Builder, Choice
from deploy.images.image import image
from deploy.local.progress import silent
from deploy.local.spec import DEFAULT_RELEASE
from tests.eventually import eventually
from tests.slurm_chart.pods import Pod, machine, secret
from tests.slurm_chart.rendering import rendered
from tests.slurm_chart.slurm import SLURM_UID, Slurm, tree

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]
MYSQL_UID = 64032


@dataclass
class Database:
    """MariaDB, the CronJob that dumps the database, slurmdbd, and a slurmctld."""

    slurm: Slurm
    mariadb: Pod
    backup: Pod
    slurmdbd: Pod

    def start(self) -> None:
        self.mariadb.start("mariadb")
        eventually(
            lambda: "ready for connections" in self.mariadb.log.read_text(), "MariaDB serves", 120
        )
        self.slurmdbd.init("configure")
        self.start_slurmdbd()

    def start_slurmdbd(self) -> None:
        self.slurmdbd.start("slurmdbd")
        if self.slurm.controllers[0].running is None:
            self.slurm.start()
        eventually(lambda: "root" in self.accounts(), "slurmdbd serves", 120)

    def stop(self) -> None:
        self.slurmdbd.kill("slurmdbd")
        self.mariadb.kill("mariadbd")
        self.mariadb.log.unlink()

    def accounts(self) -> str:
        """Returns sacctmgr's list of accounts, from the container of slurmctld."""
        return self.slurm.ask(*ASK)

    def add(self, account: str) -> None:
        assert account in self.slurm.ask("sacctmgr", "-i", "add", "account", account)


ASK = ("sacctmgr", "--noheader", "--parsable2", "show", "account", "format=Account")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    with Builder(silent) as builder:
        for name in ("slurmdbd", "mariadb"):
            found[name] = tmp_path_factory.mktemp("images") / name
            found[name].mkdir()
            Archive(builder.built(image(name), Choice()).archive).unpack(found[name])
    return found


@pytest.fixture
def database(trees: dict[str, Path], tmp_path: Path) -> Iterator[Database]:
    chart = rendered({})
    password = secrets.token_hex(32).encode()
    config = tmp_path / "config"
    config.mkdir()
    for name, kind in (("slurmdbd.conf", "slurmdbd-config"), ("mariadb.cnf", "mariadb")):
        (config / name).write_text(chart.find("ConfigMap", kind)["data"][name])
    with machine(tmp_path, tree(DEFAULT_RELEASE)) as where:
        slurm = Slurm(where, chart)
        of_mysql = secret(tmp_path / "mysql-password", MYSQL_UID, {"password": password})
        mariadb = Pod.of(
            where, chart, ("StatefulSet", "mariadb"), "mariadb", options=config, database=of_mysql
        )
        backup = Pod.of(where, chart, ("CronJob", "mariadb-backup"), "backup", database=of_mysql)
        mariadb.tree = backup.tree = trees["mariadb"]
        slurmdbd = Pod.of(
            where,
            chart,
            ("Deployment", "slurmdbd"),
            "slurmdbd",
            wanted=config,
            database=secret(tmp_path / "slurm-password", SLURM_UID, {"password": password}),
            keys=secret(tmp_path / "keys", SLURM_UID, slurm.keys),
        )
        slurmdbd.tree = trees["slurmdbd"]
        yield Database(slurm, mariadb, backup, slurmdbd)


def test_records_survive_a_restart_and_are_restored_from_a_dump(database: Database) -> None:
    database.start()
    database.add("before")
    database.stop()  # both programs end by SIGKILL
    database.start()
    assert "before" in database.accounts()
    database.backup.init("mariadb-backup")
    database.add("after")
    assert "after" in database.accounts()
    database.slurmdbd.kill("slurmdbd")
    said = database.backup.run("mariadb-backup", "database-restore", *_arguments(database))
    assert "restored" in said
    database.start_slurmdbd()
    assert "before" in database.accounts()
    assert "after" not in database.accounts()


def test_a_lost_volume_is_restored_from_a_dump_while_slurmctld_runs(database: Database) -> None:
    """The test does what docs/tasks/slurm-chart.md says about a lost volume: delete the claim, upgrade
    the release, and restore the dump."""
    database.start()
    database.add("before")
    database.backup.init("mariadb-backup")
    database.add("after")
    database.stop()
    volume = database.mariadb.volume("data")
    for entry in volume.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    database.start()  # the upgrade has created an empty volume
    assert "before" not in database.accounts()
    database.slurmdbd.kill("slurmdbd")
    assert "restored" in database.backup.run("mariadb-backup", "database-restore", *_arguments(database))
    database.start_slurmdbd()
    assert "before" in database.accounts()
    assert "after" not in database.accounts()
    database.slurm.controllers[0].kill("slurmctld")
    database.slurm.start()


def test_the_values_limit_the_number_of_dumps(database: Database) -> None:
    database.start()
    folder = database.backup.volume("backup")
    for day in range(10):
        (folder / f"slurm_acct_db-2026010{day}T000000Z.sql.gz").write_text("")
    database.backup.init("mariadb-backup")
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == 7
    assert kept[0] == "slurm_acct_db-20260104T000000Z.sql.gz"
    database.mariadb.kill("mariadbd")
    with pytest.raises(AssertionError):
        database.backup.run("mariadb-backup", "database-dump", *_arguments(database))
    assert sorted(path.name for path in folder.glob("*.sql.gz")) == kept


def _arguments(database: Database) -> list[str]:
    arguments: list[str] = database.backup.spec["containers"][0]["args"]
    return arguments
