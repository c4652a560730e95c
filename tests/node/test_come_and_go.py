"""Tests that very many Pods and native jobs share the devices of a Node, one after the other and at the
same time. Each Pod and job reports its resources from inside, from the first instruction."""

from __future__ import annotations

import itertools
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from slurm_client import gres
from tests.eventually import eventually
from tests.node.real_node import CPUS_OF_JOB, GPUS_OF_JOB, STARTS_WITHIN_S, container, in_words
from wellknown import number_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.node.evidence import Evidence
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(1500)]

EACH: Final = 50
"""Number of Pods, and number of jobs, with each of the two drivers of cgroups."""
_AT_ONCE: Final = 8
"""Number of Pods and jobs at the same time. The Node has room for fewer, so the other Pods and jobs wait
in Slurm."""
_HANDS: Final = "/run/hands"
_MIB: Final = 1 << 20
_MOST_GPUS: Final = 4
_PAUSE_S: Final = 1.0
"""Pause between two reads of the reports."""
_SCRIPT: Final = """
look() {
    read up rest < /proc/uptime
    cpus=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
    echo "at $up cpus $cpus memory $(cat $limits/memory.max)"
}
look; look; look
own=
for n in 0 1 2 3 4 5 6 7; do
    if ( : < /dev/fgpu$n ) 2>/dev/null; then own="$own $n"; fi
done
echo "opened$own"
# Each makes a folder for what it can open: one that is there already is a device in two hands.
for n in $own; do mkdir $hands/$n || echo "in two hands: $n"; done
sleep $seconds
read up rest < /proc/uptime
echo "until $up"
for n in $own; do rmdir $hands/$n; done
echo over
"""
_LOOK: Final = re.compile(r"^at (\S+) cpus (\S+) memory (\S+)$", re.MULTILINE)
_UNTIL: Final = re.compile(r"^until (\S+)$", re.MULTILINE)
_OPENED: Final = re.compile(r"^opened(.*)$", re.MULTILINE)


# One command for all files, because each command costs the guest more than a Pod
_OVER: Final = f"""cd {_HANDS} && for file in pod-* job-*; do
    case $file in *.granted) continue;; esac
    if tail -n 1 $file 2>/dev/null | grep -qx over; then
        echo "=== $file"; cat $file.granted 2>/dev/null; cat $file; mv $file over.$file
    fi
done"""


@dataclass(frozen=True)
class Granted:
    """Resources that Slurm granted."""

    gpus: frozenset[int]
    cpus: tuple[int, ...]
    memory: int
    """Memory in bytes."""


class Pods:
    """Pods with a privileged container, which sees all devices of the Node."""

    def __init__(self, node: RealNode) -> None:
        self._node = node

    def comes(self, name: str, gpus: int, seconds: int) -> None:
        """Creates a Pod. The Pod runs the script when Slurm grants resources, and ends by itself."""
        limits = "limits=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); limits=${limits%/*}"
        given = f"exec > /hands/{name} 2>&1\n{limits}\nhands=/hands seconds={seconds}"
        whole: dict[str, Any] = {**container(gpus), "command": ["sh", "-c", f"{given}\n{_SCRIPT}"]}
        whole["volumeMounts"] = [{"name": "hands", "mountPath": "/hands"}]
        hands = [{"name": "hands", "hostPath": {"path": _HANDS}}]
        self._node.create_of(name, [whole], volumes=hands, restartPolicy="Never")

    def granted(self, name: str, _said: str) -> Granted:
        told = self._node.allocation(name)
        gpus = self._node.granted(name)
        return Granted(gpus, number_list.expand(told.cores), told.memory_mb * _MIB)

    def goes(self, name: str) -> None:
        self._node.actors.delete(name)


