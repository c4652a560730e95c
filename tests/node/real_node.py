"""The guest as a Node: Pods whose containers run, native jobs, and what each of them can open."""

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
"""For what takes 5 s where nothing else runs: on a busy machine the guest has a part of two cores."""
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
"""In what `scontrol show job --detail` says of a job that runs."""


def in_words(told: str, wanted: str) -> str:
    """What a regular expression finds."""
    found = re.search(wanted, told)
    assert found is not None, told
    return found[1]


def open_each(files: str = "/dev/fgpu") -> str:
    """A script of sh that opens each device, by files of that name and the device's number."""
    return _OPEN_EACH % files


@dataclass(frozen=True)
class Opened:
    """What a script of `open_each` said: which devices could be opened, and why others could not."""

    numbers: frozenset[int]
    said: str

    @classmethod
    def of(cls, said: str) -> Opened:
        return cls(frozenset(map(int, _NUMBER.findall(said))), said)

    @property
    def refused(self) -> int:
        """How many were refused by the kernel's device programs, and not for another reason."""
        return self.said.count(REFUSED)


class RealNode:
    """Everybody who works with the Node."""

    programs: Sequence[str] = PROGRAMS
    """What runs, in the order in which it is started."""
    gpu = GPU
    """The extended resource of the devices that Pods are created with."""
    counted: Mapping[str, int] = {GPU: GUEST_GPUS}
    """How many there are of each extended resource that Slurm counts."""

    def __init__(self, actors: Actors) -> None:
        self.actors = actors
        self.cluster = actors.cluster
        assert self.cluster.guest is not None
        self.guest: Connection = self.cluster.guest

    def begin(self) -> None:
        """Gives Pods other names from now on, and has every program run."""
        self.actors.begin()
        self.start_all()
        self.counts()

    def clean_up(self) -> None:
        """Leaves neither Pods nor jobs behind, also where a test ended in the midst of it."""
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
        """Waits until the kubelet counts the GPUs: after each start of it, or of the agent."""
        wanted = {name: str(number) for name, number in self.counted.items()}
        what = "the kubelet counts the GPUs"
        eventually(lambda: wanted.items() <= self.allocatable().items(), what, STARTS_WITHIN_S)

    def allocatable(self) -> dict[str, str]:
        """What of each resource the kubelet says that Pods can have."""
        return dict(self._status()["allocatable"])

    def device_problem(self) -> Mapping[str, str]:
        """The agent's condition on the Node; {} while it has none."""
        conditions = {each["type"]: each for each in self._status()["conditions"]}
        return dict(conditions.get(DEVICE_PROBLEM, {}))

    def _status(self) -> Manifest:
        return dict(json.loads(self.actors.kubectl("get", "node", GUEST, "-o", "json").stdout)["status"])

    def drained(self) -> str:
        """The reason for which the node is drained in Slurm, "none" where it is not."""
        return self.cluster.run_slurm("sinfo", "-hN", "-o", "%E").stdout.strip()

    # Pods

    def create(self, name: str, *, gpus: int = 0, cpu: str = "1", **given: Any) -> None:
        """Creates a privileged Pod of Slurm's that sees all of the Node's devices, in /dev and in
        /node-dev, and sleeps. `given` are more fields of its spec."""
        given.setdefault("terminationGracePeriodSeconds", 2)
        whole = container(gpus, cpu, self.gpu)
        self.actors.create(name, containers=[whole], volumes=_VOLUMES, **given)

    def run(self, name: str, **given: Any) -> Manifest:
        """Creates a Pod as `create` does, and waits until its container runs. Returns the Pod."""
        self.create(name, **given)
        return self.running(name)

    def create_unprivileged(self, name: str, *, gpus: int = 0, cpu: str = "1") -> None:
        """Creates a Pod of Slurm's that has only the devices that it is given, and sleeps."""
        plain = {**container(gpus, cpu, self.gpu), "securityContext": {}, "volumeMounts": []}
        self.actors.create(name, containers=[plain], terminationGracePeriodSeconds=2)

    def create_of(self, name: str, containers: list[Manifest], **given: Any) -> None:
        """Creates a Pod of Slurm's of these containers, to which the Node's devices can be mounted."""
        volumes = [*_VOLUMES, *given.pop("volumes", [])]
        self.actors.create(
            name, containers=containers, volumes=volumes, terminationGracePeriodSeconds=2, **given
        )

    def create_here(self, name: str, **given: Any) -> None:
        """Creates the same Pod as one of no scheduler and no job: it names its Node."""
        self.create(name, scheduler="default-scheduler", nodeName=GUEST, **given)

    def grant(self, name: str, numbers: Sequence[int]) -> None:
        """Writes onto a Pod that its job has these GPUs, as the extender would."""
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
        """The numbers of the GPUs that Slurm granted a Pod."""
        return frozenset(gres.numbers(self.allocation(name).gres).get("gpu", ()))

    def allocation(self, name: str) -> Allocation:
        """What Slurm granted a Pod."""
        seen = self.actors.see(name)
        assert seen is not None, f"{name} is gone"
        found = Allocation.parse(seen["metadata"]["annotations"])
        assert found is not None
        return found

    def limit(self, name: str, file: str) -> str:
        """What a file of the Pod's own cgroup says."""
        return self.guest.run(f"cat {self.cgroup(name)}/{file}").output.strip()

    def write_limit(self, name: str, file: str, text: str) -> None:
        """Somebody on the Node writes into a file of the Pod's own cgroup."""
        self.guest.run(f"echo {text} > {self.cgroup(name)}/{file}")

    def cgroup(self, name: str) -> str:
        """The path of the Pod's own cgroup, in the guest."""
        uid = self.uid(name)
        if self.cluster.spec.guest_cgroups == "systemd":
            uid = uid.replace("-", "_")
        found = f"find /sys/fs/cgroup/kubepods* -type d -name '*pod{uid}*'"
        return self.guest.run(found).output.splitlines()[0]

    def inside(self, name: str, script: str) -> str:
        """What a script of sh says, errors included, in the Pod's container, by `kubectl exec`. A
        kubelet that has just started does not know its Pods yet."""
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
        """Which devices the Pod's container opens now."""
        return Opened.of(self.inside(name, open_each(files)))

    def opens_without_kubelet(self, container: str) -> Opened:
        """The same of a container by its id, by containerd: `kubectl exec` needs the kubelet."""
        told = f"ctr -n k8s.io tasks exec --exec-id look {container} sh -c '{open_each()}'"
        return Opened.of(self.guest.run(told, check=False).output)

    def has(self, name: str, numbers: frozenset[int]) -> None:
        """Waits until a Pod opens these devices, and no others."""
        eventually(
            lambda: self.opens(name).numbers == numbers,
            f"{name} opens {sorted(numbers)}",
            STARTS_WITHIN_S,
        )

    # The Node

    @contextmanager
    def kubelet_with(self, *lines: str) -> Iterator[None]:
        """The kubelet with more lines of configuration, for a time. What it knows of CPUs it takes from
        no kubelet that gave them otherwise."""
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
        """The processes in a Pod's cgroup, as the guest numbers them."""
        if self.cluster.spec.guest_cgroups == "systemd":
            uid = uid.replace("-", "_")
        found = self.guest.run(
            f"cat $(find /sys/fs/cgroup/kubepods* -path '*pod{uid}*' -name cgroup.procs)", check=False
        )
        return [int(line) for line in found.output.split() if line.isdigit()]

    def node_agent(self, command: str) -> str:
        """What a command of the node agent prints."""
        argv = agent_argv(self.cluster.spec, self.cluster.ports, command)
        return self.guest.run(f"COLUMNS=200 {shlex.join(argv)}").output

    def agent_says(self, words: str) -> bool:
        """Whether the agent's log has these words."""
        return words in (self.cluster.logs / "node-agent.log").read_text()

    def pods_with_less(self) -> int:
        """The agent's own metric."""
        return self._metric("node_agent_pods_with_less_than_their_jobs")

    def limits_repaired(self) -> int:
        """The agent's own metric."""
        return self._metric("node_agent_limits_repaired_total")

    def steps_in_jobs_of_pods(self) -> int:
        """The agent's own metric."""
        return self._metric("node_agent_steps_in_jobs_of_pods_total")

    def metric_of_gpus(self, name: str) -> int:
        """An agent's own metric of the extended resource."""
        return self._metric(f'{name}{{resource="{self.gpu}"}}')

    def restart(self, program: str) -> None:
        """Restarts the kubelet or the agent, and waits until the kubelet has the agent's plugin again: a
        Node's status is of before for a while."""
        self.cluster.stop(program)
        before = self._checkpoint()
        self.cluster.start(program)
        what = "the plugin is registered"
        eventually(lambda: self._checkpoint() != before, what, STARTS_WITHIN_S)
        self.counts()

    def _checkpoint(self) -> str:
        """Returns a stamp of the kubelet's file, which each report of a plugin renews."""
        file = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        return self.guest.run(f"stat -c %y.%i {file}").output

    def _metric(self, name: str) -> int:
        port = self.cluster.ports["node-agent-metrics"]
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
        found = re.search(rf"^{re.escape(name)} (\S+)", text, re.MULTILINE)
        assert found is not None, text
        return int(float(found[1]))

    def sbatch(self, script: str, *options: str) -> int:
        """Submits alice's job, and returns its number."""
        said = self.cluster.run_slurm("sbatch", *options, user="alice", stdin=f"#!/bin/sh\n{script}\n")
        return int(said.stdout.split()[-1])

    def run_job(self, script: str, *options: str) -> tuple[int, str]:
        """Submits alice's job, which stays after the script. Returns its number and what the script
        says."""
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
        """By Slurm's numbers, which are the guest's."""
        return self._of_job(job, CPUS_OF_JOB)

    def gpus_of_job(self, job: int) -> frozenset[int]:
        return frozenset(gres.numbers(self._of_job(job, GPUS_OF_JOB)).get("gpu", ()))

    def _of_job(self, job: int, wanted: str) -> str:
        told = self.cluster.run_slurm("scontrol", "show", "job", "--detail", str(job)).stdout
        return in_words(told, wanted)


_VOLUMES: Final = [{"name": "node-dev", "hostPath": {"path": "/dev"}}]


def container(gpus: int = 0, cpu: str = "1", resource: str = GPU) -> Manifest:
    """A privileged container that sleeps, and ignores SIGTERM as each first process does that has no
    handler for it."""
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
