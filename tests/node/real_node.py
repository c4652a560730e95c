"""The guest as a Node: Pods with running containers, native jobs, and the devices that a Pod or a job
can open."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from deploy.local.guest.connection import Connection
from deploy.local.guest.nodes import GPU, agent_argv
from deploy.local.guest.oci import BOX
from deploy.local.spec import GUEST, GUEST_GPUS
from slurm_client import gres
from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually
from wellknown.allocation import Allocation
from wellknown.names import DEVICE_PROBLEM

STARTS_WITHIN_S: Final = 120.0
"""Time limit for actions that take 5 s on an idle machine. On a busy machine, the guest has only a part
of two cores."""
PROGRAMS: Final = ("guest", "containerd", "kubelet", "slurmd-guest", "node-agent", "extender")
REFUSED: Final = "Operation not permitted"
_NUMBER: Final = re.compile(r"^opened (\d)$", re.MULTILINE)

_OPEN_EACH: Final = """
for n in 0 1 2 3 4 5 6 7; do
    if ( : < %s$n ); then echo "opened $n"; fi
done 2>&1
"""


CPUS_OF_JOB: Final = r"CPU_IDs=(\S+)"
GPUS_OF_JOB: Final = r" GRES=(\S+)"
"""Patterns in the output of `scontrol show job --detail` for a running job."""


def in_words(told: str, wanted: str) -> str:
    """Returns the first group of a regular expression's match."""
    found = re.search(wanted, told)
    assert found is not None, told
    return found[1]


def open_each(files: str = "/dev/fgpu") -> str:
    """Returns a script of sh that opens each device. A device's file is `files` followed by the device's
    number."""
    return _OPEN_EACH % files


@dataclass(frozen=True)
class Opened:
    """Output of a script of `open_each`: the numbers of the opened devices, and the errors of the other
    devices."""

    numbers: frozenset[int]
    said: str

    @classmethod
    def of(cls, said: str) -> Opened:
        return cls(frozenset(map(int, _NUMBER.findall(said))), said)

    @property
    def refused(self) -> int:
        """Number of devices that the kernel's device programs refused. Devices with other errors do not
        count."""
        return self.said.count(REFUSED)