class Jobs:
    """Jobs of the user alice."""

    MEMORY_MB: Final = 60

    def __init__(self, node: RealNode) -> None:
        self._node = node

    def comes(self, name: str, gpus: int, seconds: int) -> None:
        """Submits a job. The job records its grant at the start, because Slurm forgets the CPUs of an
        ended job."""
        limits = "limits=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); limits=${limits%/step_*}"
        granted = f"scontrol show job --detail $SLURM_JOB_ID > {_HANDS}/{name}.granted"
        script = f"{granted}\n{limits}\nhands={_HANDS} seconds={seconds}\n{_SCRIPT}"
        output = f"--output={_HANDS}/{name}"
        self._node.sbatch(script, "-n1", f"--mem={self.MEMORY_MB}", f"--gres=gpu:{gpus}", output)

    def granted(self, _name: str, said: str) -> Granted:
        gpus = frozenset(gres.numbers(in_words(said, GPUS_OF_JOB))["gpu"])
        return Granted(gpus, number_list.expand(in_words(said, CPUS_OF_JOB)), self.MEMORY_MB * _MIB)

    def goes(self, name: str) -> None:
        """Does nothing, because Slurm forgets the job by itself."""


@dataclass(frozen=True)
class Stay:
    """Times and devices of a Pod or a job, from the report of the Pod or job."""

    began: float
    """Time at which the Pod or job had the devices, in seconds since the guest's start."""
    ended: float
    gpus: frozenset[int]


def judge(evidence: Evidence, name: str, said: str, granted: Granted) -> Stay:
    """Compares the report of a Pod or a job with the grant. Records wrong devices in `evidence`. Asserts
    that the limits are in force from the first instruction."""
    opened, until = _OPENED.search(said), _UNTIL.search(said)
    assert opened is not None, said
    assert until is not None, said
    gpus = frozenset(map(int, opened[1].split()))
    if gpus != granted.gpus or "in two hands" in said:
        evidence.wrong.append(f"{name}: {said}, of {sorted(granted.gpus)}")
    looks = [(float(up), cpus, memory) for up, cpus, memory in _LOOK.findall(said)]
    assert len(looks) == said.count("at "), said
    right = [
        number_list.expand(cpus) == granted.cpus and memory != "max" and int(memory) <= granted.memory
        for _, cpus, memory in looks
    ]
    first = max((number + 1 for number, each in enumerate(right) if not each), default=0)
    assert first < len(looks), f"{name}: its limits were not in force: {said}, {granted}"
    evidence.applied_ms.append((looks[first][0] - looks[0][0]) * 1000)
    assert first == 0, f"{name}: not from its first instruction: {said}, {granted}"
    return Stay(looks[-1][0], float(until[1]), gpus)


def beside(stays: Mapping[str, Stay]) -> int:
    """Returns the number of pairs of a Pod and a job with devices at the same time."""
    pairs = itertools.product(
        *([stay for name, stay in stays.items() if name.startswith(kind)] for kind in ("pod", "job"))
    )
    return sum(pod.began < job.ended and job.began < pod.ended for pod, job in pairs)


def test_no_device_has_two_holders_at_the_same_time(node: RealNode, evidence: Evidence) -> None:
    node.guest.run(f"mkdir -m 1777 {_HANDS}")
    chance = random.Random(21)
    kinds: dict[str, Pods | Jobs] = {"pod": Pods(node), "job": Jobs(node)}
    coming = [f"{kind}-{number}" for number in range(EACH) for kind in kinds]
    chance.shuffle(coming)
    here = set[str]()
    stays: dict[str, Stay] = {}
    wrong = len(evidence.wrong)

    def some_go() -> bool:
        told = re.split(r"^=== (\S+)\n", node.guest.run(_OVER).output, flags=re.MULTILINE)[1:]
        for name, said in zip(told[::2], told[1::2], strict=True):
            kind = kinds[name.partition("-")[0]]
            stays[name] = judge(evidence, name, said, kind.granted(name, said))
            kind.goes(name)
            here.remove(name)
            evidence.came_and_went += 1
        time.sleep(_PAUSE_S)
        return bool(told)

    while coming or here:
        while coming and len(here) < _AT_ONCE:
            here.add(name := coming.pop())
            kinds[name.partition("-")[0]].comes(
                name, chance.randint(1, _MOST_GPUS), chance.randint(3, 12)
            )
        eventually(some_go, f"one of {sorted(here)} goes", STARTS_WITHIN_S)
    assert evidence.wrong[wrong:] == []
    assert beside(stays) >= EACH / 5, "they were hardly ever here at the same time"
