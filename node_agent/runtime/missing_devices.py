"""Containers that the runtime made while the agent was away, and that lack devices of their Pod's job.

The runtime tells of all containers that there are when it takes the agent's plugin. What a container
lacks it gets only by being made anew: people are told of it until it is gone.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from node_agent.enforcement.keeper import Keeper
from node_agent.machine.numbered import Number, Part
from node_agent.machine.vendors import VENDORS
from node_agent.pods.claims import Claim
from node_agent.runtime.container_devices import Equipment, equipment

_BY_RUNTIME = {vendor.runtime for vendor in VENDORS}
"""Variables that have another value by CDI than by file, and a specification of CDI may have come, or
gone, since the container was made: nothing is to be learnt from them."""


class Made(NamedTuple):
    """A container that there is, as the runtime made it."""

    claim: Claim
    """Its Pod's."""
    id: str
    name: str
    variables: Mapping[str, str]
    numbers: frozenset[Number]
    """Of the devices whose files it has, whatever their paths are in it."""


class Unequipped:
    """Those of them that lack something."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._made: dict[str, Made] = {}
        """By id: of these it is not known yet whether they lack something, or they do."""
        self._lack: dict[str, str] = {}
        """What a container lacks, by its id. It stays so while that cannot be told."""

    def are_there(self, made: Iterable[Made]) -> None:
        """These are all containers that there are."""
        self._made = {each.id: each for each in made if each.claim.devices}
        self._lack = {each: lacks for each, lacks in self._lack.items() if each in self._made}

    def gone(self, container: str) -> None:
        """A container has ended, or is gone; by its id."""
        self._made.pop(container, None)
        self._lack.pop(container, None)

    def pod_gone(self, uid: str) -> None:
        for each in [each for each in self._made.values() if each.claim.uid == uid]:
            self.gone(each.id)

    def made_anew(self, uid: str, name: str) -> None:
        """A container of this name is made for a Pod: the one before it has ended."""
        for each in [each for each in self._made.values() if (each.claim.uid, each.name) == (uid, name)]:
            self.gone(each.id)

    def problems(self) -> dict[str, str]:
        """Returns what Pods lack, by uid."""
        for each in list(self._made.values()):
            lacks = self._look(each)
            if lacks:
                self._lack[each.id] = lacks
            elif lacks is not None:
                self.gone(each.id)
        found: dict[str, str] = {}
        for container, lacks in self._lack.items():
            made = self._made[container]
            words = f"container {made.name} was made without the node agent, and lacks {lacks}"
            before = found.get(made.claim.uid)
            found[made.claim.uid] = f"{before}; {words}" if before else words
        return found

    def _look(self, made: Made) -> str | None:
        """Returns what a container lacks, "" where it has all; None while that cannot be told."""
        try:
            parts, keeper = self._keeper.parts(made.claim), self._keeper
            devices = [part.device for part in parts]
            given = equipment(devices, keeper.names, keeper.devices, made.variables, made.claim.parts)
            return _lacks(given, parts, made)
        except ValueError:  # said of its Pod, or of the names of devices
            return None


def _lacks(given: Equipment, parts: Iterable[Part], made: Made) -> str:
    """By CDI files may have other paths and other numbers: there the variables tell."""
    files = (file for part in parts if part.numbers <= made.numbers for file in part.device.files)
    by_runtime = {name: value for name, value in given.variables.items() if name in _BY_RUNTIME}
    return given.missing(files, given.cdi, {**made.variables, **by_runtime})
