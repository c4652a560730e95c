"""The chart's login Pod, connected to a directory of users and a Slurm cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import trustme

from deploy.local.cluster import Cluster
from deploy.local.components import accepts_connections
from deploy.local.processes.ports import lease_ports
from tests.eventually import eventually
from tests.login.chart import pod_of, rendered
from tests.login.client import Client, host_keys
from tests.login.directory_server import BASE, HOST, READER, READER_PASSWORD, DirectoryServer
from tests.login.images import files_of
from tests.login.pod import Given, Pod, ended

CONTAINERS = ("sssd", "sackd", "login")
# Settings of sshd. sshd must not block an address after a wrong password (PerSourcePenalties), because
# all tests connect from one address.
_SSHD = {"ListenAddress": "127.0.0.1", "PerSourcePenalties": False}


@dataclass(frozen=True)
class World:
    """The directory and the Slurm cluster to which a login Pod is connected."""

    directory: DirectoryServer
    authority: trustme.CA
    slurm: Cluster


@dataclass(frozen=True)
class LoginPod:
    """A running login Pod, with an SSH client that connects to the Pod."""

    pod: Pod
    client: Client
    port: int
    sackd_port: int
    """Port on which sackd listens for changes from slurmctld. With the default port, a machine could
    have only a single cluster."""

    @classmethod
    @contextmanager
    def started(
        cls,
        world: World,
        folder: Path,
        values: Mapping[str, Any],
        *,
        authority: trustme.CA | None = None,
        capabilities: Sequence[str] | None = None,
        containers: Sequence[str] = CONTAINERS,
    ) -> Iterator[Self]:
        """Yields the Pod as soon as sshd accepts connections. If given, `authority` replaces the CA of
        the directory, and `capabilities` replaces the capabilities of the container login."""
        folder.mkdir(parents=True)
        trusted = authority or world.authority
        lease = lease_ports(["ssh", "sackd"])
        port = lease.ports["ssh"]
        keys = host_keys(folder / "host-keys")
        slurmctld = f"127.0.0.1:{world.slurm.ports['slurmctld']}"
        chart = rendered(_merged(_values(world, port), values), slurmctld)
        given = Given(
            chart=chart,
            images={name: files_of(name, world.slurm.spec.release) for name in ("login", "sssd")},
            secrets=secrets_of(World(world.directory, trusted, world.slurm)) | {"login-host-keys": keys},
            claims={"homes": world.slurm.directory / "home"},
            hosts=[HOST],
        )
        try:
            with ended(Pod(pod_of(chart, "Deployment", "login"), given, folder)) as pod:
                client = Client(folder, port, keys["ssh_host_ed25519_key.pub"].decode())
                login = cls(pod, client, port, lease.ports["sackd"])
                login.start(containers, capabilities)
                yield login
        finally:
            lease.close()

    def start(
        self, containers: Sequence[str] = CONTAINERS, capabilities: Sequence[str] | None = None
    ) -> None:
        """Starts containers one after the other. Each container starts when the container before is
        ready."""
        for name in containers:
            more: dict[str, Any] = {}
            if name == "login" and capabilities is not None:
                more = {"capabilities": capabilities}
            elif name == "sackd":
                more = {"env": {**self.pod.plan(name).env, "SACKD_PORT": str(self.sackd_port)}}
            self.pod.start(name, **more)
            self._await(name)

    def _await(self, container: str) -> None:
        def settled() -> bool:
            return self._serves(container) or not self.pod.is_running(container)

        eventually(settled, f"{container} serves", 30)
        assert self.pod.is_running(container), self.pod.log(container)

    def _serves(self, container: str) -> bool:
        match container:
            case "sssd":
                return (self.pod.volume("sss") / "pipes/ssh").exists()
            case "sackd":
                return (self.pod.volume("slurm") / "sack.socket").exists()
            case _:
                return accepts_connections(self.port)


def _values(world: World, port: int) -> dict[str, Any]:
    return {
        "login": {"port": port, "sshd": {"options": _SSHD}},
        "directory": directory_of(world),
        "volumes": [{"name": "home", "mountPath": "/home", "existingClaim": "homes"}],
    }


def directory_of(world: World) -> dict[str, Any]:
    """Returns the values with which the chart uses the directory of this World."""
    secrets = {"bindPasswordSecret": {"name": "ldap-reader"}, "caSecret": {"name": "ldap-ca"}}
    server = {"preset": "openldap", "uris": [world.directory.uri], "baseDn": BASE, "bindDn": READER}
    return server | secrets


def secrets_of(world: World) -> dict[str, Mapping[str, bytes]]:
    """Returns the Secrets that Slurm's Pods mount."""
    etc = world.slurm.directory / "slurm/etc"
    return {
        "slurm-key": {"slurm.key": (etc / "slurm.key").read_bytes()},
        "slurm-jwt-key": {"jwt_hs256.key": (etc / "jwt_hs256.key").read_bytes()},
        "ldap-reader": {"password": READER_PASSWORD.encode()},
        "ldap-ca": {"ca.crt": world.authority.cert_pem.bytes()},
    }


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges values as Helm does."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged
