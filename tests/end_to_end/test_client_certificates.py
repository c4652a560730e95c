"""Tests of client certificates: the extender serves kube-scheduler and kube-apiserver, and rejects
callers without a certificate."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def alone() -> Iterator[Actors]:
    """Starts a separate cluster with an extender that requires client certificates."""
    with (
        tempfile.TemporaryDirectory(prefix="e2e-") as directory,
        Cluster.up(ClusterSpec(nodes=1, client_certificates=True), Path(directory)) as running,
    ):
        actors = Actors(running)
        yield actors
        actors.close()


def test_callers_with_a_certificate_are_served(alone: Actors) -> None:
    """kube-apiserver calls /mutate, which adds the gate. kube-scheduler calls /filter and /bind, which
    bind the Pod."""
    alone.create("p")
    alone.bound("p")
    assert alone.job_of("p") is not None


@pytest.mark.parametrize(
    ("listener", "path"), [("scheduler", "/scheduler/bind"), ("admission", "/mutate")]
)
def test_callers_without_a_certificate_are_rejected(alone: Actors, listener: str, path: str) -> None:
    address = f"127.0.0.1:{alone.cluster.ports[f'extender-{listener}']}"
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    for url in (f"https://{address}{path}", f"http://{address}{path}"):
        with pytest.raises(httpx.TransportError):
            httpx.post(url, json={}, verify=stranger)
