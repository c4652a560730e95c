"""Tests with Slurm of both releases and the rendered configuration: slurmctld accepts the configuration,
and slurm-extender's preflight finds no problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.chart import Values
from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEBIAN_SUITES
from tests.eventually import eventually
from tests.slurm_chart.matrix import BACKUP, CONFIG, SCRIPTS, merged
from tests.slurm_chart.pods import ADDRESSES, Machine, machine
from tests.slurm_chart.rendering import rendered
from tests.slurm_chart.slurm import Slurm, tree

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
NO_ACCOUNTING: Values = {"accounting": {"enabled": False}}
NAMES = ("slurm-extender-gate", "10-mounts", "10-clean", "20-health", "on-start", "on-end")
NAME = "written-down"
OF_SLURM = {
    *("slurm-api", "token", "token-rights", "job-ids", "kill-wait", "preempt-type"),
    *("scheduler-parameters", "timeouts", "partitions", "cgroups", "hooks", "prolog"),
}
SEEN = {"26.05": OF_SLURM - {"cgroups", "hooks"}, "24.11": {"token", "token-rights"}}
"""By release: the checks of preflight for which slurmrestd reports enough, so these checks must pass.
slurmrestd never reports cgroup.conf, and reports slurm.conf only since 26.05. 24.11 has no external
jobs, and reports no default partition."""


@pytest.fixture(scope="module", params=DEBIAN_SUITES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def slurm(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm with the chart's default values, but without accounting. slurmctld already serves."""
    with machine(tmp_path_factory.mktemp("defaults"), tree(release)) as made:
        found = Slurm(made, rendered(merged(NO_ACCOUNTING, {"slurmRelease": release})))
        found.start()
        yield found


@pytest.fixture
def where(release: str, tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path, tree(release)) as made:
        yield made


def loud(said: str) -> list[str]:
    """Returns the lines with slurmctld's errors, except errors about state files that a new cluster does
    not have yet."""
    known = (
        "High latency",
        "state file",
        "Could not open",
        "No last",
        "Trying backup",
        "recover",
        "last_config_lite",
        "Unable to set keepalive",  # slurmctld 24.11 sometimes logs this, with any configuration
    )
    lines = [line for line in said.splitlines() if "error:" in line or "fatal:" in line]
    return [line for line in lines if not any(word in line for word in known)]


def config_of(slurm: Slurm) -> dict[str, str]:
    """Returns the settings of `scontrol show config`."""
    shown = slurm.ask("scontrol", "show", "config").splitlines()
    settings = dict(line.split("=", 1) for line in shown if "=" in line)
    return {key.strip().rstrip("[0]"): value.strip() for key, value in settings.items()}


def test_slurmctld_takes_the_default_configuration(slurm: Slurm) -> None:
    assert loud(slurm.said()) == []
    config = config_of(slurm)
    assert config["StateSaveLocation"] == "/var/spool/slurmctld/state"
    assert config["KillWait"] == "40 sec"
    assert "main" in slurm.ask("sinfo", "-h")


def test_slurmctld_takes_a_configuration_and_scripts(release: str, where: Machine) -> None:
    values = merged(merged(CONFIG, SCRIPTS), NO_ACCOUNTING)
    slurm = Slurm(where, rendered(merged(values, {"slurmRelease": release})))
    slurm.start()
    assert loud(slurm.said()) == []
    assert config_of(slurm)["KillWait"] == "44 sec"
    shown = slurm.ask("scontrol", "show", "config")
    assert [name for name in NAMES if name not in shown] == []
    assert slurm.ask("scontrol", "reconfigure") == ""
    eventually(lambda: "is UP" in slurm.ask("scontrol", "ping"), "slurmctld serves again", 60)


def test_slurm_extenders_preflight_finds_nothing_wrong(
    release: str, slurm: Slurm, tmp_path: Path
) -> None:
    slurm.start_rest()
    found = preflight(slurm, tmp_path / "token.jwt")
    assert not OF_SLURM - found.keys()
    verdicts = {name: each["verdict"] for name, each in found.items() if name in OF_SLURM}
    allowed = {"PASS", "SKIPPED"} if release == "26.05" else {"PASS", "SKIPPED", "WARN"}
    assert set(verdicts.values()) <= allowed, {name: found[name] for name in OF_SLURM}
    assert {name for name in SEEN[release] if verdicts[name] != "PASS"} == set(), found


def preflight(slurm: Slurm, token: Path) -> dict[str, dict[str, Any]]:
    """Runs `slurm-extender preflight`. Returns the results by check."""
    token.write_text(slurm.token())
    environment = {
        **os.environ,
        "SLURM_EXTENDER_SLURMRESTD_URL": f"http://{ADDRESSES['slurmrestd']}:6820",
        "SLURM_EXTENDER_SLURM_TOKEN_FILE": str(token),
        "SLURM_EXTENDER_KUBECONFIG": str(token.with_name("none")),
        "PYTHONPATH": str(CHECKOUT),
    }

    def see() -> dict[str, dict[str, Any]]:
        command = (sys.executable, "-m", "extender", "preflight", "--output", "json")
        done = subprocess.run(
            slurm.machine.enter(*command), env=environment, capture_output=True, text=True, check=False
        )
        told = json.loads(done.stdout) if done.stdout else pytest.fail(done.stderr)
        found = {each["check"]: each for each in told["results"]}
        return found if found["slurm-api"]["verdict"] != "FAIL" else {}

    found: dict[str, dict[str, Any]] = eventually(see, "slurmrestd answers", 60)
    return found


def test_state_outlives_slurmctld(slurm: Slurm) -> None:
    submitted = held_job(slurm)
    slurm.controllers[0].kill("slurmctld")
    slurm.start()
    assert submitted in slurm.ask("squeue", "-h", "-o", "%i")


def held_job(slurm: Slurm) -> str:
    """Submits a held job. Waits until slurmctld has saved the job (slurmctld saves every 5 s), and
    returns the job's id."""
    job = ("sbatch", "--parsable", "--hold", "-n1", f"--job-name={NAME}", "--wrap=true")
    submitted = slurm.controllers[0].run("slurmctld", *job).strip()
    state = slurm.machine.folder / "state/state/job_state"
    eventually(
        lambda: state.exists() and NAME.encode() in state.read_bytes(), "the job is in the state", 60
    )
    return submitted


@pytest.mark.one_release("tests/slurm_cluster/test_standby.py takes over on each release")
def test_a_backup_takes_over_and_the_first_slurmctld_takes_it_back(release: str, where: Machine) -> None:
    own = {"CommunicationParameters": ["NoCtldInAddrAny"], "SlurmctldTimeout": 10}
    values = merged(merged(BACKUP, NO_ACCOUNTING), {"slurmRelease": release, "config": {"slurm": own}})
    slurm = Slurm(where, rendered(values))
    slurm.start()
    first, second = slurm.controllers
    job = held_job(slurm)
    eventually(lambda: "background mode" in second.log.read_text(), "the second one waits", 60)
    first.kill("slurmctld")
    eventually(
        lambda: "Running as primary controller" in second.log.read_text(), "the second one leads", 90
    )
    assert job in second.run("slurmctld", "squeue", "-h", "-o", "%i")
    first.start("slurmctld")
    eventually(lambda: "slurmctld-0 is UP" in up(slurm), "the first one leads again", 90)
    assert job in first.run("slurmctld", "squeue", "-h", "-o", "%i")


def up(slurm: Slurm) -> str:
    """Returns the output of `scontrol ping`, such as "(primary) at slurmctld-0 is UP"."""
    return slurm.ask("scontrol", "ping")
