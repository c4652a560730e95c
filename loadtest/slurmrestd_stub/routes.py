"""slurmrestd's calls, answered by an `InMemorySlurm`, over HTTP as slurmrestd speaks it: connections are
kept until there is an error to tell. 26.05.5 tells it twice, and then closes the connection."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from loadtest.slurmrestd_stub import bodies, documents
from loadtest.slurmrestd_stub.delays import Delays
from loadtest.slurmrestd_stub.documents import Document
from slurm_client.errors import InvalidRequest, OtherJob, OutcomeUnknown, SlurmError, Unexplained
from slurm_client.in_memory import InMemorySlurm
from slurm_client.model import Job, Node

_NO_UTF8: Final = "\ufffd".encode()
"""What `slurm_client.in_memory` tells for a byte that is no UTF-8. slurmrestd repeats the byte."""
_NO_SUCH_JOB: Final = (2017, "Invalid job id specified")
_ALREADY_DONE: Final = (2021, "Job/step already completing or completed")
_NOT_RUNNING: Final = (2085, "Job is not running")
_NO_TRANSITION: Final = (2180, "Node state transition is not possible")


@dataclass(frozen=True, slots=True)
class Answer:
    """`call` is one of delays.COSTS, where it is not the route's; `entries` are those of a list. A
    status of 0 is none: the connection just closes."""

    status: int
    content: bytes
    call: str = ""
    entries: int = 0


_UNSPECIFIED: Final = Answer(500, b"Unspecified error")
_UNAUTHENTICATED: Final = Answer(401, b"Authentication failure")
_LOST: Final = Answer(0, b"")

_Act = Callable[[web.Request], Awaitable[Document | Answer]]


@asynccontextmanager
async def serving(
    slurm: InMemorySlurm, delays: Delays | None = None, *, port: int = 0
) -> AsyncIterator[str]:
    """The URL of a stub on loopback, until the end of the block. Port 0 is any that is free."""
    routes = Routes(slurm, delays or Delays())
    runner = web.AppRunner(routes.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Routes:
    """One slurmrestd."""

    def __init__(self, slurm: InMemorySlurm, delays: Delays) -> None:
        self._slurm = slurm
        self._delays = delays
        self._frame = {"meta": documents.meta(slurm.capabilities), "errors": [], "warnings": []}
        self._nodes: dict[str, tuple[Node, bytes]] = {}
        """As they were told last: 5,000 take long to write, and few have changed since."""
        self._counted: Mapping[str, Node] = {}
        """As they were when all of them were asked for last."""
        self.calls: tuple[tuple[str, str, str, _Act], ...] = (
            ("ping", "GET", "ping", self._ping),
            ("configuration", "GET", "conf", self._configuration),
            ("partitions", "GET", "partitions", self._partitions),
            ("nodes", "GET", "nodes", self._all_nodes),
            ("node", "GET", "node/{name}", self._node),
            ("update", "POST", "node/{name}", self._update_node),
            ("states", "GET", "jobs/state", self._states),
            ("submit", "POST", "job/submit", self._submit),
            ("allocate", "POST", "job/allocate", self._allocate),
            ("job", "GET", "job/{id}", self._job),
            ("update", "POST", "job/{id}", self._update),
            ("cancel", "DELETE", "job/{id}", self._cancel),
            ("cancel", "DELETE", "jobs", self._cancel_named),
            ("resources", "GET", "resources/{id}", self._resources),
            ("books", "GET", "/slurmdb/v0.0.45/job/{id}", self._in_the_books),
        )
        """What each costs (delays.COSTS), method, path, and what answers it."""

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 26)
        for call, method, path, act in self.calls:
            answer = partial(self._answer, call, act)
            whole = path if path.startswith("/") else f"/slurm/v0.0.45/{path}"
            application.router.add_route(method, whole + "{_:/?}", answer)
        application.router.add_get("/openapi/v3", partial(self._answer, "", self._openapi))
        application.router.add_route("*", "/{_:.*}", partial(self._answer, "", self._unknown))
        return application

    async def _answer(self, call: str, act: _Act, request: web.Request) -> web.Response:
        """What slurmrestd says, errors included, as late as it would."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            known = "X-SLURM-USER-TOKEN" in request.headers
            told = await act(request) if known else _UNAUTHENTICATED
        except SlurmError as error:
            told = self._error(error)
        answer = told if isinstance(told, Answer) else self._says(told)
        late_s = self._delays.answers_at(began, answer.call or call, answer.entries) - loop.time()
        if late_s > 0:
            await asyncio.sleep(late_s)
        return _written(request, answer)

    def _says(self, document: Document, status: int = 200, entries: int = 0) -> Answer:
        content = orjson.dumps(self._frame | document).replace(_NO_UTF8, b"\xff")
        return Answer(status, content, entries=entries)

    def _error(self, error: SlurmError) -> Answer:
        if isinstance(error, Unexplained) and error.number is None:
            return self._says(documents.UNSPECIFIED, 500)
        if isinstance(error, OutcomeUnknown) and not isinstance(error, Unexplained):
            return _LOST
        if error.number is None and not isinstance(error, InvalidRequest):
            return _UNSPECIFIED
        numbered = error if error.number is not None else bodies.not_understood(error.words)
        return self._says(documents.errors(numbered), numbered.http_status or 422)

    async def _openapi(self, _: web.Request) -> Answer:
        return Answer(200, documents.openapi(self._slurm.capabilities))

    async def _unknown(self, request: web.Request) -> Answer:
        return Answer(404, f"Unable to find requested URL {request.path}".encode())

    async def _ping(self, _: web.Request) -> Document:
        try:
            await self._slurm.ping()
        except SlurmError:
            return documents.ping(responding=False)
        return documents.ping(responding=True)

    async def _configuration(self, _: web.Request) -> Document:
        return documents.configuration(await self._slurm.configuration())

    async def _partitions(self, _: web.Request) -> Document:
        return {"partitions": [documents.partition(one) for one in await self._slurm.partitions()]}

    async def _all_nodes(self, request: web.Request) -> Answer:
        nodes = await self._slurm.nodes()
        self._counted = {node.name: node for node in nodes}
        if _is_ahead(request.query.get("update_time", "")):
            return Answer(304, b"", "nodes unchanged")
        told = b",".join(map(self._told, nodes))
        return Answer(
            200, b'{"nodes":[' + told + b"]," + orjson.dumps(self._frame)[1:], entries=len(nodes)
        )

    def _told(self, node: Node) -> bytes:
        """A node that has not changed is the same object."""
        known = self._nodes.get(node.name)
        if known is None or known[0] is not node:
            known = self._nodes[node.name] = node, orjson.dumps(documents.node(node))
        return known[1]

    async def _node(self, request: web.Request) -> Document:
        """What is allocated is counted only when all nodes are asked for."""
        name = request.match_info["name"]
        node = await self._slurm.node(name)
        if node is None:
            return documents.no_such_node(name)
        return {"nodes": [documents.node(node) | documents.allocated(self._counted.get(name))]}

    async def _update_node(self, request: web.Request) -> Document:
        body, name = await _body(request), request.match_info["name"]
        node = await self._slurm.node(name)
        if body.get("state") == ["DRAIN"]:
            await self._slurm.drain_node(name, str(body.get("reason") or ""))
        elif body.get("state") != ["UNDRAIN"]:
            raise bodies.not_understood("only DRAIN and UNDRAIN are known here")
        elif node is None or "DRAIN" in node.states:
            await self._slurm.undrain_node(name)
        else:
            raise _numbered(_NO_TRANSITION)
        return {}

    async def _states(self, request: web.Request) -> Answer:
        wanted = request.query.getall("job_id", ())
        if not all(map(str.isdecimal, wanted)):
            return _UNSPECIFIED
        found = await (self._slurm.states(map(int, wanted)) if wanted else self._slurm.all_states())
        return self._says(documents.states(found), entries=len(found))

    async def _submit(self, request: web.Request) -> Document:
        body = await _body(request)
        job_id = bodies.job_id(body)
        return documents.created(await self._slurm.submit(bodies.spec(body), job_id))

    async def _allocate(self, request: web.Request) -> Document:
        """Always `immediate`, and always the speaker's, whoever is named."""
        body = await _body(request)
        if (speaker := request.headers.get("X-SLURM-USER-NAME")) is not None:
            spec = replace(bodies.spec(body), user_id=int(speaker), group_id=None)
            return documents.created(await self._slurm.allocate_as_owner(spec))
        job_id = bodies.job_id(body)
        spec = replace(bodies.spec(body), user_id=None, group_id=None)
        return documents.created(await self._slurm.allocate(spec, job_id))

    async def _job(self, request: web.Request) -> Document:
        return documents.job(await self._known(request))

    async def _in_the_books(self, request: web.Request) -> Document:
        job_id = _job_id(request)
        canceller = await self._slurm.canceller(job_id)
        cluster = self._slurm.capabilities.cluster
        return documents.in_the_books(await self._slurm.job(job_id), canceller, cluster)

    async def _resources(self, request: web.Request) -> Document:
        job = await self._known(request)
        if not job.state.running:
            raise _numbered(_NOT_RUNNING)
        return documents.resources(job)

    async def _update(self, request: web.Request) -> Document:
        await self._slurm.update(_job_id(request), bodies.changes(await _body(request)))
        return {"results": []}

    async def _cancel(self, request: web.Request) -> Document:
        job_id = _job_id(request)
        return documents.cancelled(job_id, *await self._end(job_id, None))

    async def _cancel_named(self, request: web.Request) -> Document:
        """One job, which is all that is ever asked for at a time."""
        body = await _body(request)
        (job_id,) = map(int, body["jobs"])
        try:
            said = await self._end(job_id, str(body["job_name"]))
        except OtherJob as error:
            said = error.number or 0, error.words
        return documents.cancelled(job_id, *said)

    async def _end(self, job_id: int, name: str | None) -> tuple[int, str]:
        """Slurm's error number and words; 0 where the job is cancelled."""
        job = await self._slurm.job(job_id)
        await self._slurm.cancel(job_id, name)
        ended = _ALREADY_DONE if job and job.state.ended else (0, "")
        return ended if job else _NO_SUCH_JOB

    async def _known(self, request: web.Request) -> Job:
        job = await self._slurm.job(_job_id(request))
        if job is None:
            raise _numbered(_NO_SUCH_JOB, http_status=404)
        return job


