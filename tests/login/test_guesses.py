"""Tests that a user in a session cannot guess passwords of other users by asking sssd directly. sshd
limits wrong passwords, but sssd does not."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.login.directory_server import Person
from tests.login.login_pod import LoginPod

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

OTHER_UID = 5002
_PAM_SUCCESS, _PAM_PERM_DENIED = 0, 6
# Numbers of sssd's protocol (sss_cli.h).
_GET_VERSION, _AUTHENTICATE, _PROTOCOL = 0x0001, 0x00F1, 3
_START, _END, _PASSWORD = 0x4D415049, 0x4950414D, 1
_USER, _SERVICE, _AUTHTOK, _CLIENT = 1, 2, 6, 9


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Sets this process's effective user until the block ends. If the process connects to a Unix socket,
    the kernel reports this user to the server."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def pam_status(name: str, password: str, *, uid: int) -> int:
    """Sends a password check to sssd as a process of the user `uid`, and returns sssd's reply. sssd's
    socket must be in the working directory."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        with acting_as(uid):
            connection.connect("pam")
        _ask(connection, _GET_VERSION, struct.pack("=I", _PROTOCOL))
        items = (
            (_USER, name.encode() + b"\0"),
            (_SERVICE, b"sshd\0"),
            (_CLIENT, struct.pack("=I", os.getpid())),
            (_AUTHTOK, struct.pack("=I", _PASSWORD) + password.encode()),
        )
        body = b"".join(struct.pack("=II", kind, len(value)) + value for kind, value in items)
        answer = _ask(
            connection, _AUTHENTICATE, struct.pack("=I", _START) + body + struct.pack("=I", _END)
        )
        status: int = struct.unpack_from("=I", answer)[0]
        return status


def _ask(connection: socket.socket, command: int, body: bytes) -> bytes:
    connection.sendall(struct.pack("=4I", 16 + len(body), command, 0, 0) + body)
    length, *_ = struct.unpack("=4I", _read(connection, 16))
    return _read(connection, length - 16)


def _read(connection: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        piece = connection.recv(length - len(read))
        assert piece, "sssd has closed the connection"
        read += piece
    return read


def test_sssd_checks_passwords_only_for_sshd(
    login: LoginPod, carol: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(login.pod.volume("sss") / "pipes")
    assert pam_status("carol", carol.password, uid=0) == _PAM_SUCCESS
    assert pam_status("carol", carol.password, uid=OTHER_UID) == _PAM_PERM_DENIED
    assert pam_status("carol", "a guess", uid=OTHER_UID) == _PAM_PERM_DENIED
