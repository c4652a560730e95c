"""Tests of users that have the name or the uid of a user in the images. Such a user may come from the
directory, or from a program that writes users. A user with SlurmUser's uid would have full control over
Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.login.client import key_pair
from tests.login.conftest import StartLogin
from tests.login.directory_server import DirectoryServer, Person
from tests.login.login_pod import LoginPod

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

REFUSED = 255
ALONE = ("sackd", "login")
NUMBERS = {"system": 100, "slurmuser": 64030, "slurmrestd-s": 64031, "job-s": 65532, "nobody-s": 65534}
"""Users of the directory with other names than in the images, but with the uids of `sshd`, SlurmUser,
slurmrestd, the hooks and `nobody`."""


@pytest.mark.parametrize("name", NUMBERS)
def test_a_directory_user_with_a_uid_of_the_image_is_refused(
    login: LoginPod, directory: DirectoryServer, tmp_path: Path, name: str
) -> None:
    key = key_pair(tmp_path, name)
    intruder = Person(name=name, uid=NUMBERS[name], password="intruder's", key=key.public)
    directory.add(intruder)
    try:
        done = login.client.by_key(name, key, "id")
        assert (done.returncode, done.stdout) == (REFUSED, "")
        done = login.client.by_password(name, intruder.password, "id")
        assert (done.returncode, done.stdout) == (REFUSED, "")
    finally:
        directory.remove(intruder)


@pytest.mark.parametrize("name", ["root", "slurm", "slurmrestd"])
def test_a_directory_user_with_a_user_name_of_the_image_is_refused(
    login: LoginPod, directory: DirectoryServer, tmp_path: Path, name: str
) -> None:
    key = key_pair(tmp_path, name)
    intruder = Person(name=name, uid=5300, password="intruder's", key=key.public)
    directory.add(intruder)
    try:
        for done in (
            login.client.by_key(name, key, "id"),
            login.client.by_password(name, intruder.password, "id"),
        ):
            assert (done.returncode, done.stdout) == (REFUSED, "")
    finally:
        directory.remove(intruder)


def test_the_tested_uids_are_the_uids_of_the_image(login: LoginPod) -> None:
    lines = login.pod.execute("login", "/usr/bin/cat", "/etc/passwd").stdout.splitlines()
    assert {int(line.split(":")[2]) for line in lines} == {0, *NUMBERS.values()}


def test_users_written_by_a_program_cannot_become_slurmuser(
    start_login: StartLogin, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "eve")
    login = start_login({"directory": {"preset": "none"}}, containers=ALONE)
    for name, uid in (("eve", 64030), ("zero", 0), ("slurm", 3001), ("fine", 3001)):
        login.pod.write("users", {"passwd": f"{name}:x:{uid}:3001::/home/{name}:/bin/bash\n".encode()})
        login.pod.write("user-keys", {name: key.public.encode()})
        done = login.client.by_key(name, key, "id -u")
        assert done.stdout == ("3001\n" if name == "fine" else ""), name
