"""The guest as a Node of a pool. slurmd runs in a Pod that the node agent creates."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.guest.machine import HOST
from deploy.local.guest.oci import SLURMD
from deploy.local.layout import Layout
from deploy.local.spec import GUEST, GUEST_CPUS, GUEST_GPUS, GUEST_MEMORY_MB
from tests.end_to_end.actors import Manifest
from tests.eventually import eventually
from tests.node.real_node import PROGRAMS, STARTS_WITHIN_S, RealNode, in_words
from wellknown.names import REVISION
from wellknown.slurmd_pod import pod_name

SLURMD_POD: Final = pod_name(GUEST)
FEATURE: Final = "pool"
_SECRET: Final = "slurmd"
_OF_NODE: Final = {"usr": "/usr", "users": "/etc/passwd", "groups": "/etc/group", "homes": "/home"}
"""Paths of the Node in slurmd's container. /home stands in for a shared file system."""


class PoolNode(RealNode):
    """Acts on the Node and on the pool of the Node."""

    programs = tuple(name for name in PROGRAMS if name != "slurmd-guest")

    def begin(self) -> None:
        """Brings the Node into service with the first template."""
        self.start_all()
        if not self._listed("secrets"):
            self._create_secret()
        self.write()
        self.serves()
        super().begin()

    def write(self, said: str = "first", *, slurm: dict[str, Any] | None = None, **more: Any) -> None:
        """Writes the file of the pools. `said` is a variable of slurmd's environment: a new value makes
        a new template. `more` has other fields of the container."""
        port = self.cluster.ports["slurmd-guest"]
        size = f"CPUs={GUEST_CPUS} Sockets=1 CoresPerSocket={GUEST_CPUS} ThreadsPerCore=1"
        volumes: dict[str, Any] = {n: {"hostPath": {"path": path}} for n, path in _OF_NODE.items()}
        volumes["slurm"] = {"secret": {"secretName": _SECRET, "defaultMode": 0o400}}
        mounts = {**_OF_NODE, "slurm": "/etc/slurm"}
        container = {
            "name": "slurmd",
            "image": SLURMD,
            "imagePullPolicy": "Never",
            "env": [{"name": "SAID", "value": said}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
        }
        spec = {
            "hostNetwork": True,
            # QEMU's name for the host's loopback
            "hostAliases": [{"ip": HOST, "hostnames": ["slurmctld"]}],
            "containers": [container | more],
            "volumes": [{"name": name} | source for name, source in volumes.items()],
        }
        told = {
            "features": [FEATURE],
            "gres": f"gpu:h100:{GUEST_GPUS}",
            "conf": f"Port={port} {size} RealMemory={GUEST_MEMORY_MB}",
        }
        pool = {
            "name": "guests",
            "nodeSelector": {"kubernetes.io/hostname": GUEST},
            "slurm": told | (slurm or {}),
            "update": {"stopAfter": 1},  # there is no second Node
            "template": {"spec": spec},
        }
        controllers = [f"slurmctld:{self.cluster.ports['slurmctld']}"]
        self.cluster.pools_file.write_text(yaml.safe_dump({"controllers": controllers, "pools": [pool]}))

    def _create_secret(self) -> None:
        """Creates the Secret for slurmd's directory /etc/slurm: slurmd's key, and the gate's access to
        the extender."""
        layout = Layout(self.cluster.directory)
        token = layout.hooks_token_file
        url = f"http://slurmctld:{self.cluster.ports['extender-hooks']}"
        conf = (
            f'SLURM_EXTENDER_HOOKS_URLS="{url}"\n'
            f"SLURM_EXTENDER_HOOKS_TOKEN_FILE=/etc/slurm/{token.name}\n"
        )
        files = (
            f"--from-file={layout.slurm / 'etc' / 'slurm.key'}",
            f"--from-file={token}",
            f"--from-literal=slurm-extender-hook.conf={conf}",
        )
        self.cluster.kubectl("create", "secret", "generic", _SECRET, "-n", POOLS_NAMESPACE, *files)

    # Observations

    def slurmd_pod(self) -> Manifest | None:
        found = self._listed("pods")
        return next((each for each in found if each["metadata"]["name"] == SLURMD_POD), None)

    def said(self) -> str:
        """Returns `said` from the slurmd Pod's template; "" if no slurmd Pod exists, or if the Pod is
        being deleted."""
        pod = self.slurmd_pod()
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return ""
        (container,) = pod["spec"]["containers"]
        return str(next(each["value"] for each in container["env"] if each["name"] == "SAID"))

    def revision(self) -> str:
        pod = self.slurmd_pod()
        return str(pod["metadata"]["labels"][REVISION]) if pod else ""

    def state(self) -> str:
        """Returns the node's state as sinfo reports; "" if Slurm does not know the node."""
        return self.cluster.run_slurm("sinfo", "-hN", "-o", "%T").stdout.strip()

    def takes_jobs(self) -> bool:
        return self.state() in ("idle", "mixed", "allocated")

    def serves(self, said: str = "first") -> None:
        """Waits until the node takes jobs, with a slurmd Pod of this template."""
        eventually(lambda: self.said() == said, f"a slurmd Pod of {said}", STARTS_WITHIN_S)
        eventually(self.takes_jobs, "the node takes jobs", STARTS_WITHIN_S)

    def slurmd_cgroup(self) -> str:
        """Returns the path of the slurmd Pod's cgroup in the guest."""
        pod = self.slurmd_pod()
        assert pod is not None
        uid = pod["metadata"]["uid"]
        names = (f"*pod{uid}*", f"*pod{uid.replace('-', '_')}*")
        found = f"find /sys/fs/cgroup/kubepods* -type d -name '{names[0]}' -o -name '{names[1]}'"
        return self.guest.run(found).output.splitlines()[0]

    def jobs_in_slurmd_pod(self) -> list[str]:
        """Returns the cgroups of native jobs below the slurmd Pod's cgroup."""
        found = f"find {self.slurmd_cgroup()} -type d -name 'step_*' -printf '%h\\n' | sort -u"
        return self.guest.run(found).output.splitlines()

    def started(self) -> float:
        """Returns the start time of slurmd's container, by the guest's clock, in whole seconds."""
        pod = self.slurmd_pod()
        assert pod is not None
        began = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        return float(self.guest.run(f"date -d {began} +%s").output)

    def output(self, job: int) -> str:
        """Returns the output of a job so far, from the Node's /home."""
        return self.guest.run(f"cat /home/alice/slurm-{job}.out 2> /dev/null", check=False).output

    def completed(self, job: int) -> bool:
        state = self.job_state(job)
        assert state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "COMPLETED"), state
        return state == "COMPLETED"

    def nodes_of(self, job: int) -> str:
        told = self.cluster.run_slurm("scontrol", "show", "job", str(job)).stdout
        return in_words(told, r" NodeList=(\S+)")

    def _listed(self, kind: str) -> list[Manifest]:
        shown = self.cluster.kubectl("get", kind, "-n", POOLS_NAMESPACE, "-o", "json").stdout
        return list(json.loads(shown)["items"])
