"""Keeps the topology in a ConfigMap equal to the labels of Nodes.

Writes a changed text only after the relevant labels have not changed for some time. So a booting rack
causes one write, and a kubelet's heartbeat causes no write. `slurm-cluster configure` tries the text
before slurmctld reads the text.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import Change, ResourceWatch
from service.health import Health
from service.periodic import periodically
from slurm_cluster.topology import files
from slurm_cluster.topology.build import Built, build
from slurm_cluster.topology.files import CONF, WrongTopology
from slurm_cluster.topology.model import Topology
from slurm_cluster.topology.places import Place, Reader, standing
from slurm_cluster.topology.rules import Rules
from slurm_cluster.topology.running import SlurmFailed
from slurm_cluster.topology.words import in_words

_LABELS: Final = {"app.kubernetes.io/managed-by": "slurm-cluster"}
_RETRY_S: Final = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Target:
    """The ConfigMap, and the file in the ConfigMap (`files.YAML` or `files.CONF`)."""

    namespace: str
    name: str
    file: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds. `settle` is the time without changes of labels before a write. `longest` is the
    maximum delay of a change. `poll` is the interval of requests to Slurm."""

    settle: float = 5.0
    longest: float = 60.0
    poll: float = 30.0


Known = Callable[[], Awaitable[frozenset[str]]]
"""Returns the names of Slurm's nodes. Raises SlurmFailed."""


class Follower:
    """Follows the Nodes, and writes their topology."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        rules: Rules,
        reader: Reader,
        target: Target,
        pace: Pace,
        known: Known | None = None,
    ) -> None:
        """If `known` is given, the file has only nodes that Slurm knows. Then a node that joins Slurm is
        also a change."""
        self.health = Health()
        """Ready after the ConfigMap matches the Nodes."""
        self.writes = 0
        self._kubernetes = kubernetes
        self._rules = rules
        self._reader = reader
        self._target = target
        self._pace = pace
        self._known = known
        self._has: frozenset[str] | None = None
        """The nodes that Slurm knows. None means all nodes."""
        self._places: dict[str, Place] = {}
        self._changed = asyncio.Event()
        self._logged: tuple[str, ...] = ()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self._known is not None:
                tasks.create_task(self._ask_for_ever(self._known))
            tasks.create_task(self._follow())
            tasks.create_task(self._write_for_ever())

    async def _ask_for_ever(self, known: Known) -> None:
        async def ask() -> None:
            has = await known()
            if has != self._has:
                self._has = has
                self._changed.set()

        report = self._reporter("Slurm's nodes")
        await periodically(ask, self._pace.poll, outlives=SlurmFailed, report=report)

    async def _follow(self) -> None:
        watch = ResourceWatch(self._kubernetes, "nodes", on_problem=self._reporter("the watch of Nodes"))
        report = self._reporter("the list of Nodes")
        while True:
            try:
                listed = await watch.list_as(self._read)
                break
            except KubernetesError as error:
                report(error)
                await asyncio.sleep(_RETRY_S)
        report(None)
        self._places = {name: place for name, place in listed if place is not None}
        self._changed.set()
        async for change in watch.changes():
            self._note(change)

    def _read(self, node: Manifest) -> tuple[str, Place | None]:
        return node["metadata"]["name"], self._reader.place_of(node)

    def _note(self, change: Change) -> None:
        name = change.manifest["metadata"]["name"]
        place = None if change.gone else self._reader.place_of(change.manifest)
        if place == self._places.get(name):
            return
        if place is None:
            del self._places[name]
        else:
            self._places[name] = place
        self._changed.set()

    async def _write_for_ever(self) -> None:
        report = self._reporter("the ConfigMap")
        while True:
            await self._changed.wait()
            await self._quiet()
            try:
                await self._write()
            except (KubernetesError, WrongTopology) as error:
                report(error)
                self._changed.set()
                await asyncio.sleep(_RETRY_S)
            else:
                report(None)
                self.health.ready = self._known is None or self._has is not None

    async def _quiet(self) -> None:
        """Waits until labels have not changed for `Pace.settle`, but at most for `Pace.longest`."""
        clock = asyncio.get_running_loop().time
        latest = clock() + self._pace.longest
        while self._changed.is_set() and (left := latest - clock()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(min(self._pace.settle, left)):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._changed.clear()

    async def _write(self) -> None:
        """Writes the ConfigMap. Raises KubernetesError. Raises WrongTopology if a person has written
        another text to the ConfigMap. Such a ConfigMap stays unchanged."""
        target = self._target
        there = await self._kubernetes.read_config_map(target.namespace, target.name)
        text = ((there or {}).get("data") or {}).get(target.file, "")
        if self._known is not None and self._has is None:
            return  # Slurm has not answered yet
        places = among(standing(self._places), self._has)
        built = build(self._rules, places, before_of(text))
        new = text_of(built.topology, target.file)
        self._tell(built)
        if not new or new == text:
            return
        await self._kubernetes.write_config_map(self._with(there, new))
        self.writes += 1
        units = len(built.topology.units)
        log.info("topology written", config_map=target.name, units=units, nodes=len(places))

    def _with(self, there: Manifest | None, text: str) -> Manifest:
        target = self._target
        if there is None:
            metadata = {"namespace": target.namespace, "name": target.name, "labels": _LABELS}
            return {"metadata": metadata, "data": {target.file: text}}
        return {**there, "data": {**(there.get("data") or {}), target.file: text}}

    def _tell(self, built: Built) -> None:
        """Logs problems of labels, once for each change of the problems."""
        words = tuple(in_words(problem) for problem in built.problems)
        for line in words if words != self._logged else ():
            log.warning("labels of Nodes", problem=line)
        self._logged = words

    def _reporter(self, part: str) -> Callable[[Exception | None], object]:
        return lambda error: self.health.says(part, error)


def among(places: Iterable[Place], names: Container[str] | None) -> tuple[Place, ...]:
    """Returns the places of the Slurm nodes in `names`. If `names` is None, returns all places."""
    return tuple(place for place in places if names is None or place.node in names)


def before_of(text: str) -> Topology | None:
    """Returns the topology of an earlier text, or None for an empty text. Raises WrongTopology."""
    return files.read(text) if text.strip() else None


def text_of(topology: Topology, file: str) -> str:
    """Returns the text of a file. Returns "" for a topology without units, because such a file would end
    slurmctld."""
    if not topology.units:
        return ""
    return files.to_conf(topology).text if file == CONF else files.to_yaml(topology)
