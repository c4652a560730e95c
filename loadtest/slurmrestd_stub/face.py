"""slurmrestd's calls, answered by an `InMemorySlurm`."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from loadtest.slurmrestd_stub import bodies, documents
from loadtest.slurmrestd_stub.documents import Document
from slurm_client.errors import InvalidRequest, OtherJob, OutcomeUnknown, SlurmError, Unexplained
from slurm_client.in_memory import InMemorySlurm
from slurm_client.model import Job, Node

_PREFIX: Final = "/slurm/v0.0.45/"
_NO_UTF8: Final = "\ufffd".encode()
"""What `slurm_client.in_memory` tells for a byte that is no UTF-8. slurmrestd repeats the byte."""
_NO_SUCH_JOB: Final = (2017, "Invalid job id specified")
_ALREADY_DONE: Final = (2021, "Job/step already completing or completed")
_NOT_RUNNING: Final = (2085, "Job is not running")
_NO_TRANSITION: Final = (2180, "Node state transition is not possible")


@dataclass(frozen=True, slots=True)
class Request:
    """One, as it came; `query` as it is in the URL."""

    method: str
    path: str
    query: str = ""
    token: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """`call` is one of manners.COSTS, or ""; `entries` are those of a list. A status of 0 is none: the
    connection just closes."""

    status: int
    content: bytes
    call: str = ""
    entries: int = 0
    is_json: bool = True


UNSPECIFIED: Final = Answer(500, b"Unspecified error", is_json=False)
_LOST: Final = Answer(0, b"")


class Face:
    """Answers one request after the other; nothing is waited for."""

    def __init__(self, slurm: InMemorySlurm) -> None:
        self._slurm = slurm
        self._meta = documents.meta(slurm.capabilities)
        self._nodes: dict[str, tuple[Node, bytes]] = {}
        """As they were told last: 5,000 take long to write, and few have changed since."""
        self._counted: Mapping[str, Node] = {}
        """As they were when all of them were asked for last."""
        self._calls: Mapping[tuple[str, str], tuple[str, _Call]] = {
            ("GET", "ping"): ("ping", self._ping),
            ("GET", "conf"): ("configuration", self._configuration),
            ("GET", "partitions"): ("partitions", self._partitions),
            ("GET", "nodes"): ("nodes", self._all_nodes),
            ("GET", "node/*"): ("node", self._node),
            ("POST", "node/*"): ("update", self._update_node),
            ("GET", "jobs/state"): ("states", self._states),
            ("POST", "job/submit"): ("submit", self._submit),
            ("POST", "job/allocate"): ("allocate", self._allocate),
            ("GET", "job/*"): ("job", self._job),
            ("POST", "job/*"): ("update", self._update),
            ("DELETE", "job/*"): ("cancel", self._cancel),
            ("DELETE", "jobs"): ("cancel", self._cancel_named),
            ("GET", "resources/*"): ("resources", self._resources),
        }

    async def answer(self, request: Request) -> Answer:
        """What slurmrestd says to it, errors included."""
        if not request.token:
            return Answer(401, b"Authentication failure", is_json=False)
        if request.path == "/openapi/v3":
            return Answer(200, orjson.dumps(documents.openapi(self._slurm.capabilities)))
        name, argument = _parts(request.path)
        call, method = self._calls.get((request.method, name), ("", self._unknown))
        try:
            answer = await method(argument, request)
        except SlurmError as error:
            answer = self._error(error)
        return replace(answer, call=answer.call or call)

    def _says(self, document: Document, status: int = 200, entries: int = 0) -> Answer:
        common = {"meta": self._meta, "errors": [], "warnings": []}
        content = orjson.dumps(common | document).replace(_NO_UTF8, b"\xff")
        return Answer(status, content, entries=entries)

    def _error(self, error: SlurmError) -> Answer:
        if isinstance(error, Unexplained) and error.number is None:
            return self._says(documents.unspecified(), 500)
        if isinstance(error, OutcomeUnknown) and not isinstance(error, Unexplained):
            return _LOST
        if error.number is None and not isinstance(error, InvalidRequest):
            return UNSPECIFIED
        numbered = error if error.number is not None else bodies.not_understood(error.words)
        return self._says(documents.errors(numbered), numbered.http_status or 422)

    async def _unknown(self, _: str, request: Request) -> Answer:
        return Answer(404, b"Unable to find requested URL " + request.path.encode(), is_json=False)

    async def _ping(self, _: str, __: Request) -> Answer:
        try:
            await self._slurm.ping()
        except SlurmError:
            return self._says(documents.ping(responding=False))
        return self._says(documents.ping(responding=True))

    async def _configuration(self, _: str, __: Request) -> Answer:
        return self._says(documents.configuration(await self._slurm.configuration()))

    async def _partitions(self, _: str, __: Request) -> Answer:
        return self._says(documents.partitions(await self._slurm.partitions()))

    async def _all_nodes(self, _: str, request: Request) -> Answer:
        nodes = await self._slurm.nodes()
        self._counted = {node.name: node for node in nodes}
        if _is_ahead(request.query):
            return Answer(304, b"", "nodes unchanged")
        written = b",".join(map(self._written, nodes))
        rest = orjson.dumps({"meta": self._meta, "errors": [], "warnings": []})
        return Answer(200, b'{"nodes":[' + written + b"]," + rest[1:], entries=len(nodes))

    def _written(self, node: Node) -> bytes:
        """A node that has not changed is the same object."""
        known = self._nodes.get(node.name)
        if known is None or known[0] is not node:
            known = self._nodes[node.name] = node, orjson.dumps(documents.node(node))
        return known[1]

    async def _node(self, name: str, _: Request) -> Answer:
        """What is allocated is counted only when all nodes are asked for."""
        node = await self._slurm.node(name)
        if node is None:
            return self._says(documents.no_such_node(name))
        told = documents.node(node) | documents.allocated(self._counted.get(name))
        return self._says({"nodes": [told]})

    async def _update_node(self, name: str, request: Request) -> Answer:
        body = _body(request)
        node = await self._slurm.node(name)
        if body.get("state") == ["DRAIN"]:
            await self._slurm.drain_node(name, str(body.get("reason") or ""))
        elif body.get("state") != ["UNDRAIN"]:
            raise bodies.not_understood("only DRAIN and UNDRAIN are known here")
        elif node is None or "DRAIN" in node.states:
            await self._slurm.undrain_node(name)
        else:
            raise _refused(_NO_TRANSITION)
        return self._says({})

    async def _states(self, _: str, request: Request) -> Answer:
        wanted = [part.removeprefix("job_id=") for part in filter(None, request.query.split("&"))]
        if not all(map(str.isdecimal, wanted)):
            return UNSPECIFIED
        found = await (self._slurm.states(map(int, wanted)) if wanted else self._slurm.all_states())
        return self._says(documents.states(found), entries=len(found))

    async def _submit(self, _: str, request: Request) -> Answer:
        body = _body(request)
        job_id = bodies.job_id(body)
        return self._says(documents.created(await self._slurm.submit(bodies.spec(body), job_id)))

    async def _allocate(self, _: str, request: Request) -> Answer:
        """Always `immediate`, and always the token's own user's, whoever is named."""
        body = _body(request)
        job_id = bodies.job_id(body)
        spec = replace(bodies.spec(body), user_id=None, group_id=None)
        return self._says(documents.created(await self._slurm.allocate(spec, job_id)))

    async def _job(self, text: str, _: Request) -> Answer:
        return self._says(documents.job(await self._known(text)))

    async def _resources(self, text: str, _: Request) -> Answer:
        job = await self._known(text)
        if not job.state.running:
            raise _refused(_NOT_RUNNING)
        return self._says(documents.resources(job))

    async def _update(self, text: str, request: Request) -> Answer:
        await self._slurm.update(_job_id(text), bodies.changes(_body(request)))
        return self._says({"results": []})

    async def _cancel(self, text: str, _: Request) -> Answer:
        return self._says(documents.cancelled(_job_id(text), *await self._end(_job_id(text), None)))

    async def _cancel_named(self, _: str, request: Request) -> Answer:
        """One job, which is all that is ever asked for at a time."""
        body = _body(request)
        (job_id,) = (_job_id(str(one)) for one in body["jobs"])
        try:
            said = await self._end(job_id, str(body["job_name"]))
        except OtherJob as error:
            said = error.number or 0, error.words
        return self._says(documents.cancelled(job_id, *said))

    async def _end(self, job_id: int, name: str | None) -> tuple[int, str]:
        """Slurm's error number and words; 0 where the job is cancelled."""
        job = await self._slurm.job(job_id)
        await self._slurm.cancel(job_id, name)
        ended = _ALREADY_DONE if job and job.state.ended else (0, "")
        return ended if job else _NO_SUCH_JOB

    async def _known(self, text: str) -> Job:
        job = await self._slurm.job(_job_id(text))
        if job is None:
            raise _refused(_NO_SUCH_JOB, http_status=404)
        return job


