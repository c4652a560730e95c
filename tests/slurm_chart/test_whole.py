"""Tests of slurmctld together with the container `configure`, which writes slurmctld's configuration in
the chart's StatefulSet."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.images.archive import Archive
from deploy.images.builder import Builder, Choice
from deploy.images.image import image
from deploy.local.chart import Values
from deploy.local.progress import silent
from deploy.local.spec import DEFAULT_RELEASE
from tests.eventually import eventually
from tests.slurm_chart.pods import Pod, machine, secret
from tests.slurm_chart.rendering import files, rendered, write
from tests.slurm_chart.slurm import SLURM_UID, tree

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]
NO_ACCOUNTING: Values = {"accounting": {"enabled": False}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the image slurm-cluster, in a folder."""
    folder = tmp_path_factory.mktemp("image")
    with Builder(silent) as builder:
        Archive(builder.built(image("slurm-cluster"), Choice()).archive).unpack(folder)
    return folder


@pytest.fixture
def controller(program: Path, tmp_path: Path) -> Iterator[Pod]:
    chart = rendered(NO_ACCOUNTING)
    wanted = tmp_path / "wanted"
    write(wanted, files(chart))
    keys = {name: secrets.token_bytes(64) for name in ("slurm.key", "jwt_hs256.key")}
    with machine(tmp_path, tree(DEFAULT_RELEASE)) as where:
        pod = Pod.of(
            where,
            chart,
            ("StatefulSet", "slurmctld"),
            "slurmctld-0",
            wanted=wanted,
            keys=secret(tmp_path / "keys", SLURM_UID, keys),
        )
        pod.trees = {"configure": program}
        pod.start("configure")
        (probe,) = [
            one["startupProbe"] for one in pod.spec["initContainers"] if one["name"] == "configure"
        ]
        eventually(lambda: passes(pod, probe["exec"]["command"]), "there is a configuration", 120)
        pod.start("slurmctld")
        eventually(lambda: "is UP" in said(pod, "scontrol", "ping"), "slurmctld serves", 120)
        yield pod


def passes(pod: Pod, command: list[str]) -> bool:
    try:
        pod.run("configure", *command)
    except AssertionError:
        return False
    return True


def said(pod: Pod, *command: str) -> str:
    try:
        return pod.run("slurmctld", *command)
    except AssertionError as failed:
        return f"failed: {failed}"


def kill_wait(pod: Pod) -> str:
    return next(
        line for line in said(pod, "scontrol", "show", "config").splitlines() if "KillWait" in line
    )


def test_a_valid_configuration_is_applied_and_a_wrong_one_is_refused(controller: Pod) -> None:
    wanted = controller.volumes["wanted"]
    assert "40 sec" in kill_wait(controller)
    write(wanted, files(rendered(NO_ACCOUNTING | {"config": {"slurm": {"KillWait": 44}}})))
    eventually(lambda: "44 sec" in kill_wait(controller), "slurmctld has what is new", 120)
    wrong = {"config": {"slurm": {"KillWait": 43, "SelectType": "select/none"}}}
    write(wanted, files(rendered(NO_ACCOUNTING | wrong)))
    eventually(lambda: '"Refused"' in controller.log.read_text(), "it is refused", 120)
    assert "44 sec" in kill_wait(controller)
    assert "is UP" in said(controller, "scontrol", "ping")


def test_a_recreated_pod_starts_with_the_last_valid_configuration(controller: Pod) -> None:
    state = controller.volumes["state"]
    eventually((state / "configuration/good/slurm.conf").exists, "kept", 60)
    wrong = {"config": {"slurm": {"SelectType": "select/none"}}}
    write(controller.volumes["wanted"], files(rendered(NO_ACCOUNTING | wrong)))
    controller.kill("slurmctld")
    controller.kill("slurm-cluster")
    for name in ("configuration", "run"):
        for path in controller.volumes[name].rglob("*"):
            if path.is_file() or path.is_socket():
                path.unlink()
    controller.start("configure")
    conf = controller.volumes["configuration"] / "slurm.conf"
    eventually(conf.exists, "there is a configuration again", 120)
    assert "select/cons_tres" in conf.read_text()
    controller.start("slurmctld")
    eventually(lambda: "is UP" in said(controller, "scontrol", "ping"), "slurmctld serves again", 120)
