"""Finds the Pod that the kubelet admits now, and chooses the devices to prefer for this Pod. The
functions are pure.

The kubelet admits one Pod at a time, and does not name the Pod to the device plugin. The kubelet's
PodResources API lists the Pod in admission, and no later Pod (measured on 1.37; by the sources also 1.31
to 1.36). So the Pod in admission is a listed Pod with fewer devices than the Pod requests.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.machine.numbered import Unit
from node_agent.pods.claims import Claim

Listed = Sequence[tuple[str, Collection[str]]]
"""Namespace and name of each Pod in PodResources, and the Pod's devices of a resource. Two Pods may have
the same name: a Pod that was deleted by force, and its successor."""


class Grant(NamedTuple):
    """The devices of a resource that Slurm granted to a Pod."""

    uid: str
    pod: str
    """Namespace and name of the Pod."""
    numbers: Mapping[int, int]
    """Number of granted parts by Slurm's number of the device. For a whole device, the number is 1."""
    size: int
    """Number of devices or parts that the kubelet will count for the Pod after the admission."""
    has: Collection[str] = ()
    """Devices or parts that the kubelet counts for the Pod now."""


def grants(
    claims: Iterable[Claim], units: Mapping[str, Unit], asks: Mapping[str, int]
) -> dict[str, Grant]:
    """Returns the grants of a resource, by the namespace and name of the Pod. Parameter `units` has the
    devices of the resource. Parameter `asks` has the requests of the resource by uid. The request limits
    a grant, because a job may have more devices than its Pod requests. A Pod in deletion is left out,
    because the successor may have the same name."""
    found: dict[str, Grant] = {}
    for claim in claims:
        numbers = _numbers(claim, units.values())
        if claim.of_job and numbers and not claim.leaves:
            size = min(asks.get(claim.uid, 0), sum(numbers.values()))
            found[claim.pod] = Grant(claim.uid, claim.pod, numbers, size)
    return found


def _numbers(claim: Claim, units: Iterable[Unit]) -> dict[int, int]:
    return {
        unit.number: claim.parts.get(unit.name, {}).get(unit.number, 1)
        for unit in units
        if unit.number in claim.devices.get(unit.name, ())
    }


def admitted(listed: Listed, granted: Mapping[str, Grant], answered: Mapping[str, int]) -> list[Grant]:
    """Returns the grants of the Pods that may be in admission. Parameter `answered` has the number of
    devices that the agent has proposed for a Pod so far, by uid. If the agent has proposed all devices
    of a Pod, the kubelet may have rejected the Pod afterwards. Such a Pod is left out if another Pod may
    be in admission."""
    by_uid = {
        granted[pod].uid: granted[pod]._replace(has=has)
        for pod, has in listed
        if pod in granted and len(has) < granted[pod].size
    }
    found = [*by_uid.values()]
    new = [each for each in found if answered.get(each.uid, 0) < each.size]
    return new or found


def may_be_of_no_job(listed: Listed, claims: Iterable[Claim], asks: Mapping[str, int]) -> bool:
    """Returns True if a Pod without a job may be in admission. Such a Pod requests more devices than the
    kubelet counts for the Pod. Parameter `asks` has the requests of the resource by uid. An adopted Pod
    counts as a Pod without a job. The extender submits the job of an adopted Pod only after the
    admission, and the Pod does not get the devices of this job. Ended Pods and Pods in deletion do not
    count, because the kubelet does not admit them."""
    others = [claim for claim in claims if not (claim.of_job or claim.leaves)]
    wanted = {claim.pod: asks.get(claim.uid, 0) for claim in others}
    return any(len(has) < wanted.get(pod, 0) for pod, has in listed)


def preferred(
    asked: api.ContainerPreferredAllocationRequest, units: Mapping[str, Unit], grant: Grant
) -> list[str]:
    """Returns the devices for a container: first the devices of `must_include`, then devices of the
    Pod's job. The Pod gets no more parts of a device than the job has."""
    chosen, taken = [*asked.must_include], {*grant.has, *asked.must_include}
    left = Counter(grant.numbers)
    left.subtract(units[name].number for name in taken if name in units)
    for name in sorted(asked.available):
        if name in units and name not in taken and left[units[name].number] > 0:
            left[units[name].number] -= 1
            chosen.append(name)
    return chosen[: asked.size]


def differences(listed: Listed, claims: Iterable[Claim], units: Mapping[str, Unit]) -> dict[str, str]:
    """Returns the Pods for which the kubelet counts devices that Slurm did not grant, with a text about
    the difference. If two Pods have the same name, both are left out, because the kubelet does not
    distinguish them."""
    granted, times = grants(claims, units, {}), Counter(pod for pod, _ in listed)
    found: dict[str, str] = {}
    for pod, has in listed:
        if pod not in granted or times[pod] > 1:
            continue
        own = {name for name, unit in units.items() if unit.number in granted[pod].numbers}
        if foreign := sorted({*has} - own):
            found[pod] = f"the kubelet counts {', '.join(foreign)} for it, which Slurm did not grant"
    return found
