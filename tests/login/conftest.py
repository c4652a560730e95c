"""Fixtures: a directory with a few users, a Slurm without these users, and login Pods with connections
to both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from deploy.local.cluster import Cluster
from deploy.local.processes.ports import lease_ports
from deploy.local.spec import DEFAULT_RELEASE, ClusterSpec
from tests.login.client import KeyPair, key_pair
from tests.login.directory_server import PORTS, DirectoryServer, Person, serving
from tests.login.login_pod import LoginPod, World

CONFIGLESS = "SlurmctldParameters=conmgr_threads=2,enable_configless"

StartLogin = Callable[..., LoginPod]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """CA of the directory's certificate."""
    return trustme.CA()


@pytest.fixture(scope="session")
def carols_key(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return key_pair(tmp_path_factory.mktemp("keys"), "carol")


@pytest.fixture(scope="session")
def carol(carols_key: KeyPair) -> Person:
    return Person(name="carol", uid=5001, password="carol's own", key=carols_key.public)


@pytest.fixture(scope="session")
def directory(
    tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA, carol: Person
) -> Iterator[DirectoryServer]:
    """slapd with the user carol in the group science."""
    lease = lease_ports(PORTS)
    try:
        folder = tmp_path_factory.mktemp("slapd")
        with serving(folder, lease.ports, authority) as server:
            server.add(carol)
            server.add_group("science", 6001, "carol")
            yield server
    finally:
        lease.close()


@pytest.fixture(scope="module")
def release() -> str:
    """Release of Slurm in the cluster and in the image login."""
    return DEFAULT_RELEASE


@pytest.fixture(scope="module")
def slurm(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm cluster with one node. Neither slurmctld nor slurmd knows a user of the directory."""
    spec = ClusterSpec(
        nodes=1, kubernetes=False, extender=False, release=release, slurm_conf=(CONFIGLESS,)
    )
    with Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def world(directory: DirectoryServer, authority: trustme.CA, slurm: Cluster) -> World:
    return World(directory, authority, slurm)


@pytest.fixture
def start_login(world: World, tmp_path: Path) -> Iterator[StartLogin]:
    """Yields a function that starts a login Pod. After the test, ends all started Pods. The function
    merges the argument `values` into the default values."""
    with ExitStack() as pods:

        def start(values: dict[str, Any] | None = None, **more: Any) -> LoginPod:
            folder = tmp_path / f"login-{len(list(tmp_path.glob('login-*')))}"
            return pods.enter_context(LoginPod.started(world, folder, values or {}, **more))

        yield start


@pytest.fixture(scope="module")
def login(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginPod]:
    """A login Pod for all tests of a module. Each test must leave the Pod unchanged."""
    with LoginPod.started(world, tmp_path_factory.mktemp("pod") / "login", {}) as pod:
        yield pod
