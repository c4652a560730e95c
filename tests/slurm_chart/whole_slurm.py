"""Installs both charts on an empty cluster, as described in docs/tasks/slurm-chart.md, and logs users in
to Slurm."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import trustme
import yaml

from deploy.charts.slurm_pages import CHART
from deploy.images.image import REGISTRY
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.guest.machine import HOST
from deploy.local.guest.oci import PAUSE
from deploy.local.layout import CHECKOUT
from deploy.local.processes.ports import lease_ports
from deploy.local.spec import GUEST
from tests.documentation.commands import commands
from tests.documentation.pages import blocks
from tests.install.installation import CHART as EXTENDER_CHART
from tests.install.releases import WITHIN_S, Releases
from tests.login.client import Client, Done, KeyPair
from tests.login.directory_server import BASE, READER, READER_PASSWORD, Person

NAMESPACE: Final = "slurm"
TEAM: Final = "team-a"
"""Namespace whose Pods may become jobs in Slurm, as on the page."""
TEAMS_USER: Final = 2001
"""Slurm user of the Pods in TEAM."""
DIRECTORY: Final = "ldap.directory.svc"
"""Name of the Service that leads to slapd on the host."""
_NODES: Final = "slurm-nodes"
_PAGE: Final = CHECKOUT / "docs" / "tasks" / "slurm-chart.md"
_LDAPS: Final = 636
_VOLUMES: Final = 3
"""Number of volumes: one for Slurm's state, one for the database, one for the dumps."""
_HOMES: Final = {"hostPath": {"path": "/srv/home", "type": "DirectoryOrCreate"}}


@dataclass(frozen=True)
class Directory:
    """The ports of slapd, which runs on the host, and the CA of slapd's certificate."""

    ports: dict[str, int]
    authority: trustme.CA


