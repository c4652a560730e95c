"""The network links of a cluster that go through a proxy (processes/proxy.py).

One link is the stand-in for a Service in front of the extenders. The other links lead from each extender
to kube-apiserver and to slurmrestd.
"""

import json
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from deploy.local.components import Component, accepts_connections
from deploy.local.errors import ClusterError
from deploy.local.layout import Layout
from deploy.local.spec import ClusterSpec

# Servers to which an extender's link can lead.
TARGETS: Final = ("kube-apiserver", "slurmrestd")

_SERVICE: Final = "service"
_LINKS: Final = "links"
_ADMISSION: Final = "service-admission"
_ANSWER_TIMEOUT_S: Final = 10.0


def link_name(extender: str, target: str) -> str:
    """Returns the name of a link and of the link's port."""
    return f"{extender}-to-{target}"


def link_port_names(spec: ClusterSpec) -> list[str]:
    service = [_ADMISSION] if spec.replicas > 1 else []
    return [*service, *(link_name(*ends) for ends in _ends(spec))]


def admission_port(spec: ClusterSpec, ports: dict[str, int]) -> int:
    """Returns the port to which the API server sends admission requests."""
    return ports[_ADMISSION if spec.replicas > 1 else "extender-admission"]


def target_port(spec: ClusterSpec, ports: dict[str, int], extender: str, target: str) -> int:
    """Returns the port at which an extender reaches `target` (one of TARGETS): the port of the link, or
    the server's own port."""
    return ports[link_name(extender, target) if spec.links else target]


def link_components(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> list[Component]:
    """Returns the proxies that the spec needs: one process for the Service, and one process for all
    links of the extenders."""
    components = []
    if spec.replicas > 1:
        backends = [ports[f"{name}-admission"] for name in spec.extender_names]
        components.append(_proxy(_SERVICE, {_ADMISSION: backends}, ports, layout))
    if spec.links:
        links = {link_name(*ends): [ports[ends[1]]] for ends in _ends(spec)}
        components.append(_proxy(_LINKS, links, ports, layout))
    return components


def disturb(layout: Layout, link: str, fault: str) -> None:
    """Sets a link's fault in the proxy. Raises ClusterError if the link does not exist."""
    with closing(socket.socket(socket.AF_UNIX)) as control:
        control.settimeout(_ANSWER_TIMEOUT_S)
        control.connect(bytes(_control(_LINKS, layout)))
        control.sendall(f"{link} {fault}\n".encode())
        answer = control.recv(4096).decode().strip()
    if answer != "ok":
        raise ClusterError(f"{link} {fault}: {answer}")


def _ends(spec: ClusterSpec) -> list[tuple[str, str]]:
    names = spec.extender_names if spec.links else []
    return [(extender, target) for extender in names for target in TARGETS]


def _proxy(name: str, links: dict[str, list[int]], ports: dict[str, int], layout: Layout) -> Component:
    plan = {link: {"port": ports[link], "backends": backends} for link, backends in links.items()}
    first, control = ports[next(iter(links))], str(_control(name, layout))

    def is_ready() -> bool:
        return accepts_connections(first)

    argv = (sys.executable, "-m", "deploy.local.processes.proxy", json.dumps(plan), control)
    return Component(name=name, argv=argv, is_ready=is_ready)


def _control(name: str, layout: Layout) -> Path:
    return layout.directory / f"{name}.sock"
