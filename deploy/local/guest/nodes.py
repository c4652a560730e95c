"""Makes the guest a node of Slurm and a Node of Kubernetes: the guest's programs, and their files. The
host writes the files, and copies them into the guest at each start of a program."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from deploy.local.chart import AGENT_USER, POOLS_NAMESPACE
from deploy.local.components import Component, answers
from deploy.local.guest.agent import OURS as AGENT_PACKAGES
from deploy.local.guest.connection import Connection
from deploy.local.guest.image import OURS, PACKAGES
from deploy.local.guest.machine import ADDRESS, HOST
from deploy.local.guest.oci import PAUSE
from deploy.local.kubernetes.components import api_client
from deploy.local.kubernetes.config import API_SERVICE, DNS_SERVICE, NODE_USER, user_token
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.processes.namespaces import Bind
from deploy.local.rendering import render
from deploy.local.slurm.config import replace_parameters
from deploy.local.spec import GUEST, GUEST_GPUS, ClusterSpec

GPUS: Final = tuple(f"/dev/fgpu{index}" for index in range(GUEST_GPUS))
"""The guest's devices, in Slurm's order. inside/prepare creates the devices."""

GPU: Final = "example.com/gpu"
"""Extended resource of the devices."""
SLURMRESTD: Final = "10.96.0.2:6820"
"""Address at which Pods reach slurmrestd through the gateway."""
PODS: Final = "10.88.0.0/24"
"""Addresses of Pods."""
_GATEWAY_CERTIFICATE: Final = "/etc/kubernetes/gateway.pem"
_CHECKOUT: Final = f"{OURS}/checkout"
_GRES_LIST: Final = "/run/slurm-gres"
# Parameters of slurm.conf that differ in the guest. slurmctld and the guest must agree on all others.
_SLURM_CONF: Final = (
    f"SlurmctldHost=localhost({HOST})",
    "CommunicationParameters=block_null_hash",  # no NoInAddrAny: calls come from the host
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/cgroup,task/affinity",
)
# Command in front of slurmd, by the guest's cgroup driver. With systemd, slurmd needs a separate cgroup,
# as in Debian's unit for slurmd. Even `slurmd -G` needs the cgroup, although it only prints.
_WITH_SCOPE: Final = {"cgroupfs": "", "systemd": "systemd-run --quiet --scope --collect -p Delegate=yes"}
_SLURMD: Final = f"""mkdir -p /var/lib/slurm/spool/{GUEST}
$0 slurmd -G -N {GUEST} > {_GRES_LIST}.new 2>&1 || {{ cat {_GRES_LIST}.new; exit 1; }}
mv {_GRES_LIST}.new {_GRES_LIST}
exec $0 slurmd -D -N {GUEST}"""
_CONTAINERD: Final = """mkdir -p /opt/cni
ln -sfn /usr/lib/cni /opt/cni/bin
exec containerd"""
_IMPORT: Final = f"""ctr -n k8s.io images import {OURS}/images.tar &&
ctr -n k8s.io images label {PAUSE} io.cri-containerd.pinned=pinned"""
_ACCOUNT: Final = "var/run/secrets/kubernetes.io/serviceaccount"
"""Path of the service account's files in Pods. The node agent reads this path although it runs in
no Pod here."""
_KUBELET: Final = f"""mkdir -p /etc/kubernetes/manifests /var/log/pods
exec {OURS}/kubelet --config /etc/kubernetes/kubelet.yaml \
--kubeconfig /etc/kubernetes/kubelet.kubeconfig --hostname-override {GUEST} --node-ip {ADDRESS} -v 2"""


def guest_binds(spec: ClusterSpec, layout: Layout) -> list[Bind]:
    """Returns the mount of a file over /etc/hosts. In this file, the guest's name has the address
    127.0.0.1, at which the host forwards ports to the guest. Only the cluster's own programs see this
    file."""
    return [Bind(str(layout.guest / "hosts"), "/etc/hosts")] if spec.guest else []


def write_guest_files(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Writes all files for the guest's programs. The files of the host's programs must already exist,
    because this function copies some of them."""
    for name in ("slurmd", "containerd", "kubelet", "gateway"):
        (layout.guest / name / "etc/kubernetes").mkdir(parents=True)
    (layout.guest / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {GUEST}\n")
    if not spec.guest_in_pool:
        _write_slurm(spec, layout.guest / "slurmd/etc/slurm", layout)
    containerd = layout.guest / "containerd/etc"
    systemd = "true" if spec.guest_cgroups == "systemd" else "false"
    config = containerd / "containerd/config.toml"
    _write(config, "containerd.toml.j2", spec=spec, pause=PAUSE, systemd=systemd)
    _write(containerd / "cni/net.d/10-ptp.conflist", "cni.json.j2", pods=PODS)
    shown = [layout.kubernetes / f"kube-apiserver.{part}" for part in ("crt", "key")]
    certificate = layout.guest / "gateway" / _GATEWAY_CERTIFICATE.removeprefix("/")
    certificate.write_text("".join(part.read_text() for part in shown))
    kubelet = layout.guest / "kubelet/etc/kubernetes"
    _write(kubelet / "kubelet.yaml", "kubelet.yaml.j2", spec=spec, ports=ports, dns=DNS_SERVICE)
    write_guest_kubeconfig(kubelet / "kubelet.kubeconfig", NODE_USER, ports, layout)
    account = layout.guest / "node-agent" / _ACCOUNT
    account.mkdir(parents=True)
    shutil.copy(layout.kubernetes / "ca.crt", account)
    (account / "token").write_text(user_token(AGENT_USER, layout))


def write_guest_kubeconfig(path: Path, user: str, ports: dict[str, int], layout: Layout) -> None:
    """Writes a user's kubeconfig for the guest's /etc/kubernetes, with the CA certificate in the
    same folder."""
    shutil.copy(layout.kubernetes / "ca.crt", path.parent)
    _write(
        path,
        "kubeconfig.yaml.j2",
        user=user,
        token=user_token(user, layout),
        server=f"https://{HOST}:{ports['kube-apiserver']}",
        ca="/etc/kubernetes/ca.crt",
    )


def guest_slurmd(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> Component:
    """Returns slurmd as a component. The component is ready once slurmd runs, even if the node has not
    yet registered."""
    connection = Connection(ports[GUEST])

    def is_ready() -> bool:
        return connection.run("pgrep -x slurmd", check=False).status == 0

    program = ("bash", "-c", _SLURMD, _WITH_SCOPE[spec.guest_cgroups])
    argv = guest_program(ports, layout, "slurmd", program)
    return Component(name=f"slurmd-{GUEST}", argv=argv, is_ready=is_ready)


def containerd(ports: dict[str, int], layout: Layout) -> Component:
    """Returns containerd as a component. The component is ready once containerd has the images."""
    connection = Connection(ports[GUEST])

    def is_ready() -> bool:
        return connection.run(_IMPORT, check=False).status == 0

    argv = guest_program(ports, layout, "containerd", ("bash", "-c", _CONTAINERD))
    return Component(name="containerd", argv=argv, is_ready=is_ready)


def guest_kubelet(ports: dict[str, int], layout: Layout) -> Component:
    """Returns the kubelet. The component is ready once the Node is Ready."""

    def is_ready() -> bool:
        shown = (layout.kubernetes / "kube-apiserver.crt", layout.kubernetes / "kube-apiserver.key")
        if not answers(f"https://127.0.0.1:{ports['kubelet']}/healthz", shown=shown):
            return False
        with api_client(ports, layout) as client:
            return _is_ready(client)

    argv = guest_program(ports, layout, "kubelet", ("bash", "-c", _KUBELET))
    return Component(name="kubelet", argv=argv, is_ready=is_ready, ready_within_s=120.0)


def node_agent(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> Component:
    """Returns the node agent of this checkout."""
    ours = [(CHECKOUT / package, f"{_CHECKOUT}/{package}") for package in AGENT_PACKAGES]
    return Component(
        name="node-agent",
        argv=guest_program(ports, layout, "node-agent", agent_argv(spec, ports, "run"), ours),
        is_ready=lambda: answers(f"http://127.0.0.1:{ports['node-agent-health']}/readyz"),
        ready_within_s=120.0,
    )


def gateway(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> Component:
    """Returns the gateway (inside/gateway.py) as a component: the network between the host's control
    plane and Pods."""
    services = {f"{API_SERVICE}:443": "kube-apiserver"}
    services |= {SLURMRESTD: "slurmrestd"} if spec.slurm else {}
    forwards = [f"{address}={HOST}:{ports[name]}" for address, name in services.items()]
    argv = ("python3", f"{OURS}/gateway.py", str(ports["gateway"]), _GATEWAY_CERTIFICATE, *forwards)
    return Component(
        name="gateway",
        argv=guest_program(ports, layout, "gateway", argv),
        is_ready=lambda: "serves" in layout.log("gateway").read_text(),
        ready_within_s=120.0,
    )


def agent_argv(spec: ClusterSpec, ports: Mapping[str, int], command: str) -> tuple[str, ...]:
    """Returns the command line with which the guest runs a command of the node agent, such as "run"."""
    extender = dict(spec.extender_settings)
    settings = {
        "RESOURCES": extender.get("GRES", json.dumps({GPU: "gpu"})),
        "NRI": "/var/run/nri/nri.sock" if spec.guest_has_nri else "",
        "NODE": GUEST,
        **_slurmd_settings(spec),
        "METRICS_PORT": ports["node-agent-metrics"],
        "HEALTH_PORT": ports["node-agent-health"],
    }
    server = {"HOST": HOST, "PORT": ports["kube-apiserver"]}
    environment = [
        *(f"NODE_AGENT_{name}={value}" for name, value in settings.items()),
        *(f"KUBERNETES_SERVICE_{name}={value}" for name, value in server.items()),
    ]
    paths = f"PYTHONPATH={PACKAGES}:{_CHECKOUT}"
    return ("env", paths, *environment, "python3", "-m", "node_agent", command)


def _slurmd_settings(spec: ClusterSpec) -> dict[str, str]:
    """Returns the node agent's settings that depend on the place of slurmd: beside the node agent, or in
    a Pod."""
    if not spec.guest_in_pool:
        return {"GRES": _GRES_LIST}
    return {"GRES": "/run/slurm-extender/gres", "SLURMD_NAMESPACE": POOLS_NAMESPACE}


def guest_program(
    ports: dict[str, int],
    layout: Layout,
    name: str,
    argv: Sequence[str],
    more: Sequence[tuple[Path, str]] = (),
) -> tuple[str, ...]:
    """Returns the command line of the process that represents a program of the guest (program.py)."""
    puts = [(layout.guest / name, "/"), *more]
    options = [word for source, target in puts for word in ("--put", f"{source}={target}")]
    us = (sys.executable, "-m", "deploy.local.guest.program", str(ports[GUEST]))
    return (*us, *options, "--", *argv)


def _write(path: Path, template: str, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(template, **values))


def _write_slurm(spec: ClusterSpec, folder: Path, layout: Layout) -> None:
    folder.mkdir(parents=True)
    conf = (layout.slurm / "etc/slurm.conf").read_text()
    (folder / "slurm.conf").write_text(replace_parameters(conf, _SLURM_CONF))
    (folder / "cgroup.conf").write_text(
        render("guest-cgroup.conf.j2", ignore_systemd=spec.guest_cgroups != "systemd")
    )
    files = f"{GPUS[0][:-1]}[0-{GUEST_GPUS - 1}]"
    (folder / "gres.conf").write_text(f"NodeName={GUEST} Name=gpu Type=h100 File={files}\n")
    key = layout.slurm / "etc/slurm.key"
    shutil.copy2(key, folder)
    status = key.stat()
    shutil.chown(folder / key.name, status.st_uid, status.st_gid)


def _is_ready(client: httpx.Client) -> bool:
    """Returns whether the Node is Ready."""
    answer = client.get(f"/api/v1/nodes/{GUEST}")
    ready = {"type": "Ready", "status": "True"}
    conditions = answer.json()["status"].get("conditions", []) if answer.is_success else []
    return any(ready.items() <= each.items() for each in conditions)
