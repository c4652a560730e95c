"""Kubernetes' part of a cluster's directory: certificates, users, configuration files."""

import base64
import csv
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trustme

from deploy.local.chart import AGENT_USER, Rendered, values_of
from deploy.local.kubernetes.scheduler_config import configured
from deploy.local.layout import Layout
from deploy.local.links import admission_port, target_port
from deploy.local.rendering import render, source
from deploy.local.spec import GUEST, ClusterSpec

# Maps each user to a group. The controller manager runs all controllers as one user, without a
# ServiceAccount for each controller. Kubernetes' own role for this user is not enough, so the user is in
# system:masters.
USERS: Final = {
    "admin": "system:masters",
    "kwok": "system:masters",
    "slurm-extender": "",
    "system:kube-controller-manager": "system:masters",
    "system:kube-scheduler": "",
}
NODE_USER: Final = f"system:node:{GUEST}"
"""User of the guest's kubelet. The Node authorizer and the plugin NodeRestriction require this name, and
the group system:nodes."""
PROXY_USER: Final = "system:kube-proxy"
COREDNS_USER: Final = "system:coredns"
_GUEST_USERS: Final = {NODE_USER: "system:nodes", AGENT_USER: ""}
_SERVICES_USERS: Final = {PROXY_USER: "", COREDNS_USER: "system:masters"}
API_SERVICE: Final = "10.96.0.1"
"""The address of kube-apiserver's Service `kubernetes`. It is the first address of the Services'
network."""
DNS_SERVICE: Final = "10.96.0.10"
"""The address of CoreDNS's Service, in clusters with `services`."""
EXTENDER_LISTENERS: Final = ("scheduler", "admission", "hooks", "metrics", "health")
# Names in the certificate of each server. A guest reaches this machine at 10.0.2.2. The guest's Pods
# reach kube-apiserver at the Service's address.
_SERVER_NAMES: Final = (
    "127.0.0.1",
    "localhost",
    "10.0.2.2",
    API_SERVICE,
    "kubernetes.default.svc",  # kube-apiserver's name in Pods
)


def write_kubernetes_files(
    spec: ClusterSpec, ports: dict[str, int], layout: Layout, binaries: Mapping[str, str]
) -> None:
    """Writes all files for the Kubernetes components."""
    folder = layout.kubernetes
    folder.mkdir()
    _write_certificates(folder)
    port, ca = admission_port(spec, ports) if spec.extender else 1, ca_bundle(layout)
    if "helm" in binaries:
        chart = Rendered.of(Path(binaries["helm"]), values_of(spec, port, ca))
    else:
        chart = Rendered.recorded(port, ca)
    chart.write(layout.chart)
    if spec.client_certificates:
        _write_callers(folder, admission_port(spec, ports))
    if spec.in_pods:
        (folder / "egress.yaml").write_text(
            render("egress.yaml.j2", folder=folder, port=ports["gateway"])
        )
    _write_users(spec, ports, layout)
    _write_schedulers(chart, spec, ports, layout)
    (folder / "kwok.yaml").write_text(source("kwok.yaml"))
    layout.policy_file.write_text(spec.policy or source("policy.yaml"))
    if spec.pools:
        layout.pools_file.write_text(spec.pools)
    _write_kubectl(layout, Path(binaries["kubectl"]))


def api_server_url(ports: dict[str, int]) -> str:
    return f"https://127.0.0.1:{ports['kube-apiserver']}"


def kubeconfig_of(user: str, layout: Layout) -> Path:
    if user == "admin":
        return layout.kubeconfig
    return layout.kubernetes / f"{user.removeprefix('system:')}.kubeconfig"


def scheduler_configuration(name: str, layout: Layout) -> Path:
    return layout.kubernetes / f"{name}.yaml"


def extender_kubeconfig(name: str, layout: Layout) -> Path:
    """Returns the kubeconfig of an extender. All extenders are the same user, but each extender may have
    a separate link to the API server."""
    return layout.kubernetes / f"{name}.kubeconfig"


