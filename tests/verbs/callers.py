"""Calls the extender's listeners without sockets, in the way of kube-scheduler and kube-apiserver.

The composition root builds the applications. Slurm is a fake with the methods for the verbs, and
kube-apiserver is in memory.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx

from extender.app import Extender
from extender.leader.leader import Leader
from extender.leader.replica import Replica
from extender.node_view.view import ClusterView
from extender.placement.ledger import Ledger
from extender.policy.current import CurrentPolicy
from extender.record.config import PlacementConfig
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.settings import Settings
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.errors import SlurmError
from slurm_client.job_state import JobState
from slurm_client.model import Job, Node
from slurm_client.protocol import Slurm
from tests.builders import Manifest

_BODIES = Path(__file__).parent / "bodies"


def body(verb: str) -> Manifest:
    """Returns a request of kube-scheduler 1.36.2 for a verb. For mutate, returns a request of
    kube-apiserver."""
    sent: Manifest = json.loads((_BODIES / f"{verb}.json").read_text())
    return sent


class BoundPods(InMemoryKubernetes):
    """Remembers the Node and the annotations of each Binding."""

    def __init__(self, *pods: Manifest) -> None:
        super().__init__(*pods)
        self.bindings: list[tuple[str, Any]] = []

    async def bind_pod(self, namespace: str, name: str, node: str, metadata: Mapping[str, Any]) -> None:
        await super().bind_pod(namespace, name, node, metadata)
        self.bindings.append((node, metadata.get("annotations", {})))


class FakeSlurm:
    """A Slurm with some jobs and nodes."""

    def __init__(self, *jobs: Job, nodes: Sequence[Node] = (), calls: list[str] | None = None) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.all_nodes = tuple(nodes)
        self.calls = [] if calls is None else calls
        self.error: SlurmError | None = None
        self.silent = False
        """If true, requests to Slurm never get an answer."""

    async def job(self, job_id: int) -> Job | None:
        await self._asked("read job")
        return self.jobs.get(job_id)

    async def nodes(self) -> tuple[Node, ...]:
        await self._asked("read nodes")
        return self.all_nodes

    async def node(self, name: str) -> Node | None:
        await self._asked(f"read node {name}")
        return next((node for node in self.all_nodes if node.name == name), None)

    async def _asked(self, call: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(0)
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        await self._asked("read states")
        return {job_id: self.jobs[job_id].state for job_id in ids if job_id in self.jobs}


class _Led(Leader):
    """Reports this replica as the leader as soon as `known` is set."""

    known: Ledger | None = None
    reported: tuple[tuple[str, Job], ...] = ()

    def report(self, uid: str, job: Job) -> None:
        self.reported = (*self.reported, (uid, job))

    def ledger(self) -> Ledger | None:
        return self.known


class Listeners:
    """The applications of all listeners. An unexpected exception becomes HTTP 500."""

    def __init__(
        self,
        kubernetes: InMemoryKubernetes | None = None,
        slurm: FakeSlurm | None = None,
        view: ClusterView | None = None,
        hooks_token_file: Path = Path("token"),
        **given: Any,
    ) -> None:
        settings = Settings(
            slurm_token_file=Path("token"),
            tls_cert_file=Path("cert"),
            tls_key_file=Path("key"),
            hooks_token_file=hooks_token_file,
            **({"policy": "open"} if "policy_file" not in given else {}) | given,
        )
        replica = Replica(
            settings,
            kubernetes or InMemoryKubernetes(),
            cast(Slurm, slurm or FakeSlurm()),
            CurrentPolicy(settings.policy_file, settings.policy or "restricted"),
        )
        extender = Extender(replica)
        extender.leader = self._leader = _Led(replica)
        extender.replica.cluster.view = view or ClusterView()
        self.health = extender.replica.health
        self._extender = extender
        self._refusals: list[Any] = []
        self.occupancy = extender.replica.capacity
        self.lingering_notes = extender.replica.cluster.lingering_notes
        self.occupancy.pods_listed(())  # no Pod is bound yet
        by_port = {server.config.port: server.config.app for server in extender.servers()}
        self._scheduler = _client(by_port[settings.scheduler_port])
        self._admission = _client(by_port[settings.admission_port])
        self.hooks = _client(by_port[settings.hooks_port])
        self.metrics = _client(by_port[settings.metrics_port])
        self.probes = _client(by_port[settings.health_port])

    @property
    def reported(self) -> tuple[tuple[str, Job], ...]:
        """Returns the jobs that were reported to the ledger, each with the uid of the workload."""
        return self._leader.reported

    @property
    def feasible_nodes(self) -> list[Any]:
        """Returns the offers of feasible Nodes for Pods with a rejected Node."""
        told = self._extender.replica.feasible_nodes.offers
        while not told.empty():
            self._refusals.append(told.get_nowait())
        return self._refusals

    def leads(
        self, allocated: Mapping[str, Placeholder], *, holding: Sequence[Placeholder] = ()
    ) -> None:
        """Makes this replica the leader. The leader has seen the allocated Pods. For every Node, the
        ledger returns `holding` as the Pods that hold the Node."""

        def member(uid: str) -> tuple[Placeholder, Member] | None:
            return (allocated[uid], allocated[uid].members[0]) if uid in allocated else None

        ledger = SimpleNamespace(
            rules=PlacementConfig(),
            allocated=member,
            record_of={**{each.uid: each for each in holding}, **allocated}.get,
            holding=lambda _node: tuple(holding),
        )
        self._leader.known = cast(Ledger, ledger)

    def slurm_tells_kill_wait(self, seconds: int) -> None:
        """Sets KillWait as if the extender had read the value from Slurm."""
        self._extender.replica.cluster.kill_wait_s = seconds

    async def post(self, verb: str, sent: Any) -> httpx.Response:
        """Sends a body to a verb: bytes unchanged, any other object as JSON."""
        content = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        admission = verb.startswith(("mutate", "validate"))
        client, path = (
            (self._admission, f"/{verb}") if admission else (self._scheduler, f"/scheduler/{verb}")
        )
        return await client.post(path, content=content, headers={"Content-Type": "application/json"})

    async def ask(self, verb: str, sent: Any) -> Any:
        """Returns the answer to a body. kube-scheduler treats any other status than 200 as an error."""
        response = await self.post(verb, sent)
        assert response.status_code == 200, response.text
        return response.json()


def _client(application: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://extender")
