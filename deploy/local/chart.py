"""The chart's objects for a cluster on this machine.

The objects for a cluster of the default shape are recorded in rendered.json, so that the demo does not
have to build Helm. `python -m deploy.local.chart` writes the record, and a test compares the record with
Helm's output.

In a local cluster, the extender and the node agents usually run outside of Pods, like programs that pip
installed on hosts. The chart has values for this case (`outside`). Callers of this module add what is
local: ports, files, and the tests' changes.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm, helm_place
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec

CHART: Final = CHECKOUT / "deploy/charts/slurm-extender"
RELEASE: Final = "slurm-extender"
NAMESPACE: Final = "kube-system"
"""Namespace of the release: holds the Lease, the Secrets and the node agents' service account."""
AGENT_NAME: Final = f"{RELEASE}-node-agent"
"""The node agents' service account."""
POOLS_NAMESPACE: Final = "slurm-nodes"
AGENT_USER: Final = "node-agent"
"""The user of the guest's node agent. A service account does not work, because the node agent runs
outside of Pods, so that no kubelet renews the account's token."""
RECORD: Final = Path(__file__).with_name("rendered.json")
_RECORDED_PORT: Final = 65535
_RECORDED_CA: Final = "QVVUSE9SSVRZ"
"""The admission port and the CA bundle in the record. Each cluster replaces both by its own."""
_COMPONENT: Final = "app.kubernetes.io/component"
_RENDERED: Final = {
    "TAINT_NODES": "taintNodes",
    "SLURM_BRIDGE_ANNOTATIONS": "slurmBridgeAnnotations",
    "TAKE_SCHEDULERS": "takeSchedulers",
    "UNMANAGED_PODS": "unmanagedPods",
}
"""Settings of the extender on which the chart's objects depend, and the matching chart values."""

Manifest = dict[str, Any]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of the chart."""

    manifests: Sequence[Manifest]

    @classmethod
    def of(cls, helm: Path, values: Values, *options: str) -> Self:
        """Renders the chart. Raises ClusterError with Helm's message."""
        return cls.parsed(template(helm, values, *options))

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Returns the objects in Helm's output."""
        return cls([each for each in yaml.load_all(text, yaml.CSafeLoader) if each])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the objects in a file that `write` made."""
        return cls(json.loads(path.read_text()))

    @classmethod
    def recorded(cls, port: int, ca_bundle: str) -> Self:
        """Returns the recorded objects with the admission port and the CA bundle of a cluster."""
        address = f"127.0.0.1:{port}"
        text = RECORD.read_text().replace(f"127.0.0.1:{_RECORDED_PORT}", address)
        return cls(json.loads(text.replace(_RECORDED_CA, ca_bundle)))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.manifests))

    def find(self, kind: str, name: str) -> Manifest:
        """Returns the object. Raises KeyError if no object matches."""
        for each in self.manifests:
            if (each["kind"], each["metadata"]["name"]) == (kind, name):
                return each
        raise KeyError(f"{kind} {name}")

    def wanted(self, spec: ClusterSpec) -> Iterator[Manifest]:
        """Yields the objects that the components on this machine need. ConfigMaps are left out, because
        no component here reads them from kube-apiserver."""
        return (each for each in self.manifests if _is_wanted(spec, each))


def template(helm: Path, values: Values, *options: str) -> str:
    """Returns the chart's objects as Helm writes them. Raises ClusterError with Helm's message."""
    command = [str(helm), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    done = subprocess.run(
        [*command, *options], input=json.dumps(values), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"the chart was not rendered: {done.stderr.strip()}")
    return done.stdout


def values_of(spec: ClusterSpec, admission_port: int, ca_bundle: str) -> Values:
    """Returns the chart's values for a cluster. `ca_bundle` is the CA of the webhooks' certificate, or
    "" if not yet known."""
    scope: Values = {"type": "namespace", "namespaces": list(spec.namespaces)} if spec.namespaces else {}
    settings = {
        _RENDERED[name]: text == "true" or text
        for name, text in spec.extender_settings
        if name in _RENDERED and text != "false"
    }
    certificates = {"mode": "secret", "caBundle": ca_bundle}
    return {
        "scheduler": {
            "mode": "own" if spec.own_scheduler else "existing",
            "scope": scope,
            "podSelector": {"matchLabels": dict(spec.pod_labels)} if spec.pod_labels else {},
        },
        "extender": {
            "outside": {"enabled": True, "url": f"https://127.0.0.1:{admission_port}"},
            "settings": settings,
        },
        "webhooks": {
            "validatePods": spec.validates_pods,
            "certificates": {"mode": "selfManaged"} if spec.self_signed else certificates,
        },
        "nodeAgent": {"outside": {"enabled": True, "users": [AGENT_USER] if spec.guest else []}},
        "pools": {"enabled": bool(spec.pools), "namespace": POOLS_NAMESPACE},
    }


def needs_helm(spec: ClusterSpec) -> bool:
    """Returns whether the cluster renders the chart with Helm. A cluster whose values equal the recorded
    values uses the record, unless Helm is already built on this machine."""
    recorded, asked = (values_of(each, _RECORDED_PORT, _RECORDED_CA) for each in (ClusterSpec(), spec))
    return spec.kubernetes and (asked != recorded or helm_place().exists())


def render_record() -> str:
    """Returns new content for the record, rendered by Helm. Raises ClusterError."""
    values = values_of(ClusterSpec(), _RECORDED_PORT, _RECORDED_CA)
    return json.dumps(Rendered.of(helm(silent), values).manifests, indent=1) + "\n"


def _is_wanted(spec: ClusterSpec, manifest: Manifest) -> bool:
    kind, labels = manifest["kind"], manifest["metadata"].get("labels") or {}
    if kind == "ConfigMap":
        return False
    if kind == "Namespace" or labels.get(_COMPONENT) == "node-agent":
        return True
    if not spec.extender:
        return False
    if kind == "ValidatingWebhookConfiguration":
        return "validate" in spec.extender_verbs
    return "mutate" in spec.extender_verbs or kind in ("ClusterRole", "ClusterRoleBinding")


if __name__ == "__main__":
    RECORD.write_text(render_record())
