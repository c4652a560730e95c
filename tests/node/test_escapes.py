"""Tests that a Pod and a native job on the same Node cannot reach each other's cores, memory and
devices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from deploy.local.guest.oci import BOX
from deploy.local.spec import GUEST_GPUS
from tests.eventually import eventually
from tests.node.escapes import BY_JOB, BY_POD, Escape, all_of, answers, device
from tests.node.real_node import STARTS_WITHIN_S, Opened, container, open_each
from wellknown.names import GRANTED

if TYPE_CHECKING:
    from tests.end_to_end.actors import Manifest
    from tests.node.evidence import Evidence
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_OUTPUT: Final = "/tmp/escapes.out"
_LOOKS: Final = f"grep Cpus_allowed_list /proc/self/status; {open_each('/node-dev/fgpu')} echo looked"
"""Script that prints the cores and devices of a container at the first instruction."""
MEMORY: Final = {"name": "memory", "emptyDir": {"medium": "Memory"}}


@dataclass(frozen=True)
class Beside:
    """A Pod and a native job on the same Node, with the outputs of the attempts of both."""

    node: RealNode
    cores: str
    """Cores of the Pod."""
    gpus: frozenset[int]
    """GPUs of the Pod."""
    by_pod: dict[str, str]
    by_job: dict[str, str]


def _plain(name: str, **more: object) -> Manifest:
    """Returns an unprivileged container with the Node's /dev as a mount."""
    own = {**container(), "name": name, "securityContext": {}}
    return {**own, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}, **more}


def unprivileged(gpus: int) -> Manifest:
    """Returns an unprivileged container that requests GPUs, with the Node's /dev and MEMORY as
    mounts."""
    made = {**container(gpus), "securityContext": {}}
    return made | {"volumeMounts": [*made["volumeMounts"], {"name": "memory", "mountPath": "/memory"}]}


@pytest.fixture(scope="module")
def beside(all_nodes: RealNode) -> Iterator[Beside]:
    node = all_nodes
    node.begin()
    looks = ["sh", "-c", _LOOKS]
    first = unprivileged(2)
    node.create_of(
        "pod",
        [first, _plain("second", command=["sh", "-c", f"{_LOOKS}; sleep 2147483647"])],
        volumes=[MEMORY],
        initContainers=[_plain("init", command=looks)],
    )
    node.running("pod")
    gpus, cores = node.granted("pod"), node.allocation("pod").cores
    job = node.sbatch("sleep 600", "-n1", "--mem=100", "--gres=gpu:2")
    eventually(lambda: node.job_state(job) == "RUNNING", "the first job runs")
    others = node.gpus_of_job(job)
    tries = all_of(BY_POD, own_cpus=cores, cpu=node.cpus_of_job(job), **device(others))
    by_pod = answers(node.inside("pod", tries))
    tries = all_of(
        BY_JOB,
        cpu=cores.partition("-")[0],
        pod=node.cgroup("pod"),
        process=node.processes_of(node.uid("pod"))[0],
        **device(gpus),
    )
    own = "own_cpus=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)\nexport own_cpus"
    script = f"{own}\nexport TMPDIR=$(mktemp -d)\n{tries}"
    node.sbatch(script, "-n1", "--mem=100", "--gres=gpu:2", f"--output={_OUTPUT}")
    by_job = eventually(
        lambda: answers(node.guest.run(f"cat {_OUTPUT}", check=False).output),
        "the job has tried",
        STARTS_WITHIN_S,
    )
    yield Beside(node, cores, gpus, by_pod, by_job)
    node.clean_up()


def judge(evidence: Evidence, name: str, verdict: str) -> None:
    evidence.tried += 1
    if verdict:
        evidence.succeeded.append(name)
    assert not verdict, f"{name}: {verdict}"


