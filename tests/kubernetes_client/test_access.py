"""Tests of how a program in a Pod finds kube-apiserver, and how it authenticates with its service
account."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from kubernetes_client import access
from kubernetes_client.access import find_access
from kubernetes_client.errors import NoCredentials
from tests.clock import Clock

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_READS_ITS_ACCOUNT = """
import asyncio, sys
from pathlib import Path
from kubernetes_client import access
access._ACCOUNT = Path(sys.argv[1])
asyncio.run(access.find_access(None))
print([name for name in sys.modules if name.partition(".")[0] == "kubernetes"])
"""


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(access, "monotonic", clock)
    return clock


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Creates the folder of the service account as the kubelet does, sets the environment variables, and
    returns the folder."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("one")
    monkeypatch.setattr(access, "_ACCOUNT", tmp_path)
    monkeypatch.setenv(HOST, "10.96.0.1")
    monkeypatch.setenv(PORT, "443")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "url"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
@pytest.mark.usefixtures("account")
async def test_program_in_a_pod_uses_its_service_account(
    host: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST, host)
    found = await find_access(None)
    assert (found.server, found.proxy) == (url, None)
    assert await found.headers() == {"Authorization": "Bearer one"}
    assert len(found.tls.get_ca_certs()) == 1  # this machine's own CAs are not trusted
    assert found.tls.check_hostname


async def test_a_token_that_rotates_is_read_again(account: Path, seconds: Clock) -> None:
    found = await find_access(None)
    (account / "token").write_text("two\n")
    seconds.now += 59
    assert await found.headers() == {"Authorization": "Bearer one"}
    seconds.now += 1
    assert await found.headers() == {"Authorization": "Bearer two"}


async def test_unreadable_token_is_read_when_it_is_readable_again(account: Path, seconds: Clock) -> None:
    found = await find_access(None)
    seconds.now += 60
    (account / "token").write_text("")
    with pytest.raises(NoCredentials, match="token is empty"):
        await found.headers()
    (account / "token").unlink()
    with pytest.raises(FileNotFoundError):
        await found.headers()
    (account / "token").write_text("two")
    assert await found.headers() == {"Authorization": "Bearer two"}


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("text", [None, ""])
async def test_incomplete_service_account_gives_no_credentials(
    name: str, text: str | None, account: Path
) -> None:
    (account / name).unlink()
    if text is not None:
        (account / name).write_text(text)
    with pytest.raises(NoCredentials, match="service account: "):
        await find_access(None)


@pytest.mark.parametrize("name", [HOST, PORT])
@pytest.mark.usefixtures("account")
async def test_no_service_account_is_found_outside_of_pods(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "")
    with pytest.raises(NoCredentials, match=f"{HOST} and {PORT} are not set"):
        await find_access(None)


async def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCredentials, match=f"{tmp_path / 'none'}: no such file"):
        await find_access(tmp_path / "none")


async def test_kubeconfig_may_be_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("{}")
    with pytest.raises(NoCredentials, match=r"~/config: (?!no such file)"):  # the file is read
        await find_access("~/config")


async def test_a_context_of_a_kubeconfig_can_be_chosen(tmp_path: Path) -> None:
    names = ("one", "two")
    file = tmp_path / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "current-context": "one",
                "contexts": [{"name": name, "context": {"cluster": name}} for name in names],
                "clusters": [{"name": name, "cluster": {"server": f"http://{name}"}} for name in names],
            }
        )
    )
    servers = [(await find_access(file, context)).server for context in (None, *names)]
    assert servers == ["http://one", "http://one", "http://two"]
    with pytest.raises(NoCredentials, match="three"):
        await find_access(file, "three")


def test_service_account_does_not_load_the_kubeconfig_library(account: Path) -> None:
    argv = [sys.executable, "-c", _READS_ITS_ACCOUNT, str(account)]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "[]\n"
