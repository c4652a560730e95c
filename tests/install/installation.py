"""A cluster on which helm installs the chart as users do. The images are already on the Node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.images.image import REGISTRY
from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.cluster import Cluster
from deploy.local.guest.machine import HOST
from deploy.local.guest.nodes import GPU, SLURMRESTD
from deploy.local.guest.oci import PAUSE
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.spec import GUEST, GUEST_CPUS, GUEST_GPUS, GUEST_MEMORY_MB
from tests.end_to_end.actors import Manifest
from tests.install.releases import WITHIN_S, Releases

CHART: Final = CHECKOUT / "deploy" / "charts" / "slurm-extender"
RELEASE: Final = "slurm-extender"
NAMESPACE: Final = "slurm-extender"
_SLURM_TOKEN: Final = "slurm-token"
_SLURMD_KEY: Final = "slurmd"
_OF_NODE: Final = {"users": "/etc/passwd", "groups": "/etc/group", "homes": "/home"}
"""Files and folders of the Node that jobs in slurmd Pods need, because the users exist on the Node."""
_PASSING: Final = ("events", "events.events.k8s.io")
"""Kinds of objects that kube-apiserver deletes after some time."""
_OF_KUBELETS: Final = "Lease kube-node-lease "


class Installation:
    """The chart on a cluster, and the actions of a cluster administrator."""

    def __init__(self, cluster: Cluster, helm: Path, slurmd: str) -> None:
        """`slurmd` is the image for slurmd Pods."""
        assert cluster.guest is not None
        self.cluster = cluster
        self._slurmd = slurmd
        self._guest = cluster.guest
        releases = Releases(cluster, helm, NAMESPACE)
        self.helm: Final = releases.helm
        self.until: Final = releases.until
        self._bare = self.objects()

    # Before the installation

    def prepare(self) -> None:
        """Creates the namespaces, and the Secrets that the chart's values name."""
        for namespace in (NAMESPACE, POOLS_NAMESPACE):
            self.cluster.kubectl("create", "namespace", namespace)
        token = f"--from-file=token={self.cluster.token_file}"
        self._secret(_SLURM_TOKEN, NAMESPACE, token)
        key = Layout(self.cluster.directory).slurm / "etc" / "slurm.key"
        self._secret(_SLURMD_KEY, POOLS_NAMESPACE, f"--from-file={key}")

    # Calls of helm

    def install(self, *options: str) -> None:
        self.helm("install", *self._chart(), "--wait", *options)

    def upgrade(self, *, replicas: int = 1) -> None:
        """Upgrades the release to the current images. The pool gets `replicas` slurmd Pods."""
        self.helm("upgrade", *self._chart(replicas), "--wait")

    def uninstall(self) -> None:
        """Follows docs/tasks/uninstall.md, and deletes the namespaces of `prepare`."""
        self.helm("uninstall", RELEASE, "--wait")
        self.cluster.kubectl("delete", "namespace", NAMESPACE, POOLS_NAMESPACE)

    def test(self) -> str:
        """Returns the output of `helm test`."""
        return self.helm("test", RELEASE, "--logs")

    # Reading the state of the cluster

    def pods(self, component: str) -> list[Manifest]:
        """Returns the Pods of a component of the chart. Leaves out Pods that are being deleted."""
        selector = f"app.kubernetes.io/component={component}"
        told = self.cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json").stdout
        return [pod for pod in json.loads(told)["items"] if "deletionTimestamp" not in pod["metadata"]]

    def objects(self) -> set[str]:
        """Returns a line with kind, namespace and name for each object. Leaves out kinds of objects that
        expire."""
        kinds = self.cluster.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
        wanted = ",".join(
            kind for kind in kinds if kind not in _PASSING and not kind.startswith("events.")
        )
        row = "{.kind} {.metadata.namespace} {.metadata.name}"
        form = "jsonpath={range .items[*]}" + row + '{"\\n"}{end}'
        return set(self.cluster.kubectl("get", wanted, "-A", "-o", form).stdout.splitlines())

    def left(self) -> list[str]:
        """Returns the new objects since the time before the installation, except the Leases of
        kubelets."""
        found = self.objects() - self._bare
        return sorted(each for each in found if not each.startswith(_OF_KUBELETS))

    def slurmd_pods(self) -> str:
        """Returns the names of the slurmd Pods; "" if no slurmd Pod exists."""
        return self.cluster.kubectl("get", "pods", "-n", POOLS_NAMESPACE, "-o", "name").stdout.strip()

    def slurm_node(self) -> str:
        """Returns the Node's state in Slurm; "" if Slurm does not know the Node."""
        return self.cluster.run_slurm("sinfo", "-hN", "-o", "%T").stdout.strip()

    def inside(self, component: str, program: str) -> str:
        """Runs a Python program in the component's container, which has no shell. Returns the output."""
        name = self.pods(component)[0]["metadata"]["name"]
        argv = ("exec", "-n", NAMESPACE, name, "--", "python3", "-c", program)
        return self.cluster.kubectl(*argv).stdout

    def state_of(self, container: str) -> Manifest:
        """Returns the kubelet's status of a container of the extender's Pod."""
        (pod,) = self.pods("extender")
        states = {each["name"]: each for each in pod["status"]["containerStatuses"]}
        return dict(states[container])

    def holder(self, lease: str) -> str:
        """Returns the holder of a Lease; "" if the Lease has no holder."""
        asks = ("get", "lease", lease, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}")
        return self.cluster.kubectl(*asks).stdout

    def signal(self, name: str) -> None:
        """Sends a signal to the extender's process. The signal comes from the Node, and not from a
        process in the container."""
        self._guest.run(f"pkill -{name} -f 'slurm-extender [s]erve'")

    def _secret(self, name: str, namespace: str, *given: str) -> None:
        self.cluster.kubectl("create", "secret", "generic", name, "-n", namespace, *given)

    def _chart(self, replicas: int = 1) -> tuple[str, ...]:
        values = self.cluster.directory / "values.yaml"
        values.write_text(yaml.safe_dump(self._values(replicas)))
        return (RELEASE, str(CHART), f"--values={values}")

    def _values(self, replicas: int) -> dict[str, Any]:
        host, _, port = SLURMRESTD.rpartition(":")
        return {
            "slurm": {"restUrl": f"http://{host}:{port}", "tokenSecret": {"name": _SLURM_TOKEN}},
            "gpuTypes": {GPU: "gpu"},
            "policy": {"preset": "open", "rules": []},
            # A single replica, because the cluster has a single Node with emulated processors.
            "extender": {
                "replicas": 1,
                "preStopSleepSeconds": 1,
                "settings": {"sharedGpus": "node-agent"},
            },
            "scheduler": {"image": _image("kube-scheduler")},
            "pools": {
                "enabled": True,
                "namespace": POOLS_NAMESPACE,
                "createNamespace": False,
                "controllers": [f"slurmctld:{self.cluster.ports['slurmctld']}"],
                "pools": [{**self._pool(), "replicas": replicas}],
            },
            "check": {"image": PAUSE, "timeoutSeconds": int(WITHIN_S) - 60},
        }

    def _pool(self) -> dict[str, Any]:
        port = self.cluster.ports["slurmd-guest"]
        size = f"CPUs={GUEST_CPUS} Sockets=1 CoresPerSocket={GUEST_CPUS} ThreadsPerCore=1"
        volumes: dict[str, Any] = {n: {"hostPath": {"path": path}} for n, path in _OF_NODE.items()}
        volumes["slurm"] = {"secret": {"secretName": _SLURMD_KEY, "defaultMode": 0o400}}
        mounts = {**_OF_NODE, "slurm": "/etc/slurm"}
        container = {
            "name": "slurmd",
            "image": self._slurmd,
            "imagePullPolicy": "Never",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
        }
        spec = {
            "hostNetwork": True,
            # QEMU's address for the host's loopback
            "hostAliases": [{"ip": HOST, "hostnames": ["slurmctld"]}],
            "containers": [container],
            "volumes": [{"name": name} | source for name, source in volumes.items()],
        }
        return {
            "name": "guests",
            "nodeSelector": {"kubernetes.io/hostname": GUEST},
            "slurm": {
                "features": ["pool"],
                "gres": f"gpu:h100:{GUEST_GPUS}",
                "conf": f"Port={port} {size} RealMemory={GUEST_MEMORY_MB}",
            },
            "template": {"spec": spec},
        }


def _image(name: str) -> dict[str, str]:
    registry, _, folder = REGISTRY.partition("/")
    return {"registry": registry, "repository": f"{folder}/{name}"}
