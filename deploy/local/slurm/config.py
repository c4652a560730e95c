"""Slurm's part of a cluster's directory: configuration, keys, state and mounts."""

import os
import secrets
import shutil
import socket
import stat
import time
from pathlib import Path
from typing import Final

import jwt

from deploy.local.layout import CHECKOUT, Layout
from deploy.local.processes.namespaces import Bind
from deploy.local.rendering import render
from deploy.local.slurm.database import copy_system_tables
from deploy.local.spec import GUEST_GPUS, ClusterSpec
from deploy.local.users import JOB_USERS, SLURM_UID, SLURMRESTD_UID

CLIENTS: Final = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
ACCOUNTING_CLIENTS: Final = ("sacct", "sacctmgr")

HOOK: Final = CHECKOUT / "deploy" / "slurm" / "slurm-extender-hook"
GATE: Final = HOOK.with_name("slurm-extender-gate")

_TOKEN_LIFETIME_S: Final = 30 * 24 * 3600
_NULL_DEVICE: Final = os.makedev(1, 3)
# Parameters for a slurmd that runs in a Pod of the guest, and gets its configuration from slurmctld. The
# names and folders in these parameters are valid both on the host and in the Pod.
_OF_POOL: Final = (
    "SlurmctldHost=localhost(slurmctld)",
    "CommunicationParameters=block_null_hash,NoCtldInAddrAny",
    "SlurmdSpoolDir=/var/spool/slurmd",
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/cgroup,task/affinity",
)
# Parameters that slurm.conf may repeat: a further line with such a parameter does not replace the first
# line.
_REPEATABLE: Final = ("nodename", "nodeset", "partitionname", "downnodes", "include")


def write_slurm_files(spec: ClusterSpec, ports: dict[str, int], layout: Layout, tree: Path) -> None:
    """Writes all files for Slurm, and creates empty folders for Slurm's output."""
    _make_folders(spec, layout)
    etc = layout.slurm / "etc"
    more = (*(_OF_POOL if spec.guest_in_pool else ()), *spec.slurm_conf)
    conf = replace_parameters(render("slurm.conf.j2", spec=spec, ports=ports), more)
    (etc / "slurm.conf").write_text(conf)
    (etc / "gres.conf").write_text(render("gres.conf.j2", spec=spec, guest_gpus=GUEST_GPUS))
    in_pods = render("guest-cgroup.conf.j2", ignore_systemd=True) if spec.guest_in_pool else ""
    (etc / "cgroup.conf").write_text(in_pods or "CgroupPlugin=disabled\n")
    for key in ("slurm.key", "jwt_hs256.key"):
        _write_key(etc / key)
    if spec.job_submit_lua:
        layout.job_submit_lua.write_text(spec.job_submit_lua)
    if spec.extender:
        _write_hook(spec, ports, layout)
    if spec.accounting:
        _write_accounting(ports, layout, tree)
    hosts = f"127.0.0.1 localhost slurmctld {socket.gethostname()}\n"
    (layout.slurm / "hosts").write_text(hosts)
    _make_gpus(spec, layout.slurm / "var/gpu")
    layout.token_file.touch(mode=0o600)
    layout.token_file.write_text(mint_token(layout, "root", _TOKEN_LIFETIME_S))


