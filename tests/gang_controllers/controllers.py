"""Builds and starts the real controllers of LeaderWorkerSets and JobSets, beside a local cluster."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import trustme
import yaml

from deploy.local.processes.ports import lease_ports
from deploy.local.programs.go_program import GoProgram
from tests.eventually import eventually

if TYPE_CHECKING:
    from deploy.local.cluster import Cluster


@dataclass(frozen=True)
class Controller:
    """A controller in a checkout of its repository."""

    name: str
    package: str
    config: str
    """API version of the controller's configuration."""
    crds: str
    """Folder of the CustomResourceDefinitions."""
    webhooks: str
    """File with the webhooks."""
    label: str
    """Label of all Pods of the controller."""


LWS = Controller(
    "lws",
    "./cmd",
    "config.lws.x-k8s.io/v1alpha1",
    "config/crd/bases",
    "config/webhook/manifests.yaml",
    "leaderworkerset.sigs.k8s.io/name",
)
JOBSET = Controller(
    "jobset",
    ".",
    "config.jobset.x-k8s.io/v1alpha1",
    "config/components/crd/bases",
    "config/components/webhook/manifests.yaml",
    "jobset.sigs.k8s.io/jobset-name",
)


@contextmanager
def running(controller: Controller, sources: Path, cluster: Cluster, folder: Path) -> Iterator[None]:
    """Builds the controller, adds its objects to the cluster, and runs the controller until the end of
    the block."""
    folder.mkdir()
    program = folder / controller.name
    GoProgram(sources, controller.package).build(program, print)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    for each in sorted((sources / controller.crds).glob("*.yaml")):
        cluster.kubectl("apply", "--server-side", "-f", str(each))
    lease = lease_ports(("webhook", "health"))
    webhook, health = lease.ports["webhook"], lease.ports["health"]
    (folder / "config.yaml").write_text(yaml.safe_dump(_config(controller, folder, webhook, health)))
    argv = [str(program), f"--config={folder / 'config.yaml'}", f"--kubeconfig={cluster.kubeconfig}"]
    environment = {"NAMESPACE": "default", "POD_NAMESPACE": "default", "PATH": ""}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
    try:
        url = f"http://127.0.0.1:{health}/healthz"
        eventually(lambda: _answers(url), f"{controller.name} serves", 60)
        hooks = _webhooks(controller, sources, webhook, authority.cert_pem.bytes())
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(hooks))
        yield
    finally:
        process.terminate()
        process.wait()
        lease.close()


def _config(controller: Controller, folder: Path, webhook: int, health: int) -> dict[str, Any]:
    return {
        "apiVersion": controller.config,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }


def _webhooks(
    controller: Controller, sources: Path, port: int, authority: bytes
) -> Iterator[dict[str, Any]]:
    """Yields the webhooks of the repository, with the address of this process. A webhook for Pods gets
    only the controller's Pods, as the repository's overlay says."""
    own = {"matchExpressions": [{"key": controller.label, "operator": "Exists"}]}
    bundle = base64.b64encode(authority).decode()
    for manifest in yaml.safe_load_all((sources / controller.webhooks).read_text()):
        for each in manifest["webhooks"]:
            path = each["clientConfig"]["service"]["path"]
            each["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if "pod" in path:
                each["objectSelector"] = own
        manifest["metadata"] = {"name": f"{controller.name}-{manifest['kind'].lower()}"}
        yield manifest


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False