_Call = Callable[[str, Request], Awaitable[Answer]]


def _parts(path: str) -> tuple[str, str]:
    """The name of what is asked for, and which of them: "job/*" and "7"."""
    if not path.startswith(_PREFIX):
        return "", ""
    name = path.removeprefix(_PREFIX).strip("/")
    if name in {"job/submit", "job/allocate", "jobs/state"}:
        return name, ""
    first, separator, rest = name.partition("/")
    return first + separator.replace("/", "/*"), rest


def _is_ahead(query: str) -> bool:
    """Whether only what changed since some moment to come is asked for: nothing. What changed since one
    that is past is not known here; everything, as far as that goes."""
    since = query.removeprefix("update_time=")
    return since.isdecimal() and int(since) > time.time()


def _job_id(text: str) -> int:
    if not text.isdecimal():
        raise _refused(_NO_SUCH_JOB, http_status=404)
    return int(text)


def _body(request: Request) -> Mapping[str, Any]:
    try:
        body = orjson.loads(request.body)
    except ValueError as wrong:
        raise bodies.not_understood(str(wrong)) from wrong
    if not isinstance(body, dict):
        raise bodies.not_understood("the body is no object")
    return body


def _refused(numbered: tuple[int, str], http_status: int = 422) -> SlurmError:
    number, words = numbered
    return SlurmError(words, number=number, http_status=http_status)
