"""Tests of deploy/slurm/slurm-extender-hook. The tests call this script as slurmctld does. The script
returns at once, even if the network fails."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from email.message import Message
from pathlib import Path
from queue import Empty, Queue

import pytest

from deploy.local.layout import CHECKOUT
from tests.deploy_slurm.listeners import Listener

SCRIPT = CHECKOUT / "deploy/slurm/slurm-extender-hook"
JOB = 40_000_000
ACCEPTED = 202


class Extender(Listener):
    """An extender that records the requests (pushes) of the script."""

    def __init__(self) -> None:
        self.pushes: Queue[tuple[str, str | None, str | None]] = Queue()
        self.status = ACCEPTED
        super().__init__(self._answer)

    def _answer(self, path: str, sent: Message) -> tuple[int, str, dict[str, str]]:
        self.pushes.put((path, sent["Authorization"], sent["Content-Length"]))
        return self.status, "", {}

    def pushed(self) -> str:
        """Waits for the next push, and returns the path of its request."""
        path, authorization, length = self.pushes.get(timeout=5)
        assert (authorization, length) == ("Bearer secret", "0")
        return path


@pytest.fixture
def extenders() -> Iterator[list[Extender]]:
    both = [Extender(), Extender()]
    yield both
    for each in both:
        each.close()


class Slurmctld:
    """Runs the script with the few environment variables that slurmctld sets."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "hook.conf"
        self.token_file = folder / "token"
        self.token_file.write_text("secret\n")

    def configure(self, *urls: str, more: str = "") -> None:
        listed = " ".join(urls)
        self.config.write_text(
            f'SLURM_EXTENDER_HOOKS_URLS="{listed}"\n'
            f"SLURM_EXTENDER_HOOKS_TOKEN_FILE={self.token_file}\n{more}\n"
        )

    def run(
        self, *arguments: str, job: object = JOB, name: str = "wrap"
    ) -> subprocess.CompletedProcess[str]:
        """Runs the script. Waits until the script has exited and no other process has the output open,
        as slurmctld does."""
        environment = {
            "SLURM_EXTENDER_HOOK_CONF": str(self.config),
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_NAME": name,
        }
        argv = [str(SCRIPT), *arguments]
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=10, check=False
        )


@pytest.fixture
def slurmctld(tmp_path: Path) -> Slurmctld:
    return Slurmctld(tmp_path)


@pytest.mark.parametrize("down", [(), ("http://127.0.0.1:1", "http://no.such.host.invalid:8000")])
def test_each_extender_gets_the_push(
    slurmctld: Slurmctld, extenders: list[Extender], down: tuple[str, ...]
) -> None:
    slurmctld.configure(*down, *(each.url for each in extenders))
    assert slurmctld.run().returncode == 0
    assert [each.pushed() for each in extenders] == [f"/hooks/v1/jobs/{JOB}"] * 2


@pytest.mark.parametrize("job", [1, (1 << 25) - 1, 67_043_328, "", "x"])
def test_job_outside_the_placeholders_range_is_not_pushed(
    slurmctld: Slurmctld, extenders: list[Extender], job: object
) -> None:
    slurmctld.configure(extenders[0].url)
    assert slurmctld.run(job=job).returncode == 0
    slurmctld.run()
    assert extenders[0].pushed() == f"/hooks/v1/jobs/{JOB}"  # this is the first push
    with pytest.raises(Empty):
        extenders[0].pushes.get(timeout=0.1)


def test_range_of_job_ids_is_configurable(slurmctld: Slurmctld, extenders: list[Extender]) -> None:
    slurmctld.configure(
        extenders[0].url, more="SLURM_EXTENDER_JOB_ID_FIRST=100\nSLURM_EXTENDER_JOB_ID_END=200"
    )
    for job in (99, 200, 150):
        slurmctld.run(job=job)
    assert extenders[0].pushed() == "/hooks/v1/jobs/150"


@pytest.mark.alone
def test_silent_extender_does_not_delay_the_hook(slurmctld: Slurmctld) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        silent.settimeout(5)
        slurmctld.configure(f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        assert slurmctld.run().returncode == 0
        assert time.monotonic() - begun < 0.4  # the script does not wait for the push to time out
        connection, _ = silent.accept()
        with closing(connection):
            connection.settimeout(5)
            while connection.recv(4096):
                pass
        assert 0.3 < time.monotonic() - begun < 2  # the push times out and closes the connection


@pytest.mark.parametrize("text", [None, "", "if (", "exit 7", "SLURM_EXTENDER_JOB_ID_FIRST=x"])
def test_hook_succeeds_with_any_configuration(slurmctld: Slurmctld, text: str | None) -> None:
    """The script must not fail, because slurmctld requeues a job if PrologSlurmctld fails."""
    if text is not None:
        slurmctld.config.write_text(text)
    done = slurmctld.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_administrator_sees_the_reply_of_each_extender(
    slurmctld: Slurmctld, extenders: list[Extender]
) -> None:
    extenders[1].status = 401
    slurmctld.configure(*(each.url for each in extenders), "http://127.0.0.1:1")
    done = slurmctld.run(str(JOB))
    assert done.returncode == 1
    assert f"{extenders[0].url}: HTTP/1.0 202 Accepted" in done.stdout
    assert f"{extenders[1].url}: HTTP/1.0 401 Unauthorized" in done.stdout
    assert "Connection refused" in done.stderr
    slurmctld.configure(extenders[0].url)
    assert slurmctld.run("7").returncode == 0