class WholeSlurm:
    """A cluster on which the tests install the releases slurm and slurm-extender."""

    def __init__(self, cluster: Cluster, helm: Path, directory: Directory, release: str) -> None:
        assert cluster.guest is not None
        self.cluster = cluster
        self._release = release
        self.guest: Final = cluster.guest
        self._directory = directory
        releases = Releases(cluster, helm, NAMESPACE)
        self.helm: Final = releases.helm
        self.until: Final = releases.until

    # Actions of an administrator or a user

    def prepare(self) -> None:
        """Prepares the cluster: volumes, labels of Nodes, a directory, and the namespaces of the page's
        first commands."""
        self.guest.run(f"mkdir -p {' '.join(f'/mnt/{name}' for name in _volumes())}")
        for namespace in (NAMESPACE, _NODES, TEAM, "directory"):
            self._kubectl("create", "namespace", namespace)
        for namespace in (NAMESPACE, _NODES):
            label = "pod-security.kubernetes.io/enforce=privileged"
            self._kubectl("label", "namespace", namespace, label)
        self._kubectl("label", "node", GUEST, "nvidia.com/gpu.present=true")
        objects = [_storage_class(), *map(_volume, _volumes()), *_directory_objects(self._directory)]
        self._kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def install(self) -> None:
        """Installs both charts, first slurm and then slurm-extender."""
        self.upgrade()
        values = self._file("slurm-extender", _extender_values())
        self.helm("install", "slurm-extender", str(EXTENDER_CHART), values, "--wait")

    def upgrade(self, **more: Any) -> None:
        """Installs the release slurm, or upgrades the release with other values."""
        values = self._file("slurm", _slurm_values() | {"slurmRelease": self._release} | more)
        self.helm("upgrade", "--install", "slurm", str(CHART), values, "--wait")

    def create(self, name: str, command: str) -> None:
        """Creates a Pod with only the fields that a user of the page writes."""
        container = {
            "name": "c",
            "image": "local.test/box:1",
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", command],
            "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": TEAM,
                "annotations": {"sunk.coreweave.com/comment": "beside jobs"},
            },
            "spec": {
                "containers": [container],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 2,
            },
        }
        self._kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod))

    def delete(self, name: str) -> None:
        self._kubectl("delete", "pod", name, "-n", TEAM, "--wait=false")

    @contextmanager
    def ssh(self, folder: Path) -> Iterator[Client]:
        """Forwards a port to the login Pod, as described in docs/tasks/users.md, and yields an ssh
        client."""
        lease = lease_ports(["ssh"])
        lease.close()
        port = lease.ports["ssh"]
        kubectl = str(self.cluster.directory / "bin" / "kubectl")
        forward = [kubectl, "port-forward", "-n", NAMESPACE, "service/login", f"{port}:22"]
        with subprocess.Popen(forward, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert "Forwarding" in process.stdout.readline()
                yield Client(folder, port, self._host_key(folder))
            finally:
                process.terminate()

    def follow(self, words: str) -> None:
        """Runs the block of the page's commands that contains the given text."""
        (block,) = (each for each in blocks(_PAGE) if words in each.text)
        path = f"{self.cluster.directory / 'bin'}:{os.environ['PATH']}"
        for each in commands(block):
            subprocess.run(each.text, shell=True, check=True, env={**os.environ, "PATH": path})

    def dump(self) -> None:
        """Dumps the database now."""
        self._kubectl("create", "job", "-n", NAMESPACE, "dump", "--from=cronjob/mariadb-backup")
        self.job_succeeds("dump")

    def job_succeeds(self, name: str) -> None:
        done = "jsonpath={.status.succeeded}"
        self.until(
            lambda: self._kubectl("get", "job", name, "-n", NAMESPACE, "-o", done) == "1",
            f"the Job {name} succeeds",
        )

    # Reading the state of the cluster

    def slurm(self, *command: str) -> str:
        """Returns the output of a Slurm program in slurmctld's Pod; "" if the program fails."""
        try:
            return self.inside("slurmctld-0", "slurmctld", *command)
        except ClusterError:
            return ""

    def inside(self, pod: str, container: str, *command: str) -> str:
        return self._kubectl("exec", "-n", NAMESPACE, pod, "-c", container, "--", *command)

    def phase(self, name: str) -> str:
        """Returns the phase of a Pod in the team's namespace."""
        return self._kubectl("get", "pod", name, "-n", TEAM, "-o", "jsonpath={.status.phase}")

    def uid(self, name: str) -> str:
        """Returns the uid of a Pod in the team's namespace."""
        return self._kubectl("get", "pod", name, "-n", TEAM, "-o", "jsonpath={.metadata.uid}")

    def is_there(self, pod: str) -> bool:
        """Returns True if this Pod exists in Slurm's namespace."""
        return bool(
            self._kubectl("get", "pod", pod, "-n", NAMESPACE, "--ignore-not-found", "-o", "name")
        )

    def events(self, pod: str) -> str:
        """Returns the Events about a Pod."""
        about = ("--field-selector", f"involvedObject.name={pod}")
        return self._kubectl("get", "events", "-n", NAMESPACE, *about)

    def delete_slurmctld(self) -> None:
        """Deletes slurmctld's Pod without a grace period. The StatefulSet creates a new Pod, which
        starts without CrashLoopBackOff."""
        now = ("--force", "--grace-period=0")
        self._kubectl("delete", "pod", "slurmctld-0", "-n", NAMESPACE, *now)

    def scale(self, kind: str, replicas: int) -> None:
        self._kubectl("scale", "-n", NAMESPACE, kind, f"--replicas={replicas}")

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, stdin=stdin).stdout

    def _host_key(self, folder: Path) -> str:
        """Returns the public host key of the login Pod, as a line of a .pub file. An administrator gives
        this line to users."""
        name = "ssh_host_ed25519_key"
        path = f"jsonpath={{.data.{name}}}"
        told = self._kubectl("get", "secret", "login-host-keys", "-n", NAMESPACE, "-o", path)
        private = folder / name
        private.touch(0o600)
        private.write_bytes(base64.b64decode(told))
        command = ["ssh-keygen", "-y", "-f", str(private)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def _file(self, name: str, values: dict[str, Any]) -> str:
        path = self.cluster.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        return f"--values={path}"


@dataclass(frozen=True)
class LoggedIn:
    """A user of the directory, who runs commands by ssh in the login Pod."""

    person: Person
    key: KeyPair
    client: Client | None = None

    def at(self, client: Client) -> LoggedIn:
        return replace(self, client=client)

    def run(self, *command: str) -> str:
        """Returns the output of a command. Fails if ssh or the command fails."""
        done = self.attempt(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def attempt(self, *command: str) -> Done:
        assert self.client is not None
        return self.client.by_key(self.person.name, self.key, *command)

    def submit(self, script: str, *options: str) -> str:
        """Submits a job and returns the job's id."""
        return self.run(f"sbatch --parsable {' '.join(options)} --wrap '{script}'").strip()

    def records(self) -> dict[str, str]:
        """Returns the states of all jobs in sacct, by job id; empty if sacct fails."""
        said = self.attempt("sacct --noheader --parsable2 -X --allusers --format=JobID,State")
        rows = [line.split("|") for line in said.stdout.splitlines()]
        return {row[0]: row[1] for row in rows}


def _slurm_values() -> dict[str, Any]:
    """Returns the values that the page gives for the chart slurm, plus a directory and home folders."""
    return {
        "slurmd": {"namespaces": [_NODES]},
        "directory": {
            "preset": "openldap",
            "uris": [f"ldaps://{DIRECTORY}"],
            "baseDn": BASE,
            "bindDn": READER,
            "bindPasswordSecret": {"name": "ldap-reader"},
            "caSecret": {"name": "ldap-ca"},
        },
        "volumes": [{"name": "home", "mountPath": "/home", "source": _HOMES}],
    }


def _extender_values() -> dict[str, Any]:
    """Returns the values that the page gives for the chart slurm-extender, plus home folders and local
    images."""
    (block, *_) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    values: dict[str, Any] = yaml.safe_load(block)
    (pool,) = values["pools"]["pools"]
    spec = pool["template"]["spec"]
    spec["volumes"].append({"name": "home", **_HOMES})
    spec["containers"][0]["volumeMounts"].append({"name": "home", "mountPath": "/home"})
    registry, _, folder = REGISTRY.partition("/")
    image = {"registry": registry, "repository": f"{folder}/kube-scheduler"}
    check = {"image": PAUSE, "timeoutSeconds": int(WITHIN_S) - 60}
    return {**values, "scheduler": {"image": image}, "check": check}


def _volumes() -> Sequence[str]:
    return [f"volume-{number}" for number in range(_VOLUMES)]


def _storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "local",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(name: str) -> dict[str, Any]:
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [GUEST]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
        },
    }


def _directory_objects(directory: Directory) -> Iterator[dict[str, Any]]:
    """Yields the directory's Service and the Secrets of docs/tasks/users.md."""
    name, namespace, _ = DIRECTORY.split(".")
    port = {"name": "ldaps", "protocol": "TCP"}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [port | {"port": _LDAPS}]},
    }
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [HOST], "conditions": {"ready": True}}],
        "ports": [port | {"port": directory.ports["ldaps"]}],
    }
    authority = directory.authority.cert_pem.bytes().decode()
    secrets = {"ldap-reader": {"password": READER_PASSWORD}, "ldap-ca": {"ca.crt": authority}}
    for secret, data in secrets.items():
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret, "namespace": NAMESPACE},
            "stringData": data,
        }
