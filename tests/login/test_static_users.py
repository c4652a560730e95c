"""Tests of users that the chart's values list, with and without a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.login.client import key_pair
from tests.login.conftest import StartLogin

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

REFUSED = 255
ALONE = ("sackd", "login")


def test_users_of_the_values_need_no_directory(start_login: StartLogin, tmp_path: Path) -> None:
    key = key_pair(tmp_path, "dave")
    directory = {
        "preset": "none",
        "users": [
            {"name": "dave", "uid": 3001, "keys": [key.public]},
            {
                "name": "erin",
                "uid": 3002,
                "gid": 3100,
                "fullName": "Erin",
                "home": "/home/e",
                "shell": "/bin/sh",
            },
        ],
        "groups": [{"name": "staff", "gid": 3100, "members": ["dave"]}],
    }
    login = start_login({"directory": directory}, containers=ALONE)
    done = login.client.by_key("dave", key, "id; getent passwd erin")
    assert done.stdout.splitlines() == [
        "uid=3001(dave) gid=3001(dave) groups=3001(dave),3100(staff)",
        "erin:x:3002:3100:Erin:/home/e:/bin/sh",
    ], done.stderr + login.pod.log("login")
    assert login.client.by_key("erin", key, "id").returncode == REFUSED
    assert login.client.by_password("dave", "", "id").returncode == REFUSED


def test_a_change_of_the_users_needs_no_restart(start_login: StartLogin, tmp_path: Path) -> None:
    key = key_pair(tmp_path, "judy")
    login = start_login({"directory": {"preset": "none"}}, containers=ALONE)
    assert login.client.by_key("judy", key, "true").returncode == REFUSED
    login.pod.write("users", {"passwd": b"judy:x:3003:3003::/home/judy:/bin/bash\n"})
    login.pod.write("user-keys", {"judy": key.public.encode()})
    assert login.client.by_key("judy", key, "id -u").stdout == "3003\n", login.pod.log("login")
    login.pod.write("users", {"passwd": b""})
    assert login.client.by_key("judy", key, "true").returncode == REFUSED


def test_users_of_the_values_work_beside_a_directory(start_login: StartLogin, tmp_path: Path) -> None:
    key = key_pair(tmp_path, "dave")
    users = [{"name": "dave", "uid": 3001, "keys": [key.public]}]
    groups = [{"name": "staff", "gid": 3100, "members": ["dave", "carol"]}]
    login = start_login({"directory": {"users": users, "groups": groups}})
    done = login.client.by_key("dave", key, "id -Gn; id -Gn carol")
    assert done.stdout.splitlines() == ["dave staff", "carol staff science"], login.pod.log("login")
