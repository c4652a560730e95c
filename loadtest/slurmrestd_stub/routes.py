"""Answers slurmrestd's calls over HTTP with an `InMemorySlurm`. Each error is sent twice, as slurmrestd
26.05.5 does."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from loadtest.slurmrestd_stub import documents
from loadtest.slurmrestd_stub.delays import Delays
from loadtest.slurmrestd_stub.documents import Document
from slurm_client.errors import OtherJob, SlurmError
from slurm_client.in_memory import InMemorySlurm
from slurm_client.in_memory.rejections import missing_job, rejection
from slurm_client.model import Job, Node

_NO_UTF8: Final = "\ufffd".encode()
"""The text that `slurm_client.in_memory` gives for a byte outside UTF-8. slurmrestd repeats the byte
itself, so `_encoded` puts a byte in the place of this text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a call. `call` is the key of the cost in delays.COSTS, if the key differs from the
    route's key. `entries` is the length of the list in the answer."""

    status: int
    content: bytes
    call: str = ""
    entries: int = 0


_UNSPECIFIED: Final = Answer(500, b"Unspecified error")
_UNAUTHENTICATED: Final = Answer(401, b"Authentication failure")

_Act = Callable[[str, Any], Awaitable[Document | Answer]]
"""Handler of a call. The arguments are the name in the path, and the body or the query of the
request."""