@pytest.mark.parametrize("escape", BY_POD, ids=str)
def test_pod_does_not_reach_resources_of_a_job(
    beside: Beside, evidence: Evidence, escape: Escape
) -> None:
    judge(evidence, escape.name, escape.verdict(beside.by_pod[escape.name]))


@pytest.mark.parametrize("escape", BY_JOB, ids=str)
def test_job_does_not_reach_resources_of_a_pod(
    beside: Beside, evidence: Evidence, escape: Escape
) -> None:
    judge(evidence, escape.name, escape.verdict(beside.by_job[escape.name]))


def has_its_own(beside: Beside, said: str) -> str:
    """Returns the output of a container whose resources differ from the Pod's grant; empty if the
    resources are as granted."""
    opened = Opened.of(said)
    cores = said.partition("Cpus_allowed_list:")[2].split()[:1]
    # The Node's /dev shows all devices; the kernel refuses devices outside the Pod's grant.
    wrong = cores != [beside.cores] or opened.numbers != beside.gpus
    return said if wrong or opened.refused != GUEST_GPUS - len(beside.gpus) else ""


@pytest.mark.parametrize("name", ["init", "second"])
def test_container_starts_with_the_grant(beside: Beside, evidence: Evidence, name: str) -> None:
    log = beside.node.actors.kubectl("logs", beside.node.actors.full("pod"), "-c", name).stdout
    judge(evidence, f"container {name}", has_its_own(beside, log))


def test_ephemeral_container_has_no_more_than_the_grant(beside: Beside, evidence: Evidence) -> None:
    node = beside.node
    added: Manifest = {
        "name": "debug",
        "image": BOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _LOOKS],
    }
    added["volumeMounts"] = [{"name": "node-dev", "mountPath": "/node-dev"}]
    pod = node.actors.full("pod")
    node.actors.api.patch(
        f"/pods/{pod}/ephemeralcontainers",
        json={"spec": {"ephemeralContainers": [added]}},
        headers={"Content-Type": "application/strategic-merge-patch+json"},
    ).raise_for_status()

    def said() -> str:
        log = node.actors.kubectl("logs", pod, "-c", "debug").stdout
        return log if "looked" in log else ""

    log = eventually(said, "the ephemeral container has looked", STARTS_WITHIN_S)
    judge(evidence, "ephemeral container", has_its_own(beside, log))


def test_author_of_a_pod_cannot_change_its_grant(beside: Beside, evidence: Evidence) -> None:
    actors = beside.node.actors
    forged = '{"v":1,"gres":"gpu:h100:8(IDX:0-7)"}'
    annotate = ("annotate", "pod", actors.full("pod"), f"{GRANTED}={forged}", "--overwrite")
    done = actors.kubectl(*annotate)
    held = "are the extender's to write" in done.stderr
    judge(evidence, "annotation", "" if held else done.stdout + done.stderr)


def test_memory_volume_gives_no_memory_beyond_the_grant(beside: Beside, evidence: Evidence) -> None:
    node = beside.node
    granted = node.allocation("pod").memory_mb
    take = f"dd if=/dev/zero of=/memory/taken bs=1M count={2 * granted}; ls -l /memory/taken; echo $?"
    done = node.actors.kubectl("exec", node.actors.full("pod"), "-c", "c", "--", "sh", "-c", take)
    killed = "oom_kill 0" not in node.limit("pod", "memory.events")
    judge(evidence, "memory by a volume", "" if killed and done.returncode else done.stdout)


def test_resize_in_place_cannot_exceed_the_grant(beside: Beside, evidence: Evidence) -> None:
    actors = beside.node.actors
    requests = {"cpu": "3", "memory": "1Gi"}
    patch = json.dumps({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
    resize = ("patch", "pod", actors.full("pod"), "--subresource", "resize", "-p", patch)
    done = actors.kubectl(*resize)
    held = "may be resized to less, and not to more" in done.stderr
    judge(evidence, "resize in place", "" if held else done.stdout + done.stderr)
