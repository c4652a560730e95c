"""Tests that the Pods of Slurm's other programs know the same users as the login Pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.login.chart import pod_of, rendered
from tests.login.directory_server import HOST
from tests.login.images import files_of
from tests.login.login_pod import World, directory_of, secrets_of
from tests.login.pod import Given, Pod, ended

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


def test_slurmctlds_pod_knows_users_of_the_directory_and_of_the_values(
    world: World, tmp_path: Path
) -> None:
    own = {
        "users": [{"name": "dave", "uid": 3001}],
        "groups": [{"name": "staff", "gid": 3100, "members": ["dave"]}],
    }
    chart = rendered({"directory": directory_of(world) | own})
    release = world.slurm.spec.release
    given = Given(
        chart=chart,
        images={name: files_of(name, release) for name in ("slurmctld", "sssd")},
        secrets=secrets_of(world),
        claims={"slurmctld-state": tmp_path / "state"},
        hosts=[HOST],
    )
    (tmp_path / "state").mkdir()
    with ended(Pod(pod_of(chart, "StatefulSet", "slurmctld"), given, tmp_path / "pod")) as pod:
        pod.start("sssd")
        eventually((pod.volume("sss") / "pipes/nss").exists, "sssd serves", 30)
        pod.start("slurmctld", argv=["/usr/bin/id", "carol"])
        assert pod.wait("slurmctld") == 0, pod.log("slurmctld") + pod.log("sssd")
        pod.start("slurmctld", argv=["/usr/bin/id", "dave"])
        assert pod.wait("slurmctld") == 0, pod.log("slurmctld")
        assert pod.log("slurmctld").splitlines() == [
            "uid=5001(carol) gid=5001(carol) groups=5001(carol),6001(science)",
            "uid=3001(dave) gid=3001(dave) groups=3001(dave),3100(staff)",
        ]