@asynccontextmanager
async def serving(
    slurm: InMemorySlurm, delays: Delays | None = None, *, port: int = 0
) -> AsyncIterator[str]:
    """Yields the URL of a stub on loopback, until the end of the block. Port 0 means any free port."""
    routes = Routes(slurm, delays or Delays())
    runner = web.AppRunner(routes.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Routes:
    def __init__(self, slurm: InMemorySlurm, delays: Delays) -> None:
        self._slurm = slurm
        self._delays = delays
        self._frame = {"meta": documents.meta(slurm.capabilities), "errors": [], "warnings": []}
        self._nodes: dict[str, tuple[Node, bytes]] = {}
        """The nodes and their last JSON. The JSON is kept, because writing 5,000 nodes takes long, and
        only a few nodes change."""
        self._counted: Mapping[str, Node] = {}
        """The nodes at the last request for all nodes."""
        self.calls: tuple[tuple[str, str, str, _Act], ...] = (
            ("ping", "GET", "ping", self._ping),
            ("configuration", "GET", "conf", self._configuration),
            ("partitions", "GET", "partitions", self._partitions),
            ("reservations", "GET", "reservations", self._reservations),
            ("nodes", "GET", "nodes", self._all_nodes),
            ("node", "GET", "node/{name}", self._node),
            ("update", "POST", "node/{name}", self._update_node),
            ("update", "DELETE", "node/{name}", self._delete_node),
            ("states", "GET", "jobs/state", self._states),
            ("submit", "POST", "job/submit", self._submit),
            ("allocate", "POST", "job/allocate", self._allocate),
            ("job", "GET", "job/{name}", self._job),
            ("update", "POST", "job/{name}", self._update),
            ("cancel", "DELETE", "job/{name}", self._cancel),
            ("cancel", "DELETE", "jobs", self._cancel),
            ("resources", "GET", "resources/{name}", self._resources),
            ("books", "GET", "/slurmdb/v0.0.45/job/{name}", self._in_the_books),
        )
        """For each call: key of the cost (delays.COSTS), method, path, and handler."""

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 26)
        for call, method, path, act in self.calls:
            answer = partial(self._answer, call, act)
            whole = path if path.startswith("/") else f"/slurm/v0.0.45/{path}"
            application.router.add_route(method, whole + "{_:/?}", answer)
        application.router.add_get("/openapi/v3", partial(self._answer, "", self._openapi))
        application.router.add_route("*", "/{name:.*}", partial(self._answer, "", self._unknown))
        return application

    async def _answer(self, call: str, act: _Act, request: web.Request) -> web.Response:
        """Answers a request like slurmrestd, including errors and delays."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        body = await request.read()
        name = request.match_info.get("name", "")
        asked = orjson.loads(body) if body else request.query
        try:
            known = "X-SLURM-USER-TOKEN" in request.headers
            reply = await act(name, asked) if known else _UNAUTHENTICATED
        except SlurmError as error:
            reply = self._encoded(documents.errors(error), error.http_status or 422)
        answer = reply if isinstance(reply, Answer) else self._encoded(reply)
        late_s = self._delays.answers_at(began, answer.call or call, answer.entries) - loop.time()
        if late_s > 0:
            await asyncio.sleep(late_s)
        return _written(request, answer)

    def _encoded(self, document: Document, status: int = 200, entries: int = 0) -> Answer:
        content = orjson.dumps(self._frame | document).replace(_NO_UTF8, b"\xff")
        return Answer(status, content, entries=entries)

    async def _openapi(self, _: str, __: Any) -> Answer:
        return Answer(200, documents.openapi(self._slurm.capabilities))

    async def _unknown(self, name: str, _: Any) -> Answer:
        return Answer(404, f"Unable to find requested URL /{name}".encode())

    async def _ping(self, _: str, __: Any) -> Document:
        return documents.PING

    async def _configuration(self, _: str, __: Any) -> Document:
        return documents.configuration(await self._slurm.configuration())

    async def _partitions(self, _: str, __: Any) -> Document:
        return {"partitions": [documents.partition(one) for one in await self._slurm.partitions()]}

    async def _reservations(self, _: str, __: Any) -> Document:
        reservations = await self._slurm.reservations()
        return {"reservations": [documents.reservation(one) for one in reservations]}

    async def _all_nodes(self, _: str, asked: Any) -> Answer:
        nodes = await self._slurm.nodes()
        self._counted = {node.name: node for node in nodes}
        # If the requested time is in the future, nothing has changed. For a past time, the stub does not
        # know the changes, and sends all nodes.
        if int(asked.get("update_time", 0)) > time.time():
            return Answer(304, b"", "nodes unchanged")
        body = b'{"nodes":[' + b",".join(map(self._json, nodes)) + b"]," + orjson.dumps(self._frame)[1:]
        return Answer(200, body, entries=len(nodes))

    def _json(self, node: Node) -> bytes:
        """Returns a node as JSON. The JSON of an unchanged node is used again, because an unchanged node
        is the same object."""
        known = self._nodes.get(node.name)
        if known is None or known[0] is not node:
            known = self._nodes[node.name] = node, orjson.dumps(documents.node(node))
        return known[1]

    async def _node(self, name: str, _: Any) -> Document:
        """Returns one node. slurmctld updates the allocated amounts only on requests for all nodes."""
        node = await self._slurm.node(name)
        if node is None:  # HTTP 200, without an error number
            why = {"description": f"Failure to query node {name}", "source": "node"}
            return {"nodes": [], "errors": [why]}
        counted = self._counted.get(name, replace(node, cpus_allocated=0, memory_allocated_mb=0))
        had = {"alloc_cpus": counted.cpus_allocated, "alloc_memory": counted.memory_allocated_mb}
        return {"nodes": [documents.node(node) | had]}

    async def _update_node(self, name: str, asked: Any) -> Document:
        node = await self._slurm.node(name)
        if not asked:
            await self._slurm.validate_reservations(name)
        elif asked["state"] == ["DRAIN"]:
            await self._slurm.drain_node(name, asked["reason"])
        elif asked["state"] == ["DOWN"]:
            await self._slurm.down_node(name, asked["reason"])
        elif node is None or "DRAIN" in node.states:
            await self._slurm.undrain_node(name)
        else:
            raise SlurmError("Node state transition is not possible", number=2180)
        return {}

    async def _delete_node(self, name: str, _: Any) -> Document:
        if await self._slurm.node(name) is None:
            raise rejection("ESLURM_INVALID_NODE_NAME")
        await self._slurm.delete_node(name)
        return {}

    async def _states(self, _: str, asked: Any) -> Answer:
        wanted = asked.getall("job_id", ())
        if not all(map(str.isdecimal, wanted)):
            return _UNSPECIFIED
        found = await (self._slurm.states(map(int, wanted)) if wanted else self._slurm.all_states())
        return self._encoded(documents.states(found), entries=len(found))

    async def _submit(self, _: str, asked: Any) -> Document:
        job = asked["job"]
        return _created(await self._slurm.submit(documents.spec(job), job["job_id"]))

    async def _allocate(self, _: str, asked: Any) -> Document:
        """Allocates at once (`immediate`), and always for the token's user. Another user in the request
        is ignored."""
        job = asked["job"]
        spec = replace(documents.spec(job), user_id=None, group_id=None)
        return _created(await self._slurm.allocate(spec, job["job_id"]))

    async def _job(self, name: str, _: Any) -> Document:
        return {"jobs": [documents.job(await self._known(name))]}

    async def _in_the_books(self, name: str, _: Any) -> Document:
        """Returns the part of slurmdbd's record that `slurm_client` reads."""
        job = await self._slurm.job(int(name))
        if job is None:
            return {"jobs": []}
        who = await self._slurm.canceller(job.id) or ""
        entry = {"cluster": self._slurm.capabilities.cluster, "kill_request_user": who}
        state, times = {"current": [job.state.base]}, {"submission": job.submit_time}
        return {"jobs": [entry | {"state": state, "time": times}]}

    async def _resources(self, name: str, _: Any) -> Document:
        job = await self._known(name)
        if not job.state.running:
            raise SlurmError("Job is not running", number=2085)
        return documents.resources(job)

    async def _update(self, name: str, asked: Any) -> Document:
        await self._slurm.update(int(name), documents.changes(asked))
        return {"results": []}

    async def _cancel(self, name: str, asked: Any) -> Document:
        """Cancels one job. DELETE jobs could name several jobs, but clients name only one job."""
        job_id = int(asked.get("jobs", [name])[0])
        job = await self._slurm.job(job_id)
        error: SlurmError | None = None if job else missing_job()
        try:
            await self._slurm.cancel(job_id, asked.get("job_name"))
        except OtherJob as other:
            error = other
        if job and job.state.ended:
            error = SlurmError("Job/step already completing or completed", number=2021)
        return documents.cancelled(job_id, error)

    async def _known(self, name: str) -> Job:
        job = await self._slurm.job(int(name))
        if job is None:
            raise missing_job()
        return job


def _created(job_id: int) -> Document:
    return {"job_id": job_id, "job_submit_user_msg": ""}


def _written(request: web.Request, answer: Answer) -> web.Response:
    kind = "application/json" if answer.content.startswith(b"{") else "text/plain"
    transport = request.transport
    if transport is not None and answer.status >= 400:
        head = f"HTTP/1.1 {answer.status} ERROR\r\nConnection: Close\r\nContent-Type: {kind}\r\n"
        length = f"Content-Length: {len(answer.content)}\r\n\r\n"
        transport.write((f"{head}{length}".encode() + answer.content) * 2)
        transport.close()
    reason = "OK" if answer.status == 200 else "NOT MODIFIED"
    return web.Response(status=answer.status, reason=reason, body=answer.content, content_type=kind)
