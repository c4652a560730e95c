"""Tests of sshd's capabilities. With the chart's capabilities, all parts of a login work. Without any of
the capabilities, some part fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.login.chart import pod_of, rendered
from tests.login.client import KeyPair, key_pair, run
from tests.login.conftest import StartLogin
from tests.login.directory_server import DirectoryServer, Person
from tests.login.login_pod import LoginPod

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

GIVEN = ("AUDIT_WRITE", "CHOWN", "SETGID", "SETUID", "SYS_CHROOT")
"""Capabilities that the chart gives to the container login."""


def works(login: LoginPod, user: Person, key: KeyPair) -> dict[str, bool]:
    """Returns which parts of a user's first login work."""
    terminal = [*login.client.session(user.name, key, "-tt"), "stat -c %U $(tty)"]
    home = login.client.by_key(user.name, key, "touch mine && stat -c %a .")
    return {
        "key": home.returncode == 0,
        "home": home.stdout == "700\n",
        "password": login.client.by_password(user.name, user.password, "true").returncode == 0,
        "terminal": run(terminal).stdout.split() == [user.name],
    }


def test_the_chart_adds_exactly_the_tested_capabilities() -> None:
    pod = pod_of(rendered({}), "Deployment", "login")
    (login,) = pod["containers"]
    assert tuple(login["securityContext"]["capabilities"]["add"]) == GIVEN
    directory = {"preset": "openldap", "uris": ["ldaps://a"], "baseDn": "dc=a"}
    for container in pod_of(rendered({"directory": directory}), "Deployment", "login")["initContainers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("without", ["", *GIVEN])
def test_each_capability_is_needed(
    start_login: StartLogin, directory: DirectoryServer, tmp_path: Path, without: str
) -> None:
    name = f"peggy-{without.lower()}"  # a user whose home does not exist yet
    key = key_pair(tmp_path, name)
    uid = 5040 + GIVEN.index(without) if without else 5039
    user = Person(name=name, uid=uid, password="peggy's", key=key.public)
    directory.add(user)
    login = start_login(capabilities=[name for name in GIVEN if name != without])
    found = works(login, user, key)
    assert all(found.values()) == (not without), (found, login.pod.log("login"))
