"""Finds containers that lack the devices of their Pod's job, because the runtime made them without the
agent.

When the agent's plugin registers, the runtime sends the list of all containers. A container gets the
missing devices only if the runtime creates the container again. Until then, the agent reports the
container.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from node_agent.enforcement.keeper import Keeper
from node_agent.machine.devices import Number
from node_agent.machine.gpu_vendors import VENDORS
from node_agent.machine.numbered import Part
from node_agent.pods.claims import Claim
from node_agent.runtime.container_devices import ContainerDevices, container_devices

_BY_RUNTIME = {vendor.runtime for vendor in VENDORS}
"""Environment variables whose values depend on a specification of CDI. The specification may be newer
than the container, so the values prove nothing."""


def given_to(
    keeper: Keeper, claim: Claim, variables: Collection[str]
) -> tuple[list[Part], ContainerDevices]:
    """Returns the devices of a Pod, and the additions to a container with these environment variables.
    slurmd's list of devices is not needed for a Pod without devices. Raises ValueError if a device
    cannot be given."""
    parts = keeper.parts(claim) if claim.devices else []
    devices = [part.device for part in parts]
    counts = claim.counts_of_parts
    return parts, container_devices(devices, keeper.names, keeper.devices, variables, counts)


class Made(NamedTuple):
    """A container as the runtime made it."""

    claim: Claim
    """The claim of the container's Pod."""
    id: str
    name: str
    variables: Mapping[str, str]
    numbers: frozenset[Number]
    """Numbers of the device files in the container. The paths of the files do not matter."""


class MissingDevices:
    """Keeps containers with missing devices until the containers end."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._made: dict[str, Made] = {}
        """Containers to check, by id: containers that were not checked yet, and containers that lacked
        devices at the last check."""
        self._lack: dict[str, str] = {}
        """Missing devices by the id of the container. While a new check is impossible, the entry
        stays."""

    def listed(self, made: Iterable[Made]) -> None:
        """Takes the list of all containers of the Node."""
        self._made = {each.id: each for each in made if each.claim.devices}
        self._lack = {each: lacks for each, lacks in self._lack.items() if each in self._made}

    def removed(self, container: str) -> None:
        """Forgets a container that has ended, or that the runtime removed."""
        self._made.pop(container, None)
        self._lack.pop(container, None)

    def pod_removed(self, uid: str) -> None:
        for each in [each for each in self._made.values() if each.claim.uid == uid]:
            self.removed(each.id)

    def recreated(self, uid: str, name: str) -> None:
        """Forgets a Pod's container with this name, because the runtime creates the next container with
        the name."""
        for each in [each for each in self._made.values() if (each.claim.uid, each.name) == (uid, name)]:
            self.removed(each.id)

    def problems(self) -> dict[str, str]:
        """Checks the containers. Returns the problems of Pods whose containers lack devices, by uid."""
        for each in list(self._made.values()):
            lacks = self._look(each)
            if lacks:
                self._lack[each.id] = lacks
            elif lacks is not None:
                self.removed(each.id)
        found: dict[str, str] = {}
        for container, lacks in self._lack.items():
            made = self._made[container]
            words = f"container {made.name} was made without the node agent, and lacks {lacks}"
            before = found.get(made.claim.uid)
            found[made.claim.uid] = f"{before}; {words}" if before else words
        return found

    def _look(self, made: Made) -> str | None:
        """Returns the missing devices, or "" if the container has all devices. Returns None if the check
        is impossible."""
        try:
            parts, given = given_to(self._keeper, made.claim, made.variables)
            return _lacks(given, parts, made)
        except ValueError:  # the agent reports the error for the Pod, or for the names of devices
            return None


def _lacks(given: ContainerDevices, parts: Iterable[Part], made: Made) -> str:
    """Returns the missing additions. CDI may give a device's files other paths and numbers in the
    container. So for devices by CDI, only the variables are compared."""
    files = (file for part in parts if part.numbers <= made.numbers for file in part.device.files)
    by_runtime = {name: value for name, value in given.variables.items() if name in _BY_RUNTIME}
    return given.missing(files, given.cdi, {**made.variables, **by_runtime})
