"""Tests of logins by SSH: who may log in, and the properties of a session."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import trustme

from deploy.local.processes.ports import lease_ports
from tests.eventually import eventually
from tests.login.client import KeyPair, key_pair, run
from tests.login.conftest import StartLogin
from tests.login.directory_server import HOST, DirectoryServer, Person
from tests.login.login_pod import LoginPod

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]  # a test may build the images

REFUSED = 255


def test_a_user_of_the_directory_logs_in_by_key(
    login: LoginPod, carol: Person, carols_key: KeyPair
) -> None:
    done = login.client.by_key("carol", carols_key, "id -un; id -u; pwd; echo $SHELL")
    assert done.returncode == 0, done.stderr + login.pod.log("login")
    assert done.stdout.split() == ["carol", "5001", "/home/carol", "/bin/bash"]


def test_a_user_of_the_directory_logs_in_by_password(login: LoginPod, carol: Person) -> None:
    done = login.client.by_password("carol", carol.password, "id")
    assert done.returncode == 0, done.stderr + login.pod.log("login") + login.pod.log("sssd")
    assert done.stdout == "uid=5001(carol) gid=5001(carol) groups=5001(carol),6001(science)\n"


def test_a_wrong_password_is_refused(login: LoginPod) -> None:
    assert login.client.by_password("carol", "a guess", "id").returncode == REFUSED


def test_an_unknown_key_is_refused(login: LoginPod, tmp_path: Path) -> None:
    assert login.client.by_key("carol", key_pair(tmp_path, "other"), "id").returncode == REFUSED


@pytest.mark.parametrize("user", ["root", "slurm", "nobody", "login"])
def test_users_of_the_image_are_refused(login: LoginPod, carols_key: KeyPair, user: str) -> None:
    assert login.client.by_key(user, carols_key, "id").returncode == REFUSED
    assert login.client.by_password(user, "", "id").returncode == REFUSED


def test_the_home_is_made_at_the_first_login_and_is_private(
    login: LoginPod, directory: DirectoryServer, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "frank")
    directory.add(Person(name="frank", uid=5010, password="frank's", key=key.public))
    done = login.client.by_key("frank", key, "stat -c '%U %a' . && touch mine")
    assert done.stdout.split() == ["frank", "700"], done.stderr + login.pod.log("login")
    assert (login.pod.volume("shared-home") / "frank/mine").stat().st_uid == 5010


def test_a_terminal_belongs_to_the_user(login: LoginPod, carols_key: KeyPair) -> None:
    command = [*login.client.session("carol", carols_key, "-tt"), "stat -c '%U %G' $(tty)"]
    assert run(command).stdout.split() == ["carol", "tty"]


def test_files_are_copied_by_sftp(login: LoginPod, carols_key: KeyPair, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("of mine")
    login.client.copy(tmp_path / "data", "carol", carols_key, "copied")
    assert login.client.by_key("carol", carols_key, "cat copied").stdout == "of mine"


def test_a_user_removed_from_the_directory_is_refused_at_the_next_login(
    login: LoginPod, directory: DirectoryServer, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "grace")
    grace = Person(name="grace", uid=5011, password="grace's", key=key.public)
    directory.add(grace)
    assert login.client.by_key("grace", key, "true").returncode == 0, login.pod.log("login")
    directory.remove(grace)
    assert login.client.by_password("grace", "grace's", "true").returncode == REFUSED
    # For a few seconds, sssd still has grace in its cache. Then sssd asks the directory again.
    eventually(
        lambda: login.client.by_key("grace", key, "true").returncode == REFUSED, "grace is rejected", 30
    )


def test_an_expired_account_is_refused_even_with_its_key(
    login: LoginPod, directory: DirectoryServer, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "heidi")
    heidi = Person(name="heidi", uid=5012, password="heidi's", key=key.public)
    directory.add(heidi)
    assert login.client.by_key("heidi", key, "true").returncode == 0, login.pod.log("login")
    directory.change(heidi, "shadowExpire", "1")  # day 1 after 1970-01-01, so the account has expired
    eventually(
        lambda: login.client.by_key("heidi", key, "true").returncode == REFUSED, "heidi is rejected", 30
    )


def test_a_directory_with_a_certificate_of_another_ca_is_not_trusted(
    start_login: StartLogin, directory: DirectoryServer, carol: Person, carols_key: KeyPair
) -> None:
    login = start_login(authority=trustme.CA())
    before = len(directory.said())
    assert login.client.by_password("carol", carol.password, "id").returncode == REFUSED
    assert login.client.by_key("carol", carols_key, "id").returncode == REFUSED
    assert "BIND dn=" not in directory.said()[before:]  # sssd has sent no password


def test_a_directory_can_be_queried_over_ldaps(
    start_login: StartLogin, directory: DirectoryServer, carol: Person
) -> None:
    login = start_login({"directory": {"uris": [directory.tls_uri]}})
    done = login.client.by_password("carol", carol.password, "id -un")
    assert done.stdout == "carol\n", login.pod.log("sssd")


def test_every_directory_server_is_queried_with_tls(
    start_login: StartLogin, directory: DirectoryServer, carol: Person
) -> None:
    """sssd must use TLS for the second server, too: this server answers no request without TLS."""
    lease = lease_ports(["nobody"])
    away = f"ldaps://{HOST}:{lease.ports['nobody']}"
    with closing(lease):
        login = start_login({"directory": {"uris": [away, directory.uri]}})
        done = login.client.by_password("carol", carol.password, "id -un")
    assert done.stdout == "carol\n", login.pod.log("sssd")


def test_only_the_allowed_groups_can_log_in(
    start_login: StartLogin, directory: DirectoryServer, carols_key: KeyPair, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "ivan")
    directory.add(Person(name="ivan", uid=5013, password="ivan's", key=key.public))
    login = start_login({"login": {"allowedGroups": ["science", "domain users"]}})
    assert login.client.by_key("carol", carols_key, "true").returncode == 0, login.pod.log("login")
    assert login.client.by_key("ivan", key, "true").returncode == REFUSED
    assert login.client.by_password("ivan", "ivan's", "true").returncode == REFUSED


def test_limits_match_blocks_and_the_motd_come_from_the_values(
    start_login: StartLogin, carol: Person, carols_key: KeyPair
) -> None:
    login = start_login(
        {
            "login": {
                "limits": ["carol hard nofile 123", "* soft core 0"],
                "motd": "Back on Monday\n",
                "sshd": {
                    "match": [{"criteria": "User carol", "options": {"PasswordAuthentication": False}}]
                },
            }
        }
    )
    assert login.client.by_password("carol", carol.password, "id").returncode == REFUSED
    assert login.client.by_key("carol", carols_key, "ulimit -Hn").stdout.split() == ["123"]
    shell = run(login.client.session("carol", carols_key, "-tt"), stdin="exit\n")
    assert "Back on Monday" in shell.stdout


def test_passwords_can_be_turned_off(
    start_login: StartLogin, carol: Person, carols_key: KeyPair
) -> None:
    login = start_login({"login": {"passwords": False, "homeKeys": False}})
    assert login.client.by_key("carol", carols_key, "true").returncode == 0, login.pod.log("login")
    refused = login.client.by_password("carol", carol.password, "true")
    assert "Permission denied (publickey)" in refused.stderr
