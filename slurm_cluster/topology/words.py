"""Messages about labels that give no topology."""

from typing import Final

from slurm_client.hostlist import compress
from slurm_cluster.topology.build import Problem

_LONGEST: Final = 200


def in_words(problem: Problem) -> str:
    """Returns one line: the problem, the number of nodes, and the nodes."""
    nodes = compress(problem.nodes)
    shown = nodes if len(nodes) <= _LONGEST else f"{nodes[:_LONGEST]}..."
    return f"{problem.what}: {len(problem.nodes)} nodes: {shown}"
