"""Tests of outages of the directory and of the login Pod's containers, and of actions that users in the
login Pod may not perform."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.login.client import KeyPair, key_pair
from tests.login.conftest import StartLogin
from tests.login.directory_server import DirectoryServer, Person
from tests.login.login_pod import LoginPod, World

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

REFUSED = 255
# Settings with which sssd asks a failed server again after one second. By default, sssd waits a minute.
SOON = {"directory": {"options": {"offline_timeout": 1, "offline_timeout_random_offset": 0}}}


@contextmanager
def away(directory: DirectoryServer) -> Iterator[None]:
    """Stops the directory's server until the block ends."""
    directory.stop()
    try:
        yield
    finally:
        directory.start()


@contextmanager
def logged_in(login: LoginPod, key: KeyPair) -> Iterator[subprocess.Popen[str]]:
    """Yields an ssh session of carol. The session's shell reads commands from a pipe."""
    command = [*login.client.session("carol", key), "bash"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as session:
        try:
            assert answer(session, "echo there") == "there", login.pod.log("login")
            yield session
        finally:
            session.kill()


def answer(session: subprocess.Popen[str], command: str) -> str:
    """Sends a command to a session, and returns the first line of the command's output."""
    assert session.stdin is not None
    assert session.stdout is not None
    print(command, file=session.stdin, flush=True)
    return session.stdout.readline().strip()


def test_known_users_can_log_in_while_the_directory_is_away(
    start_login: StartLogin,
    directory: DirectoryServer,
    carol: Person,
    carols_key: KeyPair,
    tmp_path: Path,
) -> None:
    key = key_pair(tmp_path, "mallory")
    directory.add(Person(name="mallory", uid=5020, password="mallory's", key=key.public))
    login = start_login(SOON)
    assert login.client.by_password("carol", carol.password, "true").returncode == 0, login.pod.log(
        "sssd"
    )
    with away(directory):
        assert login.client.by_password("carol", carol.password, "true").returncode == 0, login.pod.log(
            "sssd"
        )
        assert login.client.by_key("carol", carols_key, "true").returncode == 0, login.pod.log("login")
        assert login.client.by_password("carol", "a guess", "true").returncode == REFUSED
        assert login.client.by_key("mallory", key, "true").returncode == REFUSED
        assert login.client.by_password("mallory", "mallory's", "true").returncode == REFUSED
    eventually(
        lambda: login.client.by_password("mallory", "mallory's", "true").returncode == 0,
        "mallory is let in",
        30,
    )


def test_without_the_cache_a_password_is_refused_while_the_directory_is_away(
    start_login: StartLogin, directory: DirectoryServer, carol: Person
) -> None:
    login = start_login({"directory": {"cache": {"passwords": False}}})
    assert login.client.by_password("carol", carol.password, "true").returncode == 0, login.pod.log(
        "sssd"
    )
    with away(directory):
        assert login.client.by_password("carol", carol.password, "true").returncode == REFUSED


@pytest.mark.parametrize("container", ["sssd", "sackd"])
def test_a_session_survives_a_restart_of_another_container(
    start_login: StartLogin, carols_key: KeyPair, container: str
) -> None:
    login = start_login()
    with logged_in(login, carols_key) as session:
        login.pod.kill(container)
        assert answer(session, "echo still") == "still"
        login.start([container])
        assert answer(session, "id -un") == "carol"
        eventually(
            lambda: answer(session, "squeue -h -o %i && echo answers") == "answers", "squeue answers", 30
        )
    eventually(
        lambda: login.client.by_key("carol", carols_key, "true").returncode == 0, "carol is let in", 30
    )


def test_sackd_takes_a_new_configuration_of_slurm_without_a_restart(
    start_login: StartLogin, world: World, carols_key: KeyPair
) -> None:
    login = start_login()
    written = login.pod.volume("slurm") / "conf/slurm.conf"
    before = written.stat().st_mtime_ns
    world.slurm.run_slurm("scontrol", "reconfigure")
    eventually(lambda: written.stat().st_mtime_ns > before, "sackd has the new configuration", 10)
    done = login.client.by_key("carol", carols_key, "squeue -h && echo answers")
    assert done.stdout == "answers\n", done.stderr + login.pod.log("sackd")
    assert login.pod.is_running("sackd"), login.pod.log("sackd")


def test_a_terminating_pod_waits_for_the_end_of_sessions(
    start_login: StartLogin, carols_key: KeyPair
) -> None:
    login = start_login()
    waits = "timeout", "3", "/usr/libexec/slurm-login/wait-for-sessions"
    with logged_in(login, carols_key):
        assert login.pod.execute("login", *waits).returncode == 124
    eventually(lambda: login.pod.execute("login", *waits).returncode == 0, "its wait ends", 30)


def test_sshd_ends_at_sigterm(start_login: StartLogin) -> None:
    login = start_login()
    login.pod.execute("login", "/usr/bin/kill", f"-{signal.SIGTERM.name}", "1")
    login.pod.wait("login", 10)


def test_a_wrong_configuration_of_sshd_is_reported(start_login: StartLogin) -> None:
    with pytest.raises(AssertionError, match="Bad configuration option: Nonsense"):
        start_login({"login": {"sshd": {"options": {"Nonsense": True}}}}, containers=["login"])


VOLUMES = "/etc /run /run/slurm /tmp /var/lib/extrausers /var/lib/sss"
WRITABLE = f"find / {VOLUMES} -xdev -writable -not -type l -not -type s 2>/dev/null"


def test_users_can_write_only_their_homes_and_tmp(login: LoginPod, carols_key: KeyPair) -> None:
    assert login.client.by_key("carol", carols_key, "rm -rf /tmp/*").returncode == 0
    found = login.client.by_key("carol", carols_key, WRITABLE).stdout.split()
    assert [path for path in found if not path.startswith("/home/carol")] == ["/tmp", "/tmp"]


def test_users_cannot_create_homes_of_other_users_without_a_shared_volume(
    start_login: StartLogin, carols_key: KeyPair
) -> None:
    """At login, a shell runs files in the user's home, so no other user may create this home."""
    login = start_login({"volumes": []})
    done = login.client.by_key("carol", carols_key, "pwd; stat -c '%U %a' . /home; mkdir /home/judy")
    assert done.stdout.splitlines() == ["/home/carol", "carol 700", "root 755"], done
    assert "Permission denied" in done.stderr


def test_users_cannot_read_keys_and_passwords(login: LoginPod, carols_key: KeyPair) -> None:
    places = (
        "/etc/slurm-keys /etc/slurm-login-host-keys /etc/sssd /etc/directory-password /var/lib/sss/db"
    )
    read = f"find {places} -type f -readable 2>/dev/null; ls /var/lib/sss/pipes/private"
    done = login.client.by_key("carol", carols_key, read)
    # Users cannot even read the public host keys.
    assert done.stdout == ""
    assert "Permission denied" in done.stderr


def test_a_command_ends_all_processes_of_a_user(login: LoginPod, carols_key: KeyPair) -> None:
    """The command is from docs/tasks/users.md. The command runs as the user, because root in the
    container may not end processes of other users."""
    as_carol = ("/usr/bin/setpriv", "--reuid=5001", "--regid=5001", "--clear-groups")
    with logged_in(login, carols_key) as session:
        done = login.pod.execute("login", *as_carol, "/usr/bin/bash", "-c", "kill -KILL -1")
        assert done.returncode == 0, done
        assert session.wait(30) != 0, done
    assert login.client.by_key("carol", carols_key, "true").returncode == 0, login.pod.log("login")


def test_logins_are_refused_while_nologin_exists(start_login: StartLogin, carols_key: KeyPair) -> None:
    login = start_login()
    login.pod.execute("login", "/usr/bin/touch", "/run/nologin")
    assert login.client.by_key("carol", carols_key, "true").returncode == REFUSED
    login.pod.execute("login", "/usr/bin/rm", "/run/nologin")
    assert login.client.by_key("carol", carols_key, "true").returncode == 0, login.pod.log("login")