def admin_token(layout: Layout) -> str:
    return (layout.kubernetes / "admin.token").read_text()


def user_token(user: str, layout: Layout) -> str:
    """Returns a user's token. Raises KeyError if the cluster has no such user."""
    rows = csv.reader((layout.kubernetes / "tokens.csv").read_text().splitlines())
    return {name: token for token, name, *_ in rows}[user]


def ca_bundle(layout: Layout) -> str:
    """Returns the cluster's CA in the format of a webhook configuration."""
    return base64.b64encode((layout.kubernetes / "ca.crt").read_bytes()).decode()


def _write_certificates(folder: Path) -> None:
    """Writes a CA, and a key and a certificate for each server. The kubelet identifies kube-apiserver by
    the common name."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.crt")
    for name in ("kube-apiserver", "extender", "service-account"):
        issued = ca.issue_cert(*_SERVER_NAMES, common_name=name)
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        for blob in issued.cert_chain_pems:
            blob.write_to_path(folder / f"{name}.crt", append=True)


def _write_callers(folder: Path, port: int) -> None:
    """Writes a CA for callers of the extender only, and a client certificate from this CA. Also writes
    kube-apiserver's configuration with the paths of these files."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "callers.crt")
    issued = ca.issue_cert("caller.slurm-extender.io")
    issued.private_key_pem.write_to_path(folder / "caller.key")
    issued.cert_chain_pems[0].write_to_path(folder / "caller.crt")
    (folder / "admission.yaml").write_text(render("admission.yaml.j2", folder=folder))
    (folder / "webhooks.kubeconfig").write_text(
        render("webhooks.kubeconfig.j2", folder=folder, port=port)
    )


def _write_users(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    rows = []
    users = USERS | (_GUEST_USERS if spec.guest else {}) | (_SERVICES_USERS if spec.services else {})
    tokens = {user: secrets.token_hex(16) for user in users}
    for user, group in users.items():
        token = tokens[user]
        rows.append(f'{token},{user},{user},"{group}"\n' if group else f"{token},{user},{user}\n")
        _write_kubeconfig(kubeconfig_of(user, layout), user, token, ports["kube-apiserver"], layout)
    for name in spec.extender_names:
        path, port = extender_kubeconfig(name, layout), target_port(spec, ports, name, "kube-apiserver")
        _write_kubeconfig(path, "slurm-extender", tokens["slurm-extender"], port, layout)
    (layout.kubernetes / "admin.token").write_text(tokens["admin"])
    (layout.kubernetes / "tokens.csv").write_text("".join(rows))


def _write_schedulers(chart: Rendered, spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Writes the kube-schedulers' configurations. Each kube-scheduler calls the extender beside it,
    if any."""
    extenders: list[int | None] = [ports[f"{name}-scheduler"] for name in spec.extender_names] or [None]
    for name, port in zip(spec.scheduler_names, extenders, strict=not spec.in_pods):
        scheduler_configuration(name, layout).write_text(configured(chart, spec, port, layout))
    for name in spec.other_scheduler_names:
        asked = extenders[0] if spec.ignorable else None
        scheduler_configuration(name, layout).write_text(
            configured(chart, spec, asked, layout, others=True)
        )


def _write_kubeconfig(path: Path, user: str, token: str, port: int, layout: Layout) -> None:
    server, ca = f"https://127.0.0.1:{port}", layout.kubernetes / "ca.crt"
    path.write_text(render("kubeconfig.yaml.j2", user=user, token=token, server=server, ca=ca))


def _write_kubectl(layout: Layout, kubectl: Path) -> None:
    layout.bin.mkdir(exist_ok=True)  # without a Slurm, the folder does not exist yet
    wrapper = layout.bin / "kubectl"
    # kubectl runs only briefly, and garbage collection would be a quarter of its CPU time.
    gogc = "export GOGC=1000"
    command = f"exec '{kubectl}' --kubeconfig '{layout.kubeconfig}' \"$@\""
    wrapper.write_text(f"#!/bin/sh\n{gogc}\n{command}\n")
    wrapper.chmod(0o755)