class RealNode:
    """Acts on the Node, and observes the Node."""

    programs: Sequence[str] = PROGRAMS
    """Programs of the Node, in the order of their starts."""
    gpu = GPU
    """Extended resource of the devices that new Pods request."""
    counted: Mapping[str, int] = {GPU: GUEST_GPUS}
    """Number of devices of each extended resource that Slurm counts."""

    def __init__(self, actors: Actors) -> None:
        self.actors = actors
        self.cluster = actors.cluster
        assert self.cluster.guest is not None
        self.guest: Connection = self.cluster.guest

    def begin(self) -> None:
        """Gives new names to the Pods of the next test, and starts every program."""
        self.actors.begin()
        self.start_all()
        self.counts()

    def clean_up(self) -> None:
        """Deletes all Pods and jobs, even if a test has failed half-way."""
        self.guest.run("pkill -CONT -x kubelet", check=False)
        self.start_all()
        self.actors.api.delete("/pods", params={"gracePeriodSeconds": 1}).raise_for_status()
        eventually(lambda: not self.actors.pods(), "no Pods left", STARTS_WITHIN_S)
        self.actors.clean_up()

    def start_all(self) -> None:
        """Starts each program that does not run."""
        for name in self.programs:
            if not self.cluster.is_running(name):
                self.cluster.start(name)

    def counts(self) -> None:
        """Waits until the kubelet counts the GPUs, as after each start of the kubelet or of the
        agent."""
        wanted = {name: str(number) for name, number in self.counted.items()}
        what = "the kubelet counts the GPUs"
        eventually(lambda: wanted.items() <= self.allocatable().items(), what, STARTS_WITHIN_S)

    def allocatable(self) -> dict[str, str]:
        """Returns the amount of each resource that the kubelet reports as allocatable."""
        return dict(self._status()["allocatable"])

    def device_problem(self) -> Mapping[str, str]:
        """Returns the agent's condition on the Node; {} if the Node does not have the condition."""
        conditions = {each["type"]: each for each in self._status()["conditions"]}
        return dict(conditions.get(DEVICE_PROBLEM, {}))

    def _status(self) -> Manifest:
        return dict(json.loads(self.actors.kubectl("get", "node", GUEST, "-o", "json").stdout)["status"])

    def drained(self) -> str:
        """Returns the reason why the node is drained in Slurm; "none" if the node is not drained."""
        return self.cluster.run_slurm("sinfo", "-hN", "-o", "%E").stdout.strip()

    # Pods

    def create(self, name: str, *, gpus: int = 0, cpu: str = "1", **given: Any) -> None:
        """Creates a privileged Pod that Slurm places. The Pod sleeps, and sees all devices of the Node
        in /dev and in /node-dev. `given` has more fields of the Pod's spec."""
        given.setdefault("terminationGracePeriodSeconds", 2)
        whole = container(gpus, cpu, self.gpu)
        self.actors.create(name, containers=[whole], volumes=_VOLUMES, **given)

    def run(self, name: str, **given: Any) -> Manifest:
        """Creates a Pod as `create` does. Returns the Pod after the container has started."""
        self.create(name, **given)
        return self.running(name)

    def create_unprivileged(self, name: str, *, gpus: int = 0, cpu: str = "1") -> None:
        """Creates a Pod that Slurm places. The Pod sleeps, and has only the granted devices."""
        plain = {**container(gpus, cpu, self.gpu), "securityContext": {}, "volumeMounts": []}
        self.actors.create(name, containers=[plain], terminationGracePeriodSeconds=2)

    def create_of(self, name: str, containers: list[Manifest], **given: Any) -> None:
        """Creates a Pod of these containers that Slurm places. The containers may mount the Node's
        devices."""
        volumes = [*_VOLUMES, *given.pop("volumes", [])]
        self.actors.create(
            name, containers=containers, volumes=volumes, terminationGracePeriodSeconds=2, **given
        )

    def create_here(self, name: str, **given: Any) -> None:
        """Creates the same Pod as `create`, but without a job. The Pod names the Node, and no scheduler
        places the Pod."""
        self.create(name, scheduler="default-scheduler", nodeName=GUEST, **given)

    def grant(self, name: str, numbers: Sequence[int]) -> None:
        """Writes a grant of these GPUs onto a Pod, as the extender does."""
        allocation = Allocation(
            job_id=4_000_000,
            node=GUEST,
            gres=f"gpu:h100:{len(numbers)}(IDX:{','.join(map(str, numbers))})",
        )
        patch = {"metadata": {"annotations": allocation.annotations()}}
        self.actors.api.patch(
            f"/pods/{self.actors.full(name)}",
            content=json.dumps(patch),
            headers={
                "Content-Type": "application/merge-patch+json",
                "Impersonate-User": "slurm-extender",
            },
        ).raise_for_status()

    def running(self, name: str) -> Manifest:
        """Waits until the Pod's container runs, and returns the Pod."""

        def see() -> Manifest | None:
            seen = self.actors.see(name)
            return seen if seen and seen["status"].get("phase") == "Running" else None

        try:
            found = eventually(see, f"{name} running", STARTS_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.actors.events(name)}") from None
        assert found is not None
        return found

    def uid(self, name: str) -> str:
        seen = self.actors.see(name)
        assert seen is not None, f"{name} is gone"
        return str(seen["metadata"]["uid"])

    def granted(self, name: str) -> frozenset[int]:
        """Returns the numbers of the GPUs that Slurm granted to a Pod."""
        return frozenset(gres.numbers(self.allocation(name).gres).get("gpu", ()))

    def allocation(self, name: str) -> Allocation:
        """Returns Slurm's grant for a Pod."""
        seen = self.actors.see(name)
        assert seen is not None, f"{name} is gone"
        found = Allocation.parse(seen["metadata"]["annotations"])
        assert found is not None
        return found

    def limit(self, name: str, file: str) -> str:
        """Returns the content of a file in the Pod's own cgroup."""
        return self.guest.run(f"cat {self.cgroup(name)}/{file}").output.strip()

    def write_limit(self, name: str, file: str, text: str) -> None:
        """Writes into a file in the Pod's own cgroup, as an administrator on the Node can do."""
        self.guest.run(f"echo {text} > {self.cgroup(name)}/{file}")

    def cgroup(self, name: str) -> str:
        """Returns the path of the Pod's own cgroup in the guest."""
        uid = self.uid(name)
        if self.cluster.spec.guest_cgroups == "systemd":
            uid = uid.replace("-", "_")
        found = f"find /sys/fs/cgroup/kubepods* -type d -name '*pod{uid}*'"
        return self.guest.run(found).output.splitlines()[0]

    def inside(self, name: str, script: str) -> str:
        """Runs a script of sh in the Pod's container by `kubectl exec`, and returns the output with the
        errors. Repeats a failed call, because a restarted kubelet does not know the Node's Pods at
        first."""
        said = ""

        def is_done() -> bool:
            nonlocal said
            argv = ("exec", self.actors.full(name), "--", "sh", "-c", f"{script}\n:")
            done = self.actors.kubectl(*argv)
            said = done.stdout if done.returncode == 0 else done.stderr
            return done.returncode == 0

        try:
            eventually(is_done, f"kubectl exec {name}", STARTS_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}: {said}") from None
        return said

    def opens(self, name: str, files: str = "/dev/fgpu") -> Opened:
        """Returns the devices that the Pod's container can open now."""
        return Opened.of(self.inside(name, open_each(files)))

    def opens_without_kubelet(self, container: str) -> Opened:
        """Returns the devices that a container can open. Finds the container by id in containerd,
        because `kubectl exec` needs the kubelet."""
        told = f"ctr -n k8s.io tasks exec --exec-id look {container} sh -c '{open_each()}'"
        return Opened.of(self.guest.run(told, check=False).output)

    def has(self, name: str, numbers: frozenset[int]) -> None:
        """Waits until a Pod can open exactly these devices."""
        eventually(
            lambda: self.opens(name).numbers == numbers,
            f"{name} opens {sorted(numbers)}",
            STARTS_WITHIN_S,
        )

    # The Node

    @contextmanager
    def kubelet_with(self, *lines: str) -> Iterator[None]:
        """Runs the kubelet with more lines of configuration until the context ends. Before each start,
        deletes the kubelet's file of CPUs, because another policy has written the file."""
        config = self.cluster.directory / "guest/kubelet/etc/kubernetes/kubelet.yaml"
        before = config.read_text()
        try:
            self._start_kubelet_anew(config, "\n".join([before, *lines, ""]))
            yield
        finally:
            self._start_kubelet_anew(config, before)

    def _start_kubelet_anew(self, config: Path, text: str) -> None:
        self.cluster.stop("kubelet")
        self.guest.run("rm -f /var/lib/kubelet/cpu_manager_state")
        config.write_text(text)
        self.cluster.start("kubelet")
        self.counts()

    def processes_of(self, uid: str) -> list[int]:
        """Returns the PIDs of the processes in a Pod's cgroup, as seen in the guest."""
        if self.cluster.spec.guest_cgroups == "systemd":
            uid = uid.replace("-", "_")
        found = self.guest.run(
            f"cat $(find /sys/fs/cgroup/kubepods* -path '*pod{uid}*' -name cgroup.procs)", check=False
        )
        return [int(line) for line in found.output.split() if line.isdigit()]

    def node_agent(self, command: str) -> str:
        """Returns the output of a command of the node agent."""
        argv = agent_argv(self.cluster.spec, self.cluster.ports, command)
        return self.guest.run(f"COLUMNS=200 {shlex.join(argv)}").output

    def agent_says(self, words: str) -> bool:
        """Returns True if the agent's log contains the text."""
        return words in (self.cluster.logs / "node-agent.log").read_text()

    def pods_with_less(self) -> int:
        """Number of Pods with less than the jobs' grants, by the agent's metric."""
        return self._metric("node_agent_pods_with_less_than_their_jobs")

    def limits_repaired(self) -> int:
        """Number of repaired limits, by the agent's metric."""
        return self._metric("node_agent_limits_repaired_total")

    def steps_in_jobs_of_pods(self) -> int:
        """Number of steps in the jobs of Pods, by the agent's metric."""
        return self._metric("node_agent_steps_in_jobs_of_pods_total")

    def metric_of_gpus(self, name: str) -> int:
        """Value of an agent's metric for the extended resource."""
        return self._metric(f'{name}{{resource="{self.gpu}"}}')

    def restart(self, program: str) -> None:
        """Restarts the kubelet or the agent, and waits until the agent's plugin is registered again. The
        Node's status is not enough, because the kubelet keeps the old status for a while."""
        self.cluster.stop(program)
        before = self._checkpoint()
        self.cluster.start(program)
        what = "the plugin is registered"
        eventually(lambda: self._checkpoint() != before, what, STARTS_WITHIN_S)
        self.counts()

    def _checkpoint(self) -> str:
        """Returns a stamp of the kubelet's checkpoint file. Each report of a plugin renews the file."""
        file = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        return self.guest.run(f"stat -c %y.%i {file}").output

    def _metric(self, name: str) -> int:
        port = self.cluster.ports["node-agent-metrics"]
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
        found = re.search(rf"^{re.escape(name)} (\S+)", text, re.MULTILINE)
        assert found is not None, text
        return int(float(found[1]))

    def sbatch(self, script: str, *options: str) -> int:
        """Submits a job of the user alice, and returns the job id."""
        said = self.cluster.run_slurm("sbatch", *options, user="alice", stdin=f"#!/bin/sh\n{script}\n")
        return int(said.stdout.split()[-1])

    def run_job(self, script: str, *options: str) -> tuple[int, str]:
        """Submits a job of the user alice that continues after the script. Returns the job id and the
        output of the script."""
        output = "/tmp/job.out"
        self.guest.run(f"rm -f {output}")
        stays = f"{script}\necho over; sleep 600"
        job = self.sbatch(stays, "-n1", "--mem=100", f"--output={output}", *options)

        def said() -> str:
            return self.guest.run(f"cat {output}", check=False).output

        return job, eventually(said, "the job's words", holds=lambda words: "over" in words)

    def job_state(self, job: int) -> str:
        return self._of_job(job, r"JobState=(\w+)")

    def cpus_of_job(self, job: int) -> str:
        """CPUs of a job, by Slurm's numbers. The guest has the same numbers."""
        return self._of_job(job, CPUS_OF_JOB)

    def gpus_of_job(self, job: int) -> frozenset[int]:
        return frozenset(gres.numbers(self._of_job(job, GPUS_OF_JOB)).get("gpu", ()))

    def _of_job(self, job: int, wanted: str) -> str:
        told = self.cluster.run_slurm("scontrol", "show", "job", "--detail", str(job)).stdout
        return in_words(told, wanted)


_VOLUMES: Final = [{"name": "node-dev", "hostPath": {"path": "/dev"}}]


def container(gpus: int = 0, cpu: str = "1", resource: str = GPU) -> Manifest:
    """Returns a privileged container that sleeps. The container ignores SIGTERM, as every first process
    without a handler does."""
    requests = {"cpu": cpu, "memory": "64Mi"}
    limits = {resource: str(gpus)} if gpus else {}
    return {
        "name": "c",
        "image": BOX,
        "imagePullPolicy": "Never",
        "command": ["sleep", "2147483647"],
        "securityContext": {"privileged": True},
        "resources": {"requests": requests | limits, "limits": limits},
        "volumeMounts": [{"name": "node-dev", "mountPath": "/node-dev"}],
    }
