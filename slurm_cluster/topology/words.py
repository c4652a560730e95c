"""Messages about labels that give no topology."""

from typing import Final

from slurm_client.hostlist import compress
from slurm_cluster.topology.build import Trouble

_LONGEST: Final = 200


def in_words(trouble: Trouble) -> str:
    """Returns one line: the problem, the number of nodes, and the nodes."""
    nodes = compress(trouble.nodes)
    shown = nodes if len(nodes) <= _LONGEST else f"{nodes[:_LONGEST]}..."
    return f"{trouble.what}: {len(trouble.nodes)} nodes: {shown}"
