"""Plays a user at another machine: runs this machine's ssh, which trusts only the host keys of the login
Pod."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.programs.debian import install

Done = subprocess.CompletedProcess[str]

_WITHIN_S = 60
_ASKPASS = '#!/bin/sh\nprintf "%s\\n" "$PASSWORD"\n'


@dataclass(frozen=True)
class KeyPair:
    """The SSH key of a user."""

    private: Path
    public: str
    """The public key, as a line of authorized_keys."""


def key_pair(folder: Path, name: str) -> KeyPair:
    """Creates a key pair in a folder. The files are named after `name`."""
    install({"ssh-keygen": "openssh-client"})
    private = folder / name
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(private)]
    subprocess.run(command, check=True)
    return KeyPair(private, private.with_suffix(".pub").read_text().strip())


def host_keys(folder: Path) -> dict[str, bytes]:
    """Creates a folder with host keys. Returns the content that the Secret of the host keys must
    have."""
    folder.mkdir()
    for kind in ("ecdsa", "ed25519"):
        name = folder / f"ssh_host_{kind}_key"
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(name)], check=True)
    return {each.name: each.read_bytes() for each in folder.iterdir()}


class Client:
    """Logs users in by SSH to a port of 127.0.0.1."""

    def __init__(self, folder: Path, port: int, host_key: str) -> None:
        """`folder` must be empty. `host_key` is the expected host key, as a line of a .pub file."""
        self._port = port
        self._known = folder / "known_hosts"
        self._known.write_text(f"[127.0.0.1]:{port} {host_key}")
        self._askpass = folder / "askpass"
        self._askpass.write_text(_ASKPASS)
        self._askpass.chmod(0o755)

    def by_key(self, user: str, key: KeyPair, *command: str) -> Done:
        """Runs a command as a user who logs in with a key. The exit status is 255 if sshd refuses the
        login."""
        return run([*self.session(user, key), *command])

    def by_password(self, user: str, password: str, *command: str) -> Done:
        """Runs a command as a user who logs in with a password. ssh tries the password only once."""
        how = {"PreferredAuthentications": "password", "NumberOfPasswordPrompts": "1"}
        asked = {"SSH_ASKPASS": str(self._askpass), "SSH_ASKPASS_REQUIRE": "force", "PASSWORD": password}
        return run([*self._ssh(user, how), *command], environment=asked)

    def session(self, user: str, key: KeyPair, *options: str) -> list[str]:
        """Returns the ssh command that logs a user in with a key. A caller can append a command to
        run."""
        return self._ssh(user, _by(key), *options)

    def copy(self, source: Path, user: str, key: KeyPair, target: str) -> Done:
        """Copies a file with sftp to the path `target` in the login Pod."""
        options = ("-b", "-", *self._options(_by(key)), "-P", str(self._port))
        command = ["sftp", *options, f"{user}@127.0.0.1"]
        return run(command, stdin=f"put {source} {target}\n")

    def _ssh(self, user: str, how: Mapping[str, str], *options: str) -> list[str]:
        options = (*self._options(how), *options)
        return ["ssh", *options, "-p", str(self._port), "-l", user, "127.0.0.1"]

    def _options(self, how: Mapping[str, str]) -> list[str]:
        settings = {
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self._known),
            "GlobalKnownHostsFile": "none",
            **how,
        }
        return ["-F", "none", *(part for each in settings.items() for part in ("-o", "=".join(each)))]


def run(command: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> Done:
    """Runs a command on this machine, and returns the output and the exit status."""
    return subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )


def _by(key: KeyPair) -> dict[str, str]:
    return {"PreferredAuthentications": "publickey", "IdentityFile": str(key.private)}
