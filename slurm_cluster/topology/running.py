"""Reads the topology and the node states of the running Slurm, from scontrol and sinfo."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from slurm_client.hostlist import expand
from slurm_cluster.topology.model import Kind, Topology, Unit, in_order

_TIMEOUT_S: Final = 30.0


class SlurmFailed(Exception):
    """Raised if a program of Slurm fails. The message is the program's output."""


async def topology() -> Topology:
    """Returns the topology of slurmctld. Raises SlurmFailed, also if slurmctld has no topology."""
    return topology_of(await _asked("scontrol", "show", "topology"))


async def states() -> Mapping[str, str]:
    """Returns sinfo's state of each node, like "idle" or "mixed*". Raises SlurmFailed."""
    listed = await _asked("sinfo", "--noheader", "--Node", "--format=%N %T")
    return dict(line.split(maxsplit=1) for line in listed.splitlines() if line.strip())


async def nodes() -> frozenset[str]:
    """Returns the names of all nodes. Raises SlurmFailed."""
    return frozenset(await states())


def topology_of(shown: str) -> Topology:
    """Returns the topology in the output of `scontrol show topology`. Raises SlurmFailed if the output
    has neither a tree nor blocks."""
    fields = [dict(_pairs(line)) for line in shown.splitlines()]
    if switches := [each for each in fields if "SwitchName" in each]:
        return Topology(Kind.TREE, tuple(_switches(switches)))
    blocks = [each for each in fields if "BlockName" in each]
    if not blocks:
        raise SlurmFailed(f"Slurm has no tree and no blocks: {shown.strip() or 'nothing'}")
    units = (Unit(each["BlockName"], in_order(expand(each.get("Nodes", "")))) for each in blocks)
    sizes = sorted({int(each["BlockSize"]) for each in fields if "BlockSize" in each})
    return Topology(Kind.BLOCK, tuple(units), tuple(sizes))


def _switches(switches: Iterable[Mapping[str, str]]) -> Iterator[Unit]:
    """Yields switches. Slurm lists all nodes below a switch. In the result, only leaf switches have
    nodes."""
    for each in switches:
        nodes, children = (in_order(expand(each.get(key, ""))) for key in ("Nodes", "Switches"))
        yield Unit(each["SwitchName"], () if children else nodes, children)


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split():
        name, sign, value = word.partition("=")
        if sign:
            yield name, value


async def _asked(program: str, *arguments: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise SlurmFailed(f"{program} cannot be run: {error}") from error
    try:
        output, errors = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SlurmFailed(f"{program} has not answered in {_TIMEOUT_S:.0f} s") from error
    if process.returncode:
        raise SlurmFailed(f"{program}: {errors.decode(errors='replace').strip()}")
    return output.decode(errors="replace")
