"""Makes Services work in a guest. kube-proxy gives Services their addresses, and CoreDNS their names.
kube-apiserver runs on the host, so this module creates the endpoint of kube-apiserver's Service."""

from collections.abc import Iterator
from typing import Any, Final

from deploy.local.components import Component
from deploy.local.guest.connection import Connection
from deploy.local.guest.image import OURS
from deploy.local.guest.machine import ADDRESS, HOST
from deploy.local.guest.nodes import PODS, guest_program, write_guest_kubeconfig
from deploy.local.kubernetes.config import COREDNS_USER, DNS_SERVICE, PROXY_USER
from deploy.local.layout import Layout
from deploy.local.spec import GUEST

_FOLDER: Final = "/etc/kubernetes"
_PROXY_HEALTH: Final = 10256
_DNS_READY: Final = 8181
_COREFILE: Final = f""".:53 {{
    bind {ADDRESS}
    errors
    ready 127.0.0.1:{_DNS_READY}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {_FOLDER}/coredns.kubeconfig local
        pods insecure
    }}
    cache 5
}}
"""
# QEMU's network does not know the addresses of Pods, so packets that leave the guest get the guest's
# address. Between Pods, the addresses stay unchanged.
_PROXY: Final = f"""nft -f - <<'RULES'
table ip leaving {{
    chain postrouting {{
        type nat hook postrouting priority srcnat
        ip saddr {PODS} oifname eth0 masquerade
    }}
}}
RULES
exec "$0" "$@\""""
_ANSWERS: Final = "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}{path}', timeout=5)"


def write_services_files(ports: dict[str, int], layout: Layout) -> None:
    """Writes the files for kube-proxy and CoreDNS."""
    for name, user in (("kube-proxy", PROXY_USER), ("coredns", COREDNS_USER)):
        folder = layout.guest / name / _FOLDER.removeprefix("/")
        folder.mkdir(parents=True)
        write_guest_kubeconfig(folder / f"{name}.kubeconfig", user, ports, layout)
    (layout.guest / "coredns" / _FOLDER.removeprefix("/") / "Corefile").write_text(_COREFILE)


def services_components(ports: dict[str, int], layout: Layout) -> list[Component]:
    """Returns kube-proxy and CoreDNS as components."""
    proxy = (
        *("bash", "-c", _PROXY, f"{OURS}/kube-proxy"),
        f"--kubeconfig={_FOLDER}/kube-proxy.kubeconfig",
        "--proxy-mode=nftables",
        f"--hostname-override={GUEST}",
        "--conntrack-max-per-core=0",
        f"--healthz-bind-address=127.0.0.1:{_PROXY_HEALTH}",
    )
    dns = (f"{OURS}/coredns", "-conf", f"{_FOLDER}/Corefile")
    return [
        _component("kube-proxy", proxy, (_PROXY_HEALTH, "/healthz"), ports, layout),
        _component("coredns", dns, (_DNS_READY, "/ready"), ports, layout),
    ]


def services_objects(ports: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yields the Service of CoreDNS, and the endpoints of CoreDNS and kube-apiserver."""
    dns = [{"name": f"dns-{each.lower()}", "port": 53, "protocol": each} for each in ("UDP", "TCP")]
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_SERVICE, "ports": dns},
    }
    yield _slice("kube-dns", "kube-system", ADDRESS, dns)
    api = [{"name": "https", "port": ports["kube-apiserver"], "protocol": "TCP"}]
    yield _slice("kubernetes", "default", HOST, api)


def _slice(service: str, namespace: str, address: str, ports: list[dict[str, Any]]) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": ports,
    }


def _component(
    name: str, argv: tuple[str, ...], asked: tuple[int, str], ports: dict[str, int], layout: Layout
) -> Component:
    connection = Connection(ports[GUEST])
    port, path = asked

    def is_ready() -> bool:
        ask = f'python3 -c "{_ANSWERS.format(port=port, path=path)}"'
        return connection.run(ask, check=False).status == 0

    return Component(
        name=name, argv=guest_program(ports, layout, name, argv), is_ready=is_ready, ready_within_s=120.0
    )
