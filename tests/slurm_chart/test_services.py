"""What a chart relies on that is not its own: Services have names and addresses in the guest."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.guest.oci import BOX
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import eventually
from tests.node.boot import brought_up

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]
_WITHIN_S = 300.0
_PAGE = "mkdir /tmp/www && echo found >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"
_ASK = "until wget -T 5 -qO- http://server.default.svc.cluster.local; do sleep 1; done"
_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "server", "namespace": "default"},
    "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=0,
        guest=True,
        guest_in_pool=True,
        in_pods=True,
        own_scheduler=True,
        services=True,
        extender=False,
        memory_mb=4000,
    )
    with tempfile.TemporaryDirectory(prefix="install-") as directory:
        up = partial(Cluster.up, spec, Path(directory))
        with brought_up(up, silent) as made:
            yield made


def pod(name: str, command: str) -> dict[str, Any]:
    """A Pod that runs a command of the shell, once."""
    container = {
        "name": "c",
        "image": BOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def test_a_pod_finds_another_by_the_name_of_its_service(cluster: Cluster) -> None:
    objects = [_SERVICE, pod("server", _PAGE), pod("client", _ASK)]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def is_done() -> bool:
        asked = ("get", "pod", "client", "-o", "jsonpath={.status.phase}")
        return cluster.kubectl(*asked).stdout == "Succeeded"

    eventually(is_done, "the client has its answer", _WITHIN_S)
    assert cluster.kubectl("logs", "client").stdout.splitlines()[-1] == "found"
