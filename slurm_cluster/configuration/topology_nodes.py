"""Finds the nodes of a topology that are not in slurm.conf. Such nodes are dynamic nodes, which register
themselves (slurmd -Z).

The running slurmctld ignores unknown nodes in a topology. The temporary slurmctld of `trial` would
report such nodes as errors.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from slurm_client import hostlist
from slurm_cluster.configuration.folders import File
from slurm_cluster.configuration.slurm_conf import SlurmConf, parse

_YAML: Final = "topology.yaml"
_CONF: Final = "topology.conf"
_JOIN: Final = "maxnodecount"
"""Key without which no node can register itself (slurm.conf(5) MaxNodeCount)."""


def joining(files: Mapping[str, File], conf: SlurmConf) -> frozenset[str]:
    """Returns the names of the topology's nodes that are not in slurm.conf. Returns no names if nodes
    cannot register themselves, or if a file is invalid."""
    if _JOIN not in conf.settings():
        return frozenset()
    try:
        named = {name for text in _listed(files) for name in hostlist.expand(text)}
    except (ValueError, LookupError, yaml.YAMLError):
        return frozenset()
    return frozenset(named - conf.nodes().keys() - {"ALL"})


def suspect(files: Mapping[str, File]) -> str:
    """Returns the error in topology.yaml that makes slurmctld (26.05) crash without a message. Returns
    "" if the file does not have this error."""
    try:
        empty = _YAML in files and yaml.safe_load(files[_YAML].content) == []
    except yaml.YAMLError:
        return ""
    return f"{_YAML} has no topology" if empty else ""


def _listed(files: Mapping[str, File]) -> Iterable[str]:
    if _YAML in files:
        return _in_yaml(yaml.safe_load(files[_YAML].content))
    text = files[_CONF].content.decode() if _CONF in files else ""
    lines = parse(text, lambda _: "").lines
    return [value for line in lines for key, value in line.pairs if key.lower() == "nodes"]


def _in_yaml(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for each in part:
            yield from _in_yaml(each)
    elif isinstance(part, dict):
        for key, value in part.items():
            if str(key).lower() == "nodes" and isinstance(value, str):
                yield value
            else:
                yield from _in_yaml(value)