def _written(request: web.Request, answer: Answer) -> web.Response:
    kind = "application/json" if answer.content.startswith(b"{") else "text/plain"
    transport = request.transport
    if transport is not None and not 200 <= answer.status < 400:
        if answer.status:
            head = f"HTTP/1.1 {answer.status} ERROR\r\nConnection: Close\r\nContent-Type: {kind}\r\n"
            length = f"Content-Length: {len(answer.content)}\r\n\r\n"
            transport.write((f"{head}{length}".encode() + answer.content) * 2)
        transport.close()
    reason = "OK" if answer.status == 200 else "NOT MODIFIED"
    return web.Response(
        status=answer.status or 500, reason=reason, body=answer.content, content_type=kind
    )


def _is_ahead(since: str) -> bool:
    """Whether only what changed since some moment to come is asked for: nothing. What changed since one
    that is past is not known here; everything, as far as that goes."""
    return since.isdecimal() and int(since) > time.time()


def _job_id(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isdecimal():
        raise _numbered(_NO_SUCH_JOB, http_status=404)
    return int(text)


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        body = orjson.loads(await request.read())
    except ValueError as wrong:
        raise bodies.not_understood(str(wrong)) from wrong
    if not isinstance(body, dict):
        raise bodies.not_understood("the body is no object")
    return body


def _numbered(numbered: tuple[int, str], http_status: int = 422) -> SlurmError:
    number, words = numbered
    return SlurmError(words, number=number, http_status=http_status)
