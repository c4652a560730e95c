"""Tests of the client against a scripted peer: lost replies, unusual replies and busy connections."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import uvloop

from service.http.client import Client
from slurm_client.errors import (
    BadToken,
    InvalidRequest,
    JobIdTaken,
    NeedsOperator,
    NoRoomNow,
    OtherJob,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
)
from slurm_client.rest.client import SlurmRest
from slurm_client.rest.http import Request
from slurm_client.tokens import StaticToken
from tests.slurm_client.bench import spec
from tests.slurm_client.peer import PING, Act, Peer, lost, peer, reply, slurm_error

CREATED = Act(reply(200, {"job_id": 7, "errors": []}))
NO_JOBS = Act(reply(200, {"jobs": [], "errors": []}))


@contextlib.asynccontextmanager
async def client_of(served: Peer, **options: Any) -> AsyncIterator[SlurmRest]:
    slurm = SlurmRest(served.url, StaticToken("token"), **options)
    yield slurm
    await slurm.aclose()


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'17\r\n{"meta": {}, "job_id": \r\n2\r\n7}\r\n0\r\n\r\n'
)
CREATIONS = {
    "closed before the reply": [lost(), CREATED],
    "half a reply": [Act(reply(200, {"job_id": 7})[:-3], closes=True), CREATED],
    "no HTTP": [Act(b"SSH-2.0-x\r\n", closes=True), CREATED],
    "chunks": [Act(CHUNKED)],
}


@pytest.mark.parametrize("script", CREATIONS.values(), ids=CREATIONS)
async def test_lost_reply_is_requested_again_at_once(script: list[Act]) -> None:
    async with peer(script) as served, client_of(served) as slurm:
        assert await slurm.submit(spec(), 7) == 7
        assert len(served.seen) == len(script)


def refused(number: int, *, times: int = 1, closes: bool = True) -> Act:
    return Act(reply(422, slurm_error(number), times=times), closes=closes)


@pytest.mark.parametrize(
    ("second", "error", "words"),
    [
        (lost(), OutcomeUnknown, r"POST /slurm/v0\.0\.45/job/submit"),
        (refused(2011), JobIdTaken, ""),
        *((refused(number), OutcomeUnknown, "lost") for number in (2007, 2050, 2000)),
    ],
)
async def test_second_reply_to_a_creation_is_conclusive_for_a_taken_id_only(
    second: Act, error: type[SlurmError], words: str
) -> None:
    """The first reply is lost, so the first request may have created the job. An error of the second
    request proves nothing, because Slurm checks limits and the request before Slurm looks for a
    duplicate id."""
    async with peer(lost(), second) as served, client_of(served) as slurm:
        with pytest.raises(error, match=words or None):
            await slurm.submit(spec(), 7)


async def test_over_a_limit_an_allocation_uses_up_its_id_but_a_submission_does_not() -> None:
    """Slurm gives the same error number for a limit on running jobs as for a limit on submissions. But
    after an allocation that a limit on running jobs refuses, Slurm keeps a FAILED job with the id."""
    async with peer(refused(2050), refused(2050)) as served, client_of(served) as slurm:
        with pytest.raises(NoRoomNow):
            await slurm.allocate(spec(), 7)
        with pytest.raises(RetryLater):
            await slurm.submit(spec(), 8)


def test_a_connection_is_reused_under_uvloop() -> None:
    async def use() -> None:
        async with peer(CREATED, CREATED) as served, client_of(served, concurrency=1) as slurm:
            for _ in range(2):
                assert await slurm.submit(spec(), 7) == 7
            assert served.connections == 1

    uvloop.run(use())


async def test_a_connection_that_the_server_closes_is_not_reused() -> None:
    last = CREATED.sends.replace(b"HTTP/1.1 200 X\r\n", b"HTTP/1.1 200 X\r\nConnection: close\r\n")
    async with peer(Act(last), CREATED) as served, client_of(served, concurrency=1) as slurm:
        for _ in range(2):
            assert await slurm.submit(spec(), 7) == 7
        assert len(served.seen) == 2


async def test_a_token_cannot_add_another_header() -> None:
    async with peer(NO_JOBS) as served:
        slurm = SlurmRest(served.url, StaticToken("a\r\nX-SLURM-USER-NAME: root"))
        await slurm.states([7])
        await slurm.aclose()
        assert set(served.tokens) == {"a??X-SLURM-USER-NAME: root"}


async def test_all_calls_with_a_refused_token_retry_with_the_new_token(tmp_path: Path) -> None:
    file, gate = tmp_path / "token", asyncio.Event()
    file.write_text("old")
    rejected = Act(reply(401, b"Authentication failure"), after=gate, closes=True)
    async with peer([rejected] * 2, [NO_JOBS] * 2) as served:
        slurm = SlurmRest(served.url, file)
        calls = [asyncio.create_task(slurm.states([7])) for _ in range(2)]
        await served.until_open(2)
        file.write_text("new")
        gate.set()
        assert await asyncio.gather(*calls) == [{}, {}]
        await slurm.aclose()
        assert served.tokens == ["old", "old", "new", "new"]


@pytest.mark.parametrize("closes", [True, False])
async def test_error_sent_twice_is_read_once_and_the_next_call_works(closes: bool) -> None:
    twice = refused(2000, times=2, closes=closes)
    async with peer(twice, NO_JOBS, twice, NO_JOBS, NO_JOBS) as served, client_of(served) as slurm:
        for _ in range(2):
            with pytest.raises(InvalidRequest):
                await slurm.submit(spec(), 7)
            assert await slurm.states([1]) == {}


async def test_no_reply_in_time_leaves_the_outcome_unknown() -> None:
    never = Act(after=asyncio.Event(), closes=True)
    async with peer(never) as served, client_of(served, timeout_s=0.1) as slurm:
        with pytest.raises(OutcomeUnknown, match=r"no reply within 0\.1 s"):
            await slurm.submit(spec(), 7)


async def test_connections_are_limited_and_a_call_over_the_limit_must_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, clients = asyncio.Event(), list[Client]()

    def client(*given: Any, **options: Any) -> Client:
        clients.append(Client(*given, **options))
        return clients[-1]

    monkeypatch.setattr("slurm_client.rest.http.Client", client)
    slow = Act(reply(200, {"jobs": []}), after=gate)
    async with peer([slow] * 2) as served, client_of(served, concurrency=2) as slurm:
        await slurm.connect()
        calls = [asyncio.create_task(slurm.states([1])) for _ in range(2)]
        await served.until_open(2)
        clients[0].timeout = httpx.Timeout(0.05)
        with pytest.raises(RetryLater, match="busy"):
            await slurm.states([1])
        gate.set()
        assert await asyncio.gather(*calls) == [{}, {}]
        assert served.most_at_once == 2


async def test_a_cancelled_call_releases_its_connection() -> None:
    never = asyncio.Event()
    script = [Act(after=never, closes=True), NO_JOBS]
    async with peer(script) as served, client_of(served, concurrency=1) as slurm:
        await slurm.connect()
        call = asyncio.create_task(slurm.states([1]))
        await served.until_open(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await slurm.states([1]) == {}


@pytest.mark.parametrize("call", ["states", "job", "nodes", "partitions", "cancel", "submit"])
async def test_a_200_reply_that_is_not_from_slurmrestd_is_an_error(call: str) -> None:
    """The client must not take such a reply for "no such job" or "cancelled"."""
    arguments = {"states": ([1],), "job": (1,), "cancel": (1,), "submit": (spec(), 1)}
    nothing = Act(reply(200, b"{}"))
    async with peer(nothing, nothing) as served, client_of(served) as slurm:
        with pytest.raises(SlurmError):
            await getattr(slurm, call)(*arguments.get(call, ()))


JOBS = ("states", "all_states", "job")
LISTS = {"nodes": "nodes", "partitions": "partitions"} | dict.fromkeys(JOBS, "jobs")


@pytest.mark.parametrize("call", LISTS)
@pytest.mark.parametrize("listed", ["nothing", None, {}])
async def test_a_reply_without_the_requested_list_leaves_the_outcome_unknown(
    call: str, listed: object
) -> None:
    told = {} if listed == "nothing" else {LISTS[call]: listed}
    arguments = {"states": ([1],), "job": (1,)}
    async with peer(Act(reply(200, told))) as served, client_of(served) as slurm:
        with pytest.raises(OutcomeUnknown, match="without"):
            await getattr(slurm, call)(*arguments.get(call, ()))


async def test_only_an_error_of_slurm_means_that_a_job_does_not_exist() -> None:
    unknown = Act(reply(404, slurm_error(2017)), closes=True)
    async with peer(NO_JOBS, unknown) as served, client_of(served) as slurm:
        with pytest.raises(OutcomeUnknown, match="without the job"):
            await slurm.job(7)
        assert await slurm.job(7) is None


ODD_JOB = b'{"meta":{},"jobs":[{"job_id":7,"job_state":["RUNNING"],"name":"\xff","comment":"a\xc3"}]}'
ODD_NAME = b'{"meta":{},"status":[{"error":{"code":2172,"message":"Job name \xff != filter name x"}}]}'


async def test_job_texts_with_invalid_utf8_are_read() -> None:
    script = [Act(reply(200, ODD_JOB)), Act(reply(200, ODD_NAME))]
    async with peer(script) as served, client_of(served) as slurm:
        job = await slurm.job(7)
        with pytest.raises(OtherJob, match="\ufffd != filter name x"):
            await slurm.cancel(7, "x")
    assert job is not None
    assert (job.id, job.state.running, job.name, job.comment) == (7, True, "\ufffd", "a\ufffd")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (reply(502, b"Bad gateway"), OutcomeUnknown),
        (reply(500, b"Unspecified error"), OutcomeUnknown),
        (reply(500, slurm_error(-1, "Unspecified error")), Unexplained),
        (reply(403, slurm_error(1, "Operation not permitted")), Unexplained),
        (reply(200, slurm_error(-1, "Failure to query node")), OutcomeUnknown),
        (reply(200, b"not JSON"), OutcomeUnknown),
        (reply(200, {"errors": []}), OutcomeUnknown),
        (reply(304, b""), OutcomeUnknown),
        (reply(503, b"busy"), RetryLater),
        (reply(404, b"Unable to find requested URL"), NeedsOperator),
        (reply(401, b"Authentication failure"), BadToken),
        (reply(200, slurm_error(2000)), InvalidRequest),
        (reply(500, slurm_error(2011)), JobIdTaken),
        (reply(422, slurm_error(2016)), NoRoomNow),
        (reply(504, slurm_error(5004)), OutcomeUnknown),
        (reply(500, slurm_error(11)), RetryLater),
    ],
)
async def test_each_reply_to_a_creation_raises_its_error(sent: bytes, error: type[SlurmError]) -> None:
    async with peer(Act(sent, closes=True)) as served, client_of(served) as slurm:
        with pytest.raises(error) as raised:
            await slurm.submit(spec(), 7)
        assert type(raised.value) is error


async def test_an_unexplained_error_of_states_means_slurmctld_is_unreachable() -> None:
    """Elsewhere, this error number means that a job_submit plugin refuses the request. A plugin cannot
    refuse a read of states."""
    unexplained = Act(reply(500, slurm_error(-1, "Unspecified error")), closes=True)
    async with peer(unexplained) as served, client_of(served) as slurm:
        with pytest.raises(Unreachable, match="slurmctld does not answer slurmrestd"):
            await slurm.states([7])


async def test_a_job_created_despite_an_error_reply_is_cancelled() -> None:
    # To an unparsable value, slurmrestd 26.05.5 replies with HTTP 500 and an error, but the job runs.
    both = Act(reply(500, slurm_error(9207, job_id=7)), closes=True)
    done = Act(reply(200, {"status": [], "errors": []}))
    async with peer(both, done) as served, client_of(served) as slurm:
        with pytest.raises(InvalidRequest):
            await slurm.submit(spec(), 7)
        assert served.seen[1] == "DELETE /slurm/v0.0.45/job/7"


async def test_a_failed_cancel_in_a_200_reply_is_an_error() -> None:
    denied = {"status": [{"error": {"code": 2010, "message": "denied"}}], "errors": []}
    async with peer(Act(reply(200, denied))) as served, client_of(served) as slurm:
        with pytest.raises(NeedsOperator, match="denied"):
            await slurm.cancel(7)


async def test_many_ids_are_requested_in_parts_and_once_each() -> None:
    parts = [
        Act(reply(200, {"jobs": [{"job_id": 1, "state": ["RUNNING"]}]})),
        Act(reply(200, {"jobs": [{"job_id": 600, "state": ["PENDING"]}]})),
    ]
    async with peer(parts) as served, client_of(served) as slurm:
        states = await slurm.states([*range(1, 601), *range(1, 601)])
        assert set(states) == {1, 600}
    asked = [[("job_id", one) for one in ids] for ids in (range(1, 401), range(401, 601))]
    paths = [f"GET /slurm/v0.0.45/jobs/state/?{urlencode(part)}" for part in asked]
    assert served.seen == paths


NODE = Act(reply(200, {"nodes": [{"name": "n1", "alloc_cpus": 3}]}))
UNCOUNTED = Act(reply(200, {"nodes": [{"name": "n1", "alloc_cpus": 0, "state": ["ALLOCATED"]}]}))
UNCHANGED = Act(reply(304, b""))


async def test_allocations_are_counted_once_before_nodes_are_read_one_by_one() -> None:
    async with peer(UNCHANGED, NODE, NODE, NODE) as served, client_of(served) as slurm:
        await slurm.connect()
        found = await asyncio.gather(*(slurm.node(f"n{number}") for number in (1, 2, 3)))
    assert [node and node.cpus_allocated for node in found] == [3, 3, 3]
    counted, *read = served.seen
    assert counted.startswith("GET /slurm/v0.0.45/nodes/?update_time=")
    assert sorted(read) == [f"GET /slurm/v0.0.45/node/n{number}" for number in (1, 2, 3)]


async def test_uncounted_node_is_read_again_and_never_returned_as_free() -> None:
    counts, counts_not = [UNCHANGED, UNCOUNTED, UNCHANGED, NODE], [UNCHANGED, UNCOUNTED] * 2
    async with peer(counts, counts_not) as served, client_of(served) as slurm:
        node = await slurm.node("n1")
        with pytest.raises(RetryLater, match="has not counted yet what jobs have of node n1"):
            await slurm.node("n1")
    assert node is not None
    assert node.cpus_allocated == 3


async def test_a_full_list_of_nodes_in_place_of_status_304_does_no_harm() -> None:
    async with peer(NODE, NODE) as served, client_of(served) as slurm:
        assert await slurm.node("n1") is not None


async def test_a_node_is_not_read_if_counting_its_allocations_fails() -> None:
    down = Act(reply(500, slurm_error(1005)), closes=True)
    async with peer(down) as served, client_of(served) as slurm:
        with pytest.raises(SlurmError):
            await slurm.node("n1")
        assert len(served.seen) == 1


async def test_no_common_api_version_needs_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    old: dict[str, Any] = {"paths": {"/slurm/v0.0.40/ping/": {}, "/slurmdb/v0.0.45/jobs/": {}}}
    monkeypatch.setattr("tests.slurm_client.peer.OPENAPI", old)
    async with peer() as served, client_of(served) as slurm:
        with pytest.raises(NeedsOperator, match=r"offers the API versions v0\.0\.40"):
            await slurm.connect()


async def test_without_external_jobs_a_placeholder_is_a_script_that_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain: dict[str, Any] = {"paths": {"/slurm/v0.0.42/job/submit": {}}}
    monkeypatch.setattr("tests.slurm_client.peer.OPENAPI", plain)
    async with peer(CREATED) as served, client_of(served) as slurm:
        assert not (await slurm.connect()).external_jobs
        await slurm.submit(spec(), 7)
        assert served.seen == ["POST /slurm/v0.0.42/job/submit"]


@pytest.mark.parametrize("url", ["127.0.0.1:6820", "unix://host/path", "ftp://x", "http://"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="slurmrestd's URL"):
        SlurmRest(url, StaticToken("token"))


@pytest.mark.parametrize(
    ("method", "path", "query", "call"),
    [
        ("GET", "/openapi/v3", "", "GET openapi"),
        ("GET", "/slurm/v0.0.45/ping/", "", "GET ping"),
        ("GET", "/slurm/v0.0.45/job/4711", "", "GET job"),
        ("POST", "/slurm/v0.0.42/job/submit", "", "POST job/submit"),
        ("POST", "/slurm/v0.0.42/node/n1", "", "POST node"),
        ("GET", "/slurm/v0.0.42/nodes/", "update_time=1", "GET nodes?update_time"),
        ("GET", "/slurm/v0.0.42/jobs/state/", "", "GET jobs/state"),
        ("GET", "/slurm/v0.0.42/jobs/state/", "job_id=1&job_id=2", "GET jobs/state?job_id"),
    ],
)
def test_names_of_calls_contain_no_ids_and_no_api_version(
    method: str, path: str, query: str, call: str
) -> None:
    assert Request(method, path, query).call == call


async def test_every_exchange_is_reported_with_its_number_of_bytes() -> None:
    heard: list[tuple[str, int, int]] = []

    def hear(*told: Any) -> None:
        heard.append(told)

    async with peer(lost(), CREATED) as served, client_of(served, heard=hear) as slurm:
        await slurm.submit(spec(), 7)
        sent = len(served.seen[-1])
    assert [told[0] for told in heard] == ["GET openapi", "GET ping", *["POST job/submit"] * 2]
    (_, out, back), (_, again, answer) = heard[-2:]
    assert out == again > sent > 0
    assert (back, answer) == (0, len(b'{"meta":{},"job_id":7,"errors":[]}'))


async def test_ids_of_array_tasks_are_not_read_as_job_ids() -> None:
    """24.11 and 26.05 write the ids of array tasks in these forms. slurmrestd writes the last form only
    while Slurm splits an array."""
    told = [{"job_id": text, "state": ["PENDING"]} for text in ("73", "7_3", "33_554432", "7_*")]
    async with peer(Act(reply(200, {"jobs": told}))) as served, client_of(served) as slurm:
        states = await slurm.all_states()
    assert (set(states), states.entries) == ({73}, 4)


async def test_waiting_array_tasks_are_counted_under_the_id_of_their_array() -> None:
    """A task that Slurm has split off from its array has its own id. The tasks that are still together
    have the id of the array."""
    waiting = ("73", "7_0", "7_1", "7_4", "9_3", "5_*", "12+1")
    told = [{"job_id": text, "state": ["PENDING"]} for text in waiting]
    told.append({"job_id": "8_2", "state": ["RUNNING"]})
    async with peer(Act(reply(200, {"jobs": told}))) as served, client_of(served) as slurm:
        states = await slurm.all_states()
    assert states.waiting == {73: 1, 7: 3, 9: 1, 5: 1, 12: 1}


async def test_boot_time_of_a_leading_backup_is_when_it_was_first_seen_to_lead() -> None:
    """After a takeover, the backup slurmctld reports the time of its own start, long before the
    takeover."""
    statistics = Act(reply(200, {"statistics": {"req_time_start": {"set": True, "number": 1000}}}))
    async with peer([statistics] * 5) as served, client_of(served) as slurm:

        async def started(*responding: bool) -> int:
            served.ping = PING | {"pings": [{"responding": each} for each in responding]}
            told = (await slurm.configuration()).boot_time
            assert told is not None
            return told

        assert await started(True, True) == 1000
        began = int(time.time())
        assert (seen := await started(False, True)) >= began
        assert await started(False, True) == seen
        assert await started(False, False) == 1000  # no slurmctld responds, so the leader is not known
        assert await started(True, True) == 1000
