"""Tests of the agent's use of memory and CPU on a Node, and of the time until the gate answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.node.evidence import p99

if TYPE_CHECKING:
    from tests.node.evidence import Evidence
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_ASKED: Final = 200
_ASK: Final = f"""
import http.client, json, socket, time
taken = []
for _ in range({_ASKED}):
    began = time.perf_counter()
    link = http.client.HTTPConnection("agent")
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.connect("/run/slurm-extender/node-agent.sock")
    link.request("GET", "/gate/v1/clear")
    assert link.getresponse().read().decode().split()
    link.close()
    taken.append((time.perf_counter() - began) * 1000)
print(json.dumps(taken))
"""
_LOOP: Final = """
import time
taken = []
for _ in range(5):
    began = time.perf_counter()
    for number in range(300_000): number * number
    taken.append(time.perf_counter() - began)
print(min(taken))
"""
GATE_MS, IDLE_PERCENT, RSS_MB = 10.0, 1.0, 80.0
"""Limits on a machine without emulation. The limit of memory applies without NVML."""
_IDLE_S: Final = 30.0
_TICKS: Final = 100
"""Clock ticks in a second (proc_pid_stat(5)), as Linux counts on this machine."""


def test_the_gate_answers_soon(node: RealNode, evidence: Evidence) -> None:
    node.run("one")
    taken = json.loads(node.guest.run(f"python3 -c '{_ASK}'").output)
    assert len(taken) == _ASKED
    evidence.gate_ms += taken
    in_ms = p99(taken)
    assert in_ms is not None
    assert in_ms / slowness(node, evidence) < GATE_MS


def slowness(node: RealNode, evidence: Evidence) -> float:
    evidence.slowness.append(times_slower(node))
    return evidence.slowness[-1]


def times_slower(node: RealNode) -> float:
    """Returns how many times longer a loop of Python takes in the guest than on this machine."""
    there = float(node.guest.run(f"python3 -c '{_LOOP}'").output)
    here = subprocess.run([sys.executable, "-c", _LOOP], text=True, capture_output=True, check=True)
    return round(there / float(here.stdout), 1)


def test_idle_agent_takes_little_memory_and_cpu(node: RealNode, evidence: Evidence) -> None:
    node.run("one", gpus=1)
    pid = node.guest.run("pgrep -f 'node_agent run'").output.split()[-1]

    def ticks() -> int:
        fields = node.guest.run(f"cat /proc/{pid}/stat").output.rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, began = ticks(), time.monotonic()
    time.sleep(_IDLE_S)
    used, taken = ticks() - before, time.monotonic() - began
    status = node.guest.run(f"cat /proc/{pid}/status").output
    resident = status.partition("VmRSS:")[2].split()[0]
    evidence.agent_rss_mb.append(round(int(resident) * 1024 / 1e6, 1))
    evidence.agent_idle_cpu_percent.append(round(100 * used / _TICKS / taken, 2))
    assert evidence.agent_rss_mb[-1] < RSS_MB
    assert evidence.agent_idle_cpu_percent[-1] / slowness(node, evidence) < IDLE_PERCENT
