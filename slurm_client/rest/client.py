"""Implements `protocol.Slurm` through slurmrestd, as measured with Slurm 26.05 and 24.11.

The module `http` exchanges requests and replies. `requests` writes the JSON of requests, and `responses`
reads the JSON of replies.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from service.shared import Shared
from slurm_client import checks, negotiation, ownership, tokens
from slurm_client.errors import (
    InvalidRequest,
    JobIdTaken,
    NeedsOperator,
    NoRoomNow,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
    Unreadable,
    classify,
)
from slurm_client.job_state import UNREAD, AllStates, JobState
from slurm_client.model import Grant, Job, JobChanges, JobSpec, Node, Partition, grant_of
from slurm_client.reservation import Reservation
from slurm_client.rest import ask_rights, error_mapping, requests, responses
from slurm_client.rest.backup_leader import BackupLeader
from slurm_client.rest.http import CallObserver, Connections, Document, Request
from slurm_client.rest.responses import Malformed, Reader
from slurm_client.rights import UserRights
from slurm_client.server import Capabilities, Configuration
from slurm_client.tokens import TokenFile, TokenSource

_SINCE_NEVER: Final = f"update_time={2**32}"
"""Query for changes since the year 2106, so that the reply has no entries."""
_LOOK_EVERY_S: Final = 1.0
"""Time between two looks at the token's file. After Slurm rejects the token, the client looks at
once."""
_STATES_A_CALL: Final = 400
"""Number of job ids in one query. Each id takes 17 bytes, so a query takes 7 kB. slurmrestd accepts much
longer URLs."""

_NODES_BUSY: Final = 2016
_NO_SUCH_JOB: Final = 2017
_NO_SUCH_NODE: Final = 2018
_ALREADY_DONE: Final = 2021
_NOT_PERMITTED: Final = frozenset({2002, 2010, _NO_SUCH_JOB})
"""Slurm's errors if a new job has an AdminComment, another user or a job id, and the token does not
permit this."""
_NOWHERE: Final = "no-node-of-this-name"
_ACCOUNTING_POLICY: Final = 2050
_NOT_RUNNING: Final = 2085
_NO_TRANSITION: Final = frozenset({2028, 2180})  # 2028 in 24.11, 2180 in 26.05
_Read = TypeVar("_Read")


class SlurmRest:
    """A `protocol.Slurm` that calls slurmrestd. Many tasks of one event loop may use the same object.

    `url` is "http://127.0.0.1:6820" or "unix:///path". `token_source` is a TokenSource or the path of a
    token's file.

    A call waits at most `timeout_s` for one of `concurrency` connections, and then again at most
    `timeout_s` for the reply. `timeout_s` should be longer than Slurm's MessageTimeout (10 s by
    default), because slurmrestd waits this long for slurmctld.

    `heard` is called after each call, with the name of the call and the sizes of request and reply
    (`CallObserver`). `malformed` is called for each unreadable entry of a reply, with the name of the
    call and the reason.
    """

    def __init__(
        self,
        url: str,
        token_source: TokenSource | Path | str,
        *,
        timeout_s: float = 15.0,
        concurrency: int = 16,
        heard: CallObserver = lambda *_: None,
        malformed: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        self._malformed = malformed
        if isinstance(token_source, Path | str):
            token_source = TokenFile(Path(token_source), look_every_s=_LOOK_EVERY_S)
        self._tokens = token_source
        self._connections = Connections(
            url, token_source, timeout_s=timeout_s, concurrency=concurrency, heard=heard
        )
        self._backup = BackupLeader()
        self._capabilities: Capabilities | None = None
        self._connecting = asyncio.Lock()
        self._have_allocations_counted = Shared(self._ask_for_no_nodes)

    @property
    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            raise RuntimeError("connect() has not been called, or did not succeed")
        return self._capabilities

    async def connect(self) -> Capabilities:
        if self._capabilities is None:
            async with self._connecting:
                self._capabilities = self._capabilities or await self._negotiate()
        return self._capabilities

    async def configuration(self) -> Configuration:
        if (await self.connect()).configuration:
            configuration = await self._ask(Request("GET", "conf"), responses.configuration)
        else:
            boot_time = await self._ask(Request("GET", "diag/"), responses.boot_time)
            configuration = Configuration(boot_time=boot_time)
        leads_since = self._backup.since(await self._pings(), time.time())
        if leads_since is None:
            return configuration
        return replace(configuration, boot_time=max(leads_since, configuration.boot_time or 0))

    async def ping(self) -> None:
        # slurmrestd answers GET ping at once with HTTP 200, for any token and even if slurmctld is down.
        # Any other call waits for MessageTimeout if slurmctld is down.
        pings = await self._pings()
        if any(one.get("responding") for one in pings):
            return
        statuses = [str(one["status"]) for one in pings if one.get("status")]
        error = error_mapping.not_responding(statuses)
        if statuses and not isinstance(error, NeedsOperator):
            raise error
        # No slurmctld responds. Either the token is wrong, or slurmctld is down (before v0.0.45, the
        # reply does not say which). If the token is wrong, the next call fails at once with
        # NeedsOperator, even after another look at the token's file.
        try:
            await self.states([1])
        except NeedsOperator:
            raise
        except SlurmError as call_error:
            raise Unreachable(error.words) from call_error

    async def _pings(self) -> list[Document]:
        """Returns a report on each slurmctld, in the order of slurm.conf."""
        return _objects((await self._send(Request("GET", "ping/"))).get("pings"))

    async def allocate(self, spec: JobSpec, job_id: int) -> int:
        ownership.check_allocation(spec, tokens.user(self._tokens.token()))
        external = (await self.connect()).external_jobs
        return await self._allocate(requests.allocation(spec, job_id, external=external))

    async def submit(self, spec: JobSpec, job_id: int) -> int:
        external = (await self.connect()).external_jobs
        return await self._create("job/submit", requests.submission(spec, job_id, external=external))

    async def may_choose_ids(self) -> bool:
        await self.connect()
        # slurmctld checks the job id before the nodes (job_mgr.c: _job_create). No node has the name
        # _NOWHERE, so even after an accepted id, slurmctld rejects the job.
        try:
            created = await self.submit(JobSpec("no-job", 1, 1, excluded_nodes=(_NOWHERE,)), 1 << 25)
        except SlurmError as error:
            if error.number not in _NOT_PERMITTED | {_NO_SUCH_NODE}:
                raise
            return error.number == _NO_SUCH_NODE
        await self.cancel(created)
        return True

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        found: dict[int, JobState] = {}
        every = sorted(set(ids))
        for start in range(0, len(every), _STATES_A_CALL):
            chunk = every[start : start + _STATES_A_CALL]
            states = await self._states("&".join([f"job_id={one:d}" for one in chunk]))
            if states.nameless:  # a missing job may be one of these entries
                found |= dict.fromkeys(chunk, UNREAD)
            found |= states
        return found

    async def all_states(self) -> AllStates:
        return await self._states()

    async def job(self, job_id: int) -> Job | None:
        request = Request("GET", f"job/{job_id}")
        try:
            entries = await self._list("jobs", request)
        except SlurmError as error:
            if error.number == _NO_SUCH_JOB:
                return None
            raise
        if not entries:
            raise OutcomeUnknown(f"{request.text}: a reply without the job")
        return self._one(request, partial(responses.job, others=entries[1:]), entries[0])

    async def grant(self, job_id: int) -> Grant | None:
        if not (await self.connect()).resources:
            return grant_of(await self.job(job_id))
        try:
            return await self._ask(Request("GET", f"resources/{job_id}"), responses.grant)
        except SlurmError as error:
            if error.number == _NO_SUCH_JOB:
                return None
            if error.number == _NOT_RUNNING:  # a suspended job still has nodes and cores (26.05)
                return grant_of(await self.job(job_id))
            raise

    async def update(self, job_id: int, changes: JobChanges) -> None:
        body = requests.update(changes)
        if not body:
            return
        try:
            await self._post(f"job/{job_id}", body)
        except SlurmError as error:
            # The job does not exist, or stays held. For new jobs, these errors have other meanings, and
            # so other classes.
            if error.number == _NO_SUCH_JOB or isinstance(error, NoRoomNow):
                raise _as(InvalidRequest, error) from error
            raise

    async def cancel(self, job_id: int, name: str | None = None) -> None:
        request = Request("DELETE", f"job/{job_id}")
        if name is not None:
            request = Request("DELETE", "jobs/", body={"jobs": [str(job_id)], "job_name": name})
        try:
            reply = await self._send(request)
        except SlurmError as error:
            if error.number in {_NO_SUCH_JOB, _ALREADY_DONE}:
                return
            raise
        # For DELETE jobs/, the HTTP status is always 200. The reply has the outcome for each job.
        for status in _objects(reply.get("status")):
            _check_cancelled(status)

    async def canceller(self, job_id: int) -> str | None:
        server = await self.connect()
        if not server.books:
            return None
        request = Request("GET", f"/slurmdb/{server.api_version}/job/{job_id}")
        return await self._ask(request, partial(responses.canceller, cluster=server.cluster))

    async def rights(self, user_id: int | None) -> UserRights:
        own = tokens.user(self._tokens.token()) or ""
        return await ask_rights.rights(self._ask, self, user_id, own)

    async def _ask(self, request: Request, read: Callable[[Mapping[str, Any]], _Read]) -> _Read:
        return self._one(request, read, await self._send(request))

    async def nodes(self) -> tuple[Node, ...]:
        request = Request("GET", "nodes/", each=("nodes", Reader(responses.node)))
        return self._readable(request, await self._list("nodes", request))

    async def node(self, name: str) -> Node | None:
        request = Request("GET", _node(name))
        for _ in range(2):
            found = await self._counted_node(request)
            if found is None or "ALLOCATED" not in found.states or found.cpus_allocated:
                return found
            # The node has jobs but no allocated CPUs: slurmctld restarted between the two requests of
            # _counted_node, and has not counted the allocations yet.
        raise RetryLater(f"Slurm has not counted yet what jobs have of node {name}")

    async def _counted_node(self, request: Request) -> Node | None:
        """Returns a node with its current allocations. slurmctld (24.11, 26.05) updates the counts of
        allocations only for a request about all nodes, even if the reply is empty. So this method first
        requests the changes of all nodes since a future time. With 5,000 nodes, this empty reply takes
        3 ms, and the full reply 700 ms."""
        await self._have_allocations_counted()
        try:
            entries = await self._list("nodes", request)
        except SlurmError as error:
            # For an unknown node, slurmrestd answers "Failure to query node" with HTTP 200 and no error
            # number. If slurmctld is down, the error has a number.
            if error.number is None and error.http_status == 200:
                return None
            raise
        return self._one(request, responses.node, entries[0]) if entries else None

    async def drain_node(self, name: str, reason: str) -> None:
        await self._post(_node(name), {"state": ["DRAIN"], "reason": reason})

    async def undrain_node(self, name: str) -> None:
        # RESUME would also bring back a node that is down, and would make a healthy node NOT_RESPONDING.
        try:
            await self._post(_node(name), {"state": ["UNDRAIN"]})
        except SlurmError as error:
            if error.number not in _NO_TRANSITION:
                raise

    async def down_node(self, name: str, reason: str) -> None:
        await self._post(_node(name), {"state": ["DOWN"], "reason": reason})

    async def delete_node(self, name: str) -> None:
        try:
            await self._send(Request("DELETE", _node(name)))
        except SlurmError as error:
            if error.number == _NODES_BUSY:  # for a new job, this number has another meaning
                raise _as(InvalidRequest, error) from error
            if error.number != _NO_SUCH_NODE:
                raise

    async def reservations(self) -> tuple[Reservation, ...]:
        # If one entry is unreadable, raises an error, because a missing reservation would look like a
        # deleted one.
        request = Request("GET", "reservations/")
        entries = await self._list("reservations", request)
        return tuple([self._one(request, responses.reservation, entry) for entry in entries])

    async def validate_reservations(self, node: str) -> None:
        await self._post(_node(node), {})

    async def partitions(self) -> tuple[Partition, ...]:
        request = Request("GET", "partitions/")
        entries = await self._list("partitions", request)
        return self._readable(request, map(Reader(responses.partition), entries))

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _negotiate(self) -> Capabilities:
        request = Request("GET", "/openapi/v3")
        openapi = await self._connections.send(request)
        version = self._one(request, negotiation.choose, openapi)
        ping = await self._connections.send(Request("GET", f"/slurm/{version}/ping/"))
        meta = ping.get("meta") or {}
        return self._one(request, lambda api: negotiation.capabilities(api, version, meta), openapi)

    async def _allocate(self, body: dict[str, Any]) -> int:
        try:
            return await self._create("job/allocate", body)
        except RetryLater as error:
            # A limit on running jobs leaves a FAILED record under the id. A limit on submissions leaves
            # no record. Slurm does not say which limit is reached, so the id counts as used up.
            if error.number == _ACCOUNTING_POLICY:
                raise _as(NoRoomNow, error) from error
            raise

    async def _create(self, path: str, body: dict[str, Any]) -> int:
        try:
            document = await self._post(path, body)
        except SlurmError as error:
            # If the error has a job id, the job exists, but slurmrestd could not parse a value
            # (26.05.5).
            if error.job_id is not None and not isinstance(error, JobIdTaken):
                await self.cancel(error.job_id)
            raise
        created = document.get("job_id")
        if not isinstance(created, int) or created <= 0:
            raise OutcomeUnknown(f"POST {path}: a reply without a job id")
        return created

    async def _states(self, query: str = "") -> AllStates:
        # Slurm's answer to "no jobs" is not an error: 24.11 and 26.05 answer 200 with an empty list.
        # While slurmctld is down, slurmrestd answers 500 "Unspecified error" with null instead of a
        # list.
        request = Request("GET", "jobs/state/", query)
        try:
            states = responses.states(await self._list("jobs", request))
        except Unexplained as error:
            status = error.http_status
            raise Unreachable("slurmctld does not answer slurmrestd", http_status=status) from error
        for why in states.malformed:
            self._tell(request, why)
        return states

    def _tell(self, request: Request, why: str) -> None:
        path = request.path if request.path.startswith("/") else f"/slurm/version/{request.path}"
        self._malformed(request._replace(path=path).call, why)

    def _readable(self, request: Request, entries: Iterable[_Read | Malformed]) -> tuple[_Read, ...]:
        """Returns the readable entries of a reply, because an unreadable entry must not hide the other
        entries."""
        found = list[_Read]()
        for entry in entries:
            if isinstance(entry, Malformed):
                self._tell(request, entry.why)
            else:
                found.append(entry)
        return tuple(found)

    def _one(
        self, request: Request, read: Callable[[Mapping[str, Any]], _Read], entry: Mapping[str, Any]
    ) -> _Read:
        """Reads an entry of a reply, and returns the value. Raises Unreadable for an unreadable
        entry."""
        found = Reader(read)(entry)
        if isinstance(found, Malformed):
            self._tell(request, found.why)
            raise Unreadable(f"{request.text}: a reply that cannot be read: {found.why}")
        return found

    async def _ask_for_no_nodes(self) -> None:
        await self._exchange(Request("GET", "nodes/", _SINCE_NEVER))

    async def _list(self, field: str, request: Request) -> list[Any]:
        """Returns the list of a reply. Raises OutcomeUnknown for a reply without the list."""
        found = (await self._send(request)).get(field)
        if not isinstance(found, list):
            raise OutcomeUnknown(f"{request.text}: a reply without {field}")
        return found

    async def _post(self, path: str, body: dict[str, Any]) -> Document:
        return await self._send(Request("POST", path, body=body))

    async def _send(self, request: Request) -> Document:
        """Returns a reply of slurmrestd. Raises OutcomeUnknown for a reply without `meta`. Such a reply
        comes from another server, which knows nothing about Slurm's jobs."""
        reply = await self._exchange(request)
        if "meta" not in reply:
            raise OutcomeUnknown(f"{request.text}: this is no reply of slurmrestd's")
        return reply

    async def _exchange(self, request: Request) -> Document:
        """Returns the reply, even if it does not come from slurmrestd. `request.path` is relative to the
        API version, or begins with "/"."""
        if not request.path.startswith("/"):
            version = (self._capabilities or await self.connect()).api_version
            request = request._replace(path=f"/slurm/{version}/{request.path}")
        try:
            return await self._connections.send(request)
        except NeedsOperator as error:
            if error.http_status == 404 and error.number is None:
                self._capabilities = None  # perhaps another slurmrestd, so the next call negotiates
            raise


def _objects(value: object) -> list[dict[str, Any]]:
    """Returns the objects in a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _node(name: str) -> str:
    checks.check_node(name)
    return f"node/{name}"


def _check_cancelled(status: Mapping[str, Any]) -> None:
    error = status.get("error")
    number = error.get("code") if isinstance(error, dict) else None
    if not isinstance(number, int) or not number or number in {_NO_SUCH_JOB, _ALREADY_DONE}:
        return
    words = str(status["error"].get("message") or "")
    raise error_mapping.make(classify(number), words, number, 200, {})


def _as(kind: type[SlurmError], error: SlurmError) -> SlurmError:
    return kind(error.words, number=error.number, http_status=error.http_status)
