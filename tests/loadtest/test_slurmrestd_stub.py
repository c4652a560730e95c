"""Tests of what the slurmrestd stub does beyond the contract tests: the delays, and the exact bytes of
HTTP replies."""

import asyncio
import itertools

import orjson
import pytest

from loadtest.slurmrestd_stub.delays import COSTS, Delays
from loadtest.slurmrestd_stub.routes import Routes, serving
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import JobSpec
from slurm_client.rest.client import SlurmRest
from slurm_client.tokens import StaticToken
from tests.slurm_client.conftest import ROOTS_TOKEN

JOB = JobSpec("job", cpus=1, memory_mb=100)


def slurm(nodes: int = 2) -> InMemorySlurm:
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    return InMemorySlurm([node(name) for name in names], [partition("main", names, default=True)])


async def exchange(url: str, *lines: str) -> bytes:
    """Sends one request and returns the whole reply, after which the stub closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join([*lines, "Host: stub", "Connection: close", "", ""]).encode())
    received = await reader.read()
    writer.close()
    return received


# -- on the wire


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/slurm/v0.0.45/job/7", 404),
        ("/slurm/v0.0.41/job/7", 404),
        ("/slurm/v0.0.45/jobs/state/?job_id=1,2", 500),
    ],
)
async def test_error_is_sent_twice_and_closes_the_connection(path: str, status: int) -> None:
    async with serving(slurm()) as url:
        told = await exchange(url, f"GET {path} HTTP/1.1", f"X-SLURM-USER-TOKEN: {ROOTS_TOKEN}")
    assert told.count(b"HTTP/1.1 %d ERROR\r\nConnection: Close\r\n" % status) == 2
    assert told[: len(told) // 2] * 2 == told


async def test_request_without_a_token_is_unauthorized() -> None:
    async with serving(slurm()) as url:
        told = await exchange(url, "GET /slurm/v0.0.45/nodes/ HTTP/1.1")
    assert told.count(b"HTTP/1.1 401 ERROR") == 2


async def test_request_that_is_not_http_is_an_error() -> None:
    async with serving(slurm()) as url:
        assert b" 400 " in await exchange(url, "nonsense")


async def test_replies_have_the_length_of_real_replies() -> None:
    """In compact JSON, a reply of slurmrestd 26.05.5 has 6.2 kB about a job, and 1.7 kB about a node
    with eight cores."""
    fake = slurm()
    await fake.allocate(JOB, 7)
    async with serving(fake) as url:
        for path, least in (("job/7", 5000), ("node/node-1", 1500)):
            asked = f"GET /slurm/v0.0.45/{path} HTTP/1.1"
            told = await exchange(url, asked, f"X-SLURM-USER-TOKEN: {ROOTS_TOKEN}")
            body = told.partition(b"\r\n\r\n")[2]
            assert least < len(body) < 8000
            assert orjson.loads(body)["errors"] == []


async def test_changed_nodes_are_read_again() -> None:
    fake = slurm()
    async with serving(fake) as url:
        client = SlurmRest(url, StaticToken(ROOTS_TOKEN))
        assert [one.cpus_allocated for one in await client.nodes()] == [0, 0]
        await fake.allocate(JOB, 7)
        fake.drain("node-2", "broken")
        first, second = await client.nodes()
        assert (first.cpus_allocated, second.reason) == (1, "broken")
        await client.aclose()


async def test_jobs_of_a_node_are_as_of_the_last_request_for_all_nodes() -> None:
    """Until a client asks for all nodes, a read of one node shows the old allocation. slurmrestd 24.11
    and 26.05 do the same, even if the reply about all nodes is empty (304)."""
    fake = slurm()
    path, token = "GET /slurm/v0.0.45/node", f"X-SLURM-USER-TOKEN: {ROOTS_TOKEN}"
    async with serving(fake) as url:
        await fake.allocate(JOB, 7)
        assert b'"alloc_cpus":0' in await exchange(url, f"{path}/node-1 HTTP/1.1", token)
        told = await exchange(url, f"{path}s/?update_time=4294967296 HTTP/1.1", token)
        assert told.startswith(b"HTTP/1.1 304 NOT MODIFIED\r\n")
        assert told.endswith(b"\r\n\r\n")
        assert b'"alloc_cpus":1' in await exchange(url, f"{path}/node-1 HTTP/1.1", token)
        told = await exchange(url, f"{path}s/?update_time=1 HTTP/1.1", token)
        assert told.count(b'"alloc_cpus"') == 2


async def test_reply_has_a_delay() -> None:
    loop = asyncio.get_running_loop()
    async with serving(slurm(), Delays(slowness=100.0)) as url:
        client = SlurmRest(url, StaticToken(ROOTS_TOKEN))
        await client.connect()
        began = loop.time()
        await client.cancel(7)
        assert loop.time() - began >= 0.079  # a hundred times 0.79 ms
        await client.aclose()


# -- delays


def test_slurmctld_does_one_thing_at_a_time() -> None:
    delays = Delays(nodes=1000, slowness=1.0)
    answered = [delays.answers_at(5.0, "allocate") for _ in range(1000)]
    apart = {round(later - earlier, 6) for earlier, later in itertools.pairwise(answered)}
    assert apart == {0.0012}
    assert answered[0] - 5.0 == pytest.approx(0.00135)
    assert delays.answers_at(60.0, "allocate") - 60.0 == pytest.approx(0.00135)


def test_more_nodes_make_an_allocation_slower_and_more_jobs_a_list() -> None:
    large = Delays(nodes=5000, slowness=1.0)
    assert large.answers_at(0.0, "allocate") == pytest.approx(0.00335)
    assert Delays(slowness=1.0).answers_at(0.0, "states", 10_000) == pytest.approx(0.12, abs=0.01)


def test_list_of_all_nodes_occupies_one_of_two_threads() -> None:
    delays = Delays(nodes=5000, slowness=1.0)
    first = delays.answers_at(0.0, "nodes", 5000)
    assert first == pytest.approx(0.702)
    assert delays.answers_at(0.1, "cancel") == pytest.approx(0.10079)
    delays.answers_at(0.2, "nodes", 5000)
    assert delays.answers_at(0.3, "cancel") == pytest.approx(first + 0.00079)


def test_reply_without_slowness_has_no_delay() -> None:
    assert {Delays(nodes=5000).answers_at(3.0, call, 5000) for call in [*COSTS, ""]} == {3.0}


def test_each_call_has_a_cost() -> None:
    calls = {call for call, *_ in Routes(slurm(), Delays()).calls}
    assert calls | {"nodes unchanged"} == set(COSTS)
