"""Kubernetes' side of a cluster's directory: certificates, users, configuration files."""

import base64
import secrets
from pathlib import Path
from typing import Final

import trustme

from deploy.local.layout import Layout
from deploy.local.rendering import render, source
from deploy.local.spec import ClusterSpec

# User -> group. The controller manager runs all its controllers as itself, not as a ServiceAccount
# each, so the role that is made for its user would not do.
USERS: Final = {
    "admin": "system:masters",
    "kwok": "system:masters",
    "slurm-extender": "",
    "system:kube-controller-manager": "system:masters",
    "system:kube-scheduler": "",
}
EXTENDER_LISTENERS: Final = ("scheduler", "admission", "metrics", "health")


def write_kubernetes_files(
    spec: ClusterSpec, ports: dict[str, int], layout: Layout, kubectl: Path
) -> None:
    """Everything that the Kubernetes components read."""
    folder = layout.kubernetes
    folder.mkdir()
    _write_certificates(folder)
    _write_users(ports, layout)
    scheduler = render(
        "kube-scheduler.yaml.j2",
        spec=spec,
        ports=ports,
        kubeconfig=kubeconfig_of("system:kube-scheduler", layout),
    )
    (folder / "kube-scheduler.yaml").write_text(scheduler)
    (folder / "kwok.yaml").write_text(source("kwok.yaml"))
    _write_kubectl(layout, kubectl)


def api_server_url(ports: dict[str, int]) -> str:
    return f"https://127.0.0.1:{ports['kube-apiserver']}"


def kubeconfig_of(user: str, layout: Layout) -> Path:
    if user == "admin":
        return layout.kubeconfig
    return layout.kubernetes / f"{user.removeprefix('system:')}.kubeconfig"


def admin_token(layout: Layout) -> str:
    return (layout.kubernetes / "admin.token").read_text()


def ca_bundle(layout: Layout) -> str:
    """The cluster's CA as a webhook configuration wants it."""
    return base64.b64encode((layout.kubernetes / "ca.crt").read_bytes()).decode()


def _write_certificates(folder: Path) -> None:
    """One authority and a pair for each server; of the ServiceAccounts' only the key is used."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    for name in ("kube-apiserver", "extender", "service-account"):
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        for blob in issued.cert_chain_pems:
            blob.write_to_path(folder / f"{name}.crt", append=True)


def _write_users(ports: dict[str, int], layout: Layout) -> None:
    rows = []
    for user, group in USERS.items():
        token = secrets.token_hex(16)
        rows.append(f'{token},{user},{user},"{group}"\n' if group else f"{token},{user},{user}\n")
        values = {"server": api_server_url(ports), "ca": layout.kubernetes / "ca.crt"}
        config = render("kubeconfig.yaml.j2", user=user, token=token, **values)
        kubeconfig_of(user, layout).write_text(config)
        if user == "admin":
            (layout.kubernetes / "admin.token").write_text(token)
    (layout.kubernetes / "tokens.csv").write_text("".join(rows))


def _write_kubectl(layout: Layout, kubectl: Path) -> None:
    wrapper = layout.bin / "kubectl"
    wrapper.write_text(f"#!/bin/sh\nexec '{kubectl}' --kubeconfig '{layout.kubeconfig}' \"$@\"\n")
    wrapper.chmod(0o755)
