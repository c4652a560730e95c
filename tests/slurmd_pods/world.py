"""Lets the tests of pools act as users and administrators do (kubectl, scontrol), and reads the state of
the cluster and of the fleet."""

from __future__ import annotations

import json
from typing import Any

import yaml

from deploy.local.chart import POOLS_NAMESPACE
from slurm_client import hostlist
from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually, eventually_not
from tests.slurmd_pods.fleet import Fleet, options_of
from tests.slurmd_pods.page import file_with
from wellknown.slurmd_pod import pod_name

NODES = ["dynamic-1", "dynamic-2", "dynamic-3", "dynamic-4"]
OTHERS = ["dynamic-5", "dynamic-6"]
"""Nodes outside the pool, without agents."""
POWER_SAVING = (
    *("SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTime=86400", "SuspendTimeout=3"),
    "ResumeTimeout=60",
    "SlurmctldParameters=conmgr_threads=2,enable_configless,power_save_interval=1",
)
IMAGE = "registry.example.com/slurmd:1"
"""Image in the page's first example."""
GRES = "gpu:h100:4"
"""Devices in the page's first example."""


def pools(image: str = IMAGE, **changed: Any) -> str:
    """Returns the file of the page's first example, with this image and with changes in the pool."""
    container = {"name": "slurmd", "image": image}
    return yaml.safe_dump(file_with({"template": {"spec": {"containers": [container]}}} | changed))


class World:
    """A cluster with users, an administrator and a fleet of Nodes."""

    def __init__(self, actors: Actors, fleet: Fleet) -> None:
        self.actors, self.fleet, self.cluster = actors, fleet, actors.cluster
        self.image = IMAGE
        """Image that all slurmd Pods have when a test starts."""

    def write(self, text: str) -> None:
        self.cluster.pools_file.write_text(text)

    def label(self, *nodes: str) -> None:
        """Gives the label of the pool to exactly the given Nodes."""
        for mark, marked in ("pool=yes", {*nodes}), ("pool-", {*NODES} - {*nodes}):
            if marked:
                self.cluster.kubectl("label", "node", *sorted(marked), mark, "--overwrite")

    def nodes(self) -> dict[str, dict[str, Any]]:
        shown = self.cluster.run_slurm("scontrol", "show", "nodes", "--json").stdout
        return {node["name"]: node for node in json.loads(shown)["nodes"]}

    def states(self) -> dict[str, set[str]]:
        """Returns the states of the pool's nodes in Slurm."""
        return {name: set(node["state"]) for name, node in self.nodes().items() if name in NODES}

    def node(self, name: str) -> tuple[frozenset[str], str]:
        """Returns the states and the reason of a node in Slurm; both are empty if Slurm does not know
        the node."""
        node = self.nodes().get(name, {"state": (), "reason": ""})
        return frozenset(node["state"]), node["reason"]

    def update_node(self, name: str, state: str, reason: str = "") -> None:
        """Updates a node with scontrol, as an administrator does."""
        words = [f"Reason={reason}"] if reason else []
        self.cluster.run_slurm("scontrol", "update", f"NodeName={name}", f"State={state}", *words)

    def weights(self) -> dict[str, int]:
        return {name: int(node["weight"]) for name, node in self.nodes().items()}

    def reserved(self, name: str) -> list[str]:
        """Returns the nodes of a reservation in Slurm; empty if the reservation does not exist."""
        shown = self.cluster.run_slurm("scontrol", "show", "reservations", "--json").stdout
        listed = json.loads(shown)["reservations"]
        return [
            node for one in listed if one["name"] == name for node in hostlist.expand(one["node_list"])
        ]

    def adopted(self, pod: str) -> str:
        """Returns the node of an adopted Pod's running job; "" if the job does not run."""
        job = self.actors.job_of(pod)
        return job.node if job is not None and job.state == "RUNNING" else ""

    def open(self) -> set[str]:
        """Returns the nodes that take jobs."""
        closed = {"DRAIN", "DOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}
        return {name for name, states in self.states().items() if not states & closed}

    def images(self) -> dict[str, str]:
        """Returns the image of each Node's slurmd Pod. Calls kube-apiserver directly, because each start
        of kubectl takes 0.14 s of CPU."""
        pods = f"{self.cluster.api_server_url}/api/v1/namespaces/{POOLS_NAMESPACE}/pods"
        listed = self.actors.api.get(pods).raise_for_status().json()
        return {
            pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
            for pod in listed["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }

    def image_of_all(self) -> str:
        """Returns the common image of all slurmd Pods, if all Nodes take jobs; otherwise IMAGE."""
        images = self.images()
        alike = images.keys() == {*NODES} and len({*images.values()}) == 1 and self.open() == {*NODES}
        return images[NODES[0]] if alike else IMAGE

    def all_serve(self, *nodes: str, image: str = "", within: float = 60.0) -> None:
        """Waits until exactly the given Nodes take jobs and run this image (by default `self.image`)."""
        image = image or self.image
        expected = dict.fromkeys(nodes, image)
        eventually(lambda: self.images() == expected, f"slurmd Pods of {image}", within)
        eventually(lambda: self.open() == set(nodes), f"{nodes} open", within)

    def all_run(self, image: str, weight: int, within: float) -> None:
        """Waits until all Nodes run this image, and all nodes in Slurm have this weight and the devices
        GRES."""
        told = {"weight": weight, "gres": GRES}.items()

        def old() -> list[str]:
            images, nodes = self.images(), self.nodes()
            return [
                name
                for name in NODES
                if images.get(name) != image or not told <= nodes.get(name, {}).items()
            ]

        eventually_not(old, f"all Nodes run {image}", within)

    def restart_slurmd(self, node: str) -> None:
        """Kills slurmd, and starts slurmd again with the options of the Node's slurmd Pod."""
        self.cluster.kill(f"slurmd-{node}")
        pod = ("get", "pod", "-n", POOLS_NAMESPACE, pod_name(node), "-o", "json")
        (container,) = json.loads(self.cluster.kubectl(*pod).stdout)["spec"]["containers"]
        self.cluster.register(node, *options_of(container["args"]))

    def sbatch(self, seconds: float, *options: str) -> int:
        done = self.cluster.run_slurm(
            *("sbatch", "--parsable", "-p", "dynamic", "-o", "/tmp/job-%j", "--mem=100"),
            *(*options, f"--wrap=date +%s.%N; sleep {seconds}"),
        )
        return int(done.stdout)

    def job(self, job_id: int) -> dict[str, Any]:
        shown = self.cluster.run_slurm("scontrol", "show", "job", str(job_id), "--json").stdout
        return dict(json.loads(shown)["jobs"][0])

    def runs(self, job_id: int) -> str:
        """Returns the nodes of a running job; "" if the job does not run."""
        job = self.job(job_id)
        return str(job["nodes"]) if "RUNNING" in job["job_state"] else ""

    def completed(self, job_id: int) -> bool:
        state = self.job(job_id)["job_state"]
        assert not {"FAILED", "NODE_FAIL", "CANCELLED", "REQUEUED"} & set(state), state
        return "COMPLETED" in state

    def metric(self, name: str) -> dict[str, float]:
        text = fetch(f"http://127.0.0.1:{self.cluster.ports['extender-metrics']}/metrics").text
        lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(name))
        return {key: float(value) for key, _, value in lines}
