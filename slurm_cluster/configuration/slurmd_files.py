"""Checks the format of the files that slurmd reads, but slurmctld does not read.

In a container, slurmd runs in the foreground. If slurmd cannot read the files at a reconfiguration,
slurmd and the jobs end on all nodes at once. The temporary slurmctld of `trial` does not find such
format errors, because slurmctld does not read these files. So this module has the checks.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from slurm_cluster.configuration import gres_conf
from slurm_cluster.configuration.folders import File
from slurm_cluster.configuration.slurm_conf import Line, SlurmConf, parse
from wellknown.quoting import quoted

_GRES: Final = frozenset(
    {
        *("autodetect", "count", "cores", "cpus", "file", "files", "flags", "link", "links"),
        *("multiplefiles", "name", "nodename", "type"),
    }
)
"""Keys of gres.conf(5)."""
_BEGINS: Final = frozenset({"autodetect", "name", "nodename"})
_COUNT: Final = re.compile(r"\d+[KMGTP]?", re.IGNORECASE | re.ASCII)
_PLUGINS: Final = frozenset({"autodetect", "disabled", "cgroup/v1", "cgroup/v2"})
"""Values of CgroupPlugin in cgroup.conf(5)."""
_SCRIPTS: Final = frozenset({"epilog", "prolog"})
_OF_A_FOLDER: Final = frozenset("/*?[")
_SPANK: Final = re.compile(r"(required|optional|include)\s+\S.*")
"""Format of plugstack.conf in spank(7)."""


def wrong(files: Mapping[str, File], conf: SlurmConf) -> list[str]:
    """Returns the errors in gres.conf, cgroup.conf and plugstack.conf, and in the names of scripts."""
    lines = _pairs(files, "gres.conf")
    return [
        *(f"gres.conf: {words}" for line in lines for words in _of_gres(line)),
        *(f"gres.conf: {words}" for words in gres_conf.contradictions(lines, conf)),
        *(
            f"slurm.conf: {key}={name} is not in the files: Slurm drains each node at its first job"
            for key, name in _scripts(conf)
            if name and name not in files
        ),
        *(
            f"cgroup.conf: {words}"
            for line in _pairs(files, "cgroup.conf")
            for words in _of_cgroup(line)
        ),
        *(
            f"plugstack.conf: {quoted(line)} is not `required`, `optional` or `include` with a path"
            for line in _text(files, "plugstack.conf").splitlines()
            if line.partition("#")[0].strip() and not _SPANK.fullmatch(line.strip())
        ),
    ]


def _scripts(conf: SlurmConf) -> Iterator[tuple[str, str]]:
    """Yields the key and the name of each script that slurmctld sends to slurmd. The name of such a
    script is a plain file name, without a folder or a pattern."""
    for line in conf.lines:
        for key, name in line.pairs:
            if key.lower() in _SCRIPTS and not _OF_A_FOLDER & {*name}:
                yield key, name


def _pairs(files: Mapping[str, File], name: str) -> tuple[Line, ...]:
    return parse(_text(files, name), lambda path: _text(files, path.rpartition("/")[2])).lines


def _text(files: Mapping[str, File], name: str) -> str:
    return files[name].content.decode(errors="replace") if name in files else ""


def _of_gres(line: Line) -> Iterator[str]:
    if line.kind not in _BEGINS:
        yield f"{quoted(line.text)} does not begin with Name=, NodeName= or AutoDetect="
    for key, value in line.pairs:
        if key.lower() not in _GRES:
            yield f"unknown key {key}"
        if key.lower() == "count" and not _COUNT.fullmatch(value):
            yield f"Count={value} is not a number"


def _of_cgroup(line: Line) -> Iterator[str]:
    for key, value in line.pairs:
        if key.lower() == "cgroupplugin" and value not in _PLUGINS:
            yield f"CgroupPlugin={value}: must be one of {', '.join(sorted(_PLUGINS))}"