def share_slurm(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Links another cluster's Slurm into this cluster's directory. Adds this cluster's extenders to the
    configuration of the hook script, so that the shared Slurm reports jobs to them too."""
    other = Path(spec.slurm_of).resolve()
    layout.bin.mkdir()
    programs = [layout.bin / client for client in clients(spec)]
    files = (layout.slurm, layout.home, layout.token_file, layout.slurmrestd_socket.parent)
    for path in (*files, *programs):
        path.symlink_to(other / path.relative_to(layout.directory))
    with _hook_configuration(layout).open("a") as configuration:
        configuration.write(f'SLURM_EXTENDER_HOOKS_URLS+=" {_hooks_urls(spec, ports)}"\n')


def replace_parameters(conf: str, lines: tuple[str, ...]) -> str:
    """Returns `conf` followed by `lines`, without the lines of `conf` whose parameter is in `lines`."""
    again = {_parameter(line) for line in lines} - set(_REPEATABLE)
    kept = [line for line in conf.splitlines() if _parameter(line) not in again]
    return "\n".join([*kept, *lines, ""])


def _parameter(line: str) -> str:
    return line.partition("=")[0].strip().lower()


def mint_token(layout: Layout, user: str, lifetime_s: int) -> str:
    """Returns a JWT for Slurm's auth/jwt (claims exp, iat, sun)."""
    now = int(time.time())
    key = (layout.slurm / "etc/jwt_hs256.key").read_bytes()
    return jwt.encode({"exp": now + lifetime_s, "iat": now, "sun": user}, key, "HS256")


def slurm_binds(spec: ClusterSpec, tree: Path, layout: Layout) -> list[Bind]:
    """Returns the mounts: the tree, which is read-only, and this cluster's own folders in the tree."""
    if not spec.own_slurm:
        return []
    own = {
        "etc/slurm": layout.slurm / "etc",
        "etc/hosts": layout.slurm / "hosts",
        "var/lib/slurm": layout.slurm / "var",
        "run": layout.slurm / "run",
        "run/slurmrestd": layout.slurmrestd_socket.parent,
        "tmp": layout.slurm / "tmp",
        "home": layout.home,
    }
    if spec.accounting:
        own["run/mysqld"] = layout.database_socket.parent
    return [
        Bind(str(tree), str(layout.root), read_only=True),
        Bind("/dev", str(layout.root / "dev"), recursive=True),
        *(Bind(str(source), str(layout.root / target)) for target, source in own.items()),
    ]


def clients(spec: ClusterSpec) -> tuple[str, ...]:
    """Returns the names of Slurm's client programs that users of the cluster get."""
    return (*CLIENTS, *(ACCOUNTING_CLIENTS if spec.accounting else ()))


def write_clients(spec: ClusterSpec, layout: Layout) -> None:
    """Writes Slurm's client programs, for users and for `Cluster.run_slurm`."""
    layout.bin.mkdir(exist_ok=True)
    wrapper = layout.bin / "slurm-client"
    wrapper.write_text(render("slurm-client.sh.j2", layout=layout))
    wrapper.chmod(0o755)
    for client in clients(spec):
        (layout.bin / client).symlink_to(wrapper.name)


def run_folder(layout: Layout, node: str) -> Path:
    """Returns the folder that a slurmd sees as /run. Each slurmd has a separate folder, because two
    slurmds cannot share the socket in /run."""
    return layout.slurm / "run-of" / node


def _make_folders(spec: ClusterSpec, layout: Layout) -> None:
    layout.root.mkdir()
    for folder in ("etc", "var/state", "var/spool", "var/gpu", "run/slurm", "run/slurmctld"):
        (layout.slurm / folder).mkdir(parents=True)
    for user, uid in JOB_USERS.items():
        _make_folder(layout.home / user, owner=uid)
    for node in (*spec.slurmd_names, *spec.dynamic_names):
        (layout.slurm / "var/spool" / node).mkdir()
        (run_folder(layout, node) / "slurm").mkdir(parents=True)
        (run_folder(layout, node) / "slurmd").mkdir()
    _make_folder(layout.slurm / "tmp", mode=0o1777)
    _make_folder(layout.slurmrestd_socket.parent, owner=SLURMRESTD_UID)
    (layout.slurm / "run/slurmrestd").mkdir()
    for folder in ("var/state", "run/slurmctld"):
        os.chown(layout.slurm / folder, SLURM_UID, SLURM_UID)


def _make_folder(path: Path, owner: int = 0, mode: int = 0o755) -> None:
    path.mkdir(parents=True)
    path.chmod(mode)
    os.chown(path, owner, owner)


def _write_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(64))
    os.chown(path, SLURM_UID, SLURM_UID)


def _write_hook(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Installs the scripts of deploy/slurm, and their configuration: the extenders' addresses and the
    token."""
    etc, token = layout.slurm / "etc", layout.hooks_token_file
    for script in (HOOK, GATE):
        shutil.copy(script, etc)
    _hook_configuration(layout).write_text(
        f'SLURM_EXTENDER_HOOKS_URLS="{_hooks_urls(spec, ports)}"\n'
        f"SLURM_EXTENDER_HOOKS_TOKEN_FILE=/etc/slurm/{token.name}\n"
    )
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.chown(token, SLURM_UID, SLURM_UID)


def _hook_configuration(layout: Layout) -> Path:
    return layout.slurm / "etc" / f"{HOOK.name}.conf"


def _hooks_urls(spec: ClusterSpec, ports: dict[str, int]) -> str:
    return " ".join(f"http://127.0.0.1:{ports[f'{name}-hooks']}" for name in spec.extender_names)


def _write_accounting(ports: dict[str, int], layout: Layout, tree: Path) -> None:
    etc = layout.slurm / "etc"
    (etc / "mariadb.cnf").write_text(render("mariadb.cnf.j2"))
    conf = etc / "slurmdbd.conf"
    conf.touch(mode=0o600)  # slurmdbd requires this mode: the file may contain a password
    conf.write_text(render("slurmdbd.conf.j2", ports=ports))
    os.chown(conf, SLURM_UID, SLURM_UID)
    _make_folder(layout.slurm / "run/slurmdbd", owner=SLURM_UID)
    _make_folder(layout.database_socket.parent, owner=SLURM_UID)
    (layout.slurm / "run/mysqld").mkdir()
    copy_system_tables(tree, layout.slurm / "var/database")


def _make_gpus(spec: ClusterSpec, folder: Path) -> None:
    for index in range(spec.gpus_per_node):
        os.mknod(folder / f"nvidia{index}", stat.S_IFCHR | 0o666, _NULL_DEVICE)
