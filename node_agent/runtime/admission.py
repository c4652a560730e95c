"""The Pod that the kubelet admits now, and the devices to prefer for the Pod: pure.

The kubelet admits one Pod at a time, and does not name the Pod to the plugin. PodResources lists the Pod
of the admission, and no later Pod (measured on 1.37; by the sources also 1.31 to 1.36). So the Pod is
the one with fewer devices than Slurm granted.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from node_agent.kubelet.asked import Asked
from node_agent.machine.numbered import Unit
from node_agent.pods.claims import Claim


class Grant(NamedTuple):
    """The devices of a resource that Slurm granted to a Pod."""

    uid: str
    numbers: tuple[int, ...]
    """Slurm's numbers of the devices."""
    size: int
    """Number of devices, or of parts of devices."""


def grants(claims: Iterable[Claim], gres: str) -> dict[str, Grant]:
    """Returns the grants of a GRES by the namespace and name of the Pod. A Pod that is being deleted may
    have the name of its successor, and is left out."""
    found: dict[str, Grant] = {}
    for claim in claims:
        numbers = claim.devices.get(gres, ())
        if claim.of_job and numbers and not claim.leaves:
            size = claim.parts.get(gres, len(numbers))
            found[claim.pod] = Grant(claim.uid, numbers, size)
    return found


def admitted(
    listed: Mapping[str, Collection[str]], granted: Mapping[str, Grant], answered: Mapping[str, int]
) -> list[Grant]:
    """Returns the grants of the Pods that the kubelet may be admitting. Parameter `listed` has the
    devices of each Pod by PodResources, `answered` the number of devices preferred so far by uid: a Pod
    with all its answers is left out if there is another Pod, because the kubelet may have rejected the
    first Pod afterwards."""
    found = [
        granted[pod] for pod, has in listed.items() if pod in granted and len(has) < granted[pod].size
    ]
    new = [each for each in found if answered.get(each.uid, 0) < each.size]
    return new or found


def preferred(asked: Asked, units: Mapping[str, Unit], grant: Grant) -> list[str]:
    """Returns the devices for a container: the devices that the kubelet must include, and devices of the
    Pod's job."""
    own = [
        name
        for name in sorted(asked.available)
        if name in units and units[name].number in grant.numbers and name not in asked.must_include
    ]
    return [*asked.must_include, *own][: asked.size]


def differences(
    listed: Mapping[str, Collection[str]], granted: Mapping[str, Grant], units: Mapping[str, Unit]
) -> dict[str, str]:
    """Returns the Pods with other devices by the kubelet's count than by Slurm's grant, and the
    difference."""
    found: dict[str, str] = {}
    for pod, has in listed.items():
        if pod not in granted:
            continue
        own = {name for name, unit in units.items() if unit.number in granted[pod].numbers}
        if foreign := sorted({*has} - own):
            found[pod] = f"the kubelet counts {', '.join(foreign)} for it, which Slurm did not grant"
    return found
