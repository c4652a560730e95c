"""Slurm's daemons: how each is started inside the tree, and how its readiness is checked."""

import subprocess
from typing import Final

from deploy.local.components import (
    PLAIN_ENVIRONMENT,
    Component,
    accepts_at,
    accepts_connections,
    answers,
)
from deploy.local.layout import Layout
from deploy.local.slurm.config import run_folder
from deploy.local.spec import ClusterSpec

# v0.0.42 is the only version of the REST API that both Slurm 24.11 and Slurm 26.05 serve.
_PING: Final = "/slurm/v0.0.42/ping/"
# Data parsers to load. With +fast, slurmrestd needs half the time for a submission. v0.0.42 is for
# _PING.
_SLURMRESTD_OPTIONS: Final = {"26.05": ("-d", "v0.0.42,v0.0.45+fast")}
# Without slurmdbd, slurmrestd 24.11 ends if it loads the OpenAPI plugin for slurmdbd.
_WITHOUT_SLURMDBD: Final = {"24.11": ("-s", "slurmctld")}
# slurmrestd writes JSON without white space. The first variable is for 26.05, and the second variable,
# with the same meaning, for 24.11.
_COMPACT: Final = {"SLURM_JSON": "compact", "SLURMRESTD_JSON": "compact"}
# $0 is the tree, $1 the folder to mount as /run.
_WITH_OWN_RUN: Final = 'run=$1; shift; mount --bind "$run" "$0/run" && exec chroot "$0" "$@"'


def slurm_components(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> list[Component]:
    """Returns slurmctld, slurmrestd, and a slurmd for each name in `spec.slurmd_names`. The daemons can
    start in any order."""
    return [
        _slurmctld(spec, ports["slurmctld"], layout),
        _slurmrestd(spec, ports["slurmrestd"], layout),
        *(_slurmd(node, ports, layout) for node in spec.slurmd_names),
    ]


def dynamic_components(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> list[Component]:
    """Returns the slurmds that register themselves (slurmd(8) -Z). The caller that starts such a slurmd
    sets the size of its node (`Cluster.register`)."""
    options = ("-Z", "--conf-server", f"127.0.0.1:{ports['slurmctld']}")
    return [_slurmd(node, ports, layout, *options) for node in spec.dynamic_names]


def accounting_components(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> list[Component]:
    """Returns MariaDB and slurmdbd. slurmdbd needs MariaDB, and a new slurmctld needs both."""
    return [_mariadbd(layout), _slurmdbd(ports["slurmdbd"], layout)] if spec.accounting else []


def nodes_are_up(layout: Layout) -> bool:
    """Returns whether every node has registered: no node is down, unknown or silent (marked with a
    *)."""
    states = _client(layout, "sinfo", "--noheader", "--Node", "--format=%T").split()
    return bool(states) and not any(
        state.startswith(("down", "unknown")) or state.endswith("*") for state in states
    )


def _mariadbd(layout: Layout) -> Component:
    user = "--userspec=slurm"
    program = ("/usr/sbin/mariadbd", "--defaults-file=/etc/slurm/mariadb.cnf")
    return Component(
        name="mariadbd",
        argv=("chroot", user, str(layout.root), *program),
        is_ready=lambda: accepts_at(layout.database_socket),
    )


def _slurmdbd(port: int, layout: Layout) -> Component:
    return Component(
        name="slurmdbd",
        argv=("chroot", str(layout.root), "/usr/sbin/slurmdbd", "-D"),
        is_ready=lambda: accepts_connections(port),
    )


def _slurmctld(spec: ClusterSpec, port: int, layout: Layout) -> Component:
    def is_ready() -> bool:
        if not accepts_connections(port) or "is UP" not in _client(layout, "scontrol", "ping"):
            return False
        return not spec.accounting or _is_registered(layout)

    return Component(
        name="slurmctld",
        # -i: start even with an incomplete saved state, as after kill -9.
        argv=("chroot", str(layout.root), "/usr/sbin/slurmctld", "-D", "-i"),
        is_ready=is_ready,
    )


def _is_registered(layout: Layout) -> bool:
    """Returns whether slurmdbd knows slurmctld's address, and so can send updates of accounts."""
    cluster = ("show", "cluster", "format=ControlPort")
    return int(_client(layout, "sacctmgr", "--noheader", "--parsable2", *cluster) or 0) > 0


def _slurmrestd(spec: ClusterSpec, port: int, layout: Layout) -> Component:
    user = "--userspec=slurmrestd"
    plugins = () if spec.accounting else _WITHOUT_SLURMDBD.get(spec.release, ())
    options = (*_SLURMRESTD_OPTIONS.get(spec.release, ()), *plugins)
    program = ("/usr/sbin/slurmrestd", "-a", "rest_auth/jwt", *options)
    listeners = (f"127.0.0.1:{port}", "unix:/run/slurmrestd/slurmrestd.sock")

    def is_ready() -> bool:
        token = layout.token_file.read_text()
        return answers(f"http://127.0.0.1:{port}{_PING}", {"X-SLURM-USER-TOKEN": token})

    return Component(
        name="slurmrestd",
        argv=("chroot", user, str(layout.root), *program, *listeners),
        # SLURM_JWT=daemon: slurmrestd needs neither a key nor a token of its own.
        env={**PLAIN_ENVIRONMENT, "SLURM_JWT": "daemon", **_COMPACT},
        is_ready=is_ready,
    )


def _slurmd(node: str, ports: dict[str, int], layout: Layout, *options: str) -> Component:
    program = ("/usr/sbin/slurmd", "-D", "-N", node, *options)
    own_run = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _WITH_OWN_RUN)
    name = f"slurmd-{node}"
    return Component(
        name=name,
        argv=(*own_run, str(layout.root), str(run_folder(layout, node)), *program),
        is_ready=lambda: accepts_connections(ports[name]),
    )


def _client(layout: Layout, program: str, *arguments: str) -> str:
    command = [str(layout.bin / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
