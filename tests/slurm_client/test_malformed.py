"""Tests of malformed entries in replies, such as a job without an id. The client still reads the other
entries, except in lists that must be complete, such as the reservations."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_client.errors import OutcomeUnknown, Unreadable
from slurm_client.job_state import UNREAD, JobState
from slurm_client.rest import responses
from slurm_client.rest.client import SlurmRest
from slurm_client.tokens import StaticToken
from tests.slurm_client.peer import Act, peer, reply

RUNNING = JobState("RUNNING")
GOOD: dict[str, Any] = {"job_id": 7, "state": ["RUNNING"]}
NAMELESS: list[Any] = [
    None,
    [],
    7,
    "7",
    {},
    {"state": ["RUNNING"]},
    {"job_id": None, "state": ["RUNNING"]},
    {"job_id": {"number": 8}, "state": ["RUNNING"]},
    {"job_id": "eight", "state": ["RUNNING"]},
    {"job_id": "8" * 5000, "state": ["RUNNING"]},
]
STATELESS: list[Any] = [
    {"job_id": 8},
    {"job_id": 8, "state": None},
    {"job_id": 8, "state": 3},
    {"job_id": 8, "state": [None]},
    {"job_id": 8, "state": [["CANCELLED"]]},
    {"job_id": 8, "state": [{"CANCELLED": 1}]},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@contextlib.asynccontextmanager
async def client(*documents: dict[str, Any]) -> AsyncIterator[tuple[SlurmRest, list[tuple[str, str]]]]:
    """Yields a client whose slurmrestd gives these replies, and the list of malformed entries that the
    client has reported."""
    told = list[tuple[str, str]]()
    async with peer([Act(reply(200, document | {"errors": []})) for document in documents]) as served:
        slurm = SlurmRest(
            served.url, StaticToken("token"), malformed=lambda call, why: told.append((call, why))
        )
        yield slurm, told
        await slurm.aclose()


@pytest.mark.parametrize("entry", NAMELESS, ids=lambda entry: str(entry)[:40])
async def test_no_job_counts_as_absent_while_an_entry_has_no_job_id(entry: Any) -> None:
    """One of the requested jobs may be the entry without an id. So the client must not report this job
    as absent, because the extender treats an absent job as ended."""
    async with client({"jobs": [entry, GOOD]}) as (slurm, told):
        assert await slurm.states([7, 8, 9]) == {7: RUNNING, 8: UNREAD, 9: UNREAD}
        assert [call for call, _ in told] == ["GET jobs/state?job_id"]


@pytest.mark.parametrize("entry", STATELESS, ids=str)
async def test_a_job_whose_state_cannot_be_read_is_neither_absent_nor_ended(entry: Any) -> None:
    async with client({"jobs": [entry, GOOD]}) as (slurm, told):
        states = await slurm.states([7, 8, 9])
        assert states == {7: RUNNING, 8: UNREAD}
        assert not states[8].ended
        assert len(told) == 1


async def test_all_states_count_the_entries_without_a_job_id() -> None:
    async with client({"jobs": [None, STATELESS[0], GOOD, {"job_id": "7_3", "state": ["RUNNING"]}]}) as (
        slurm,
        told,
    ):
        states = await slurm.all_states()
    assert states == {7: RUNNING, 8: UNREAD}
    assert (states.entries, states.nameless, len(told)) == (4, 1, 2)


@pytest.mark.parametrize("number", ["7_3", "7_*", "7_[1-5,8]", "7+1"])
async def test_array_tasks_and_components_of_jobs_are_not_malformed_entries(number: str) -> None:
    async with client({"jobs": [{"job_id": number, "state": ["RUNNING"]}]}) as (slurm, told):
        assert await slurm.states([7, 8]) == {}
    assert not told


@pytest.mark.parametrize(
    "entry",
    [None, 7, {}, {"job_id": "x"}, {"job_id": 7, "nodes": "n[1"}, {"job_id": 7, "user_id": [7]},
     {"job_id": 7, "step_id": "0"}, {"job_id": 7, "job_state": [{}]}],
    ids=str,
)  # fmt: skip
async def test_a_job_that_cannot_be_read_is_not_absent(entry: Any) -> None:
    async with client({"jobs": [entry]}) as (slurm, told):
        with pytest.raises(Unreadable, match="GET job/7"):
            await slurm.job(7)
        assert [call for call, _ in told] == ["GET job"]


@pytest.mark.parametrize("entry", [None, 7, {}, {"name": "n2", "state": 7}, {"name": "n2", "cpus": "x"}])
async def test_a_malformed_node_does_not_hide_other_nodes(entry: Any) -> None:
    listed = {"nodes": [entry, {"name": "n1"}]}
    async with client(listed, {"nodes": []}, {"nodes": [entry]}) as (slurm, told):
        assert [node.name for node in await slurm.nodes()] == ["n1"]
        with pytest.raises(Unreadable):
            await slurm.node("n2")
        assert [call for call, _ in told] == ["GET nodes", "GET node"]


@pytest.mark.parametrize(
    "entry", [None, {}, {"name": "p", "nodes": {"configured": "n[1"}}, {"name": "p", "partition": [1]}]
)
async def test_a_malformed_partition_does_not_hide_other_partitions(entry: Any) -> None:
    async with client({"partitions": [entry, {"name": "main"}]}) as (slurm, told):
        assert [partition.name for partition in await slurm.partitions()] == ["main"]
        assert [call for call, _ in told] == ["GET partitions"]


@pytest.mark.parametrize("entry", [None, 7, {}, {"name": "r", "node_list": "n[1"}])
async def test_a_malformed_reservation_is_an_error(entry: Any) -> None:
    """If the client left the entry out, the nodes of this reservation would seem free."""
    async with client({"reservations": [{"name": "r"}, entry]}) as (slurm, told):
        with pytest.raises(Unreadable):
            await slurm.reservations()
        assert [call for call, _ in told] == ["GET reservations"]


@pytest.mark.parametrize("errors", [7, "no", [7], [None], [[]]])
async def test_a_malformed_error_is_still_an_error(errors: Any) -> None:
    act = Act(reply(200, {"jobs": [], "errors": errors}))
    async with peer(act) as served:
        slurm = SlurmRest(served.url, StaticToken("token"))
        with pytest.raises(OutcomeUnknown):
            await slurm.states([7])
        await slurm.aclose()


@given(st.lists(JSON, max_size=4))
def test_any_entry_is_read_or_reported_as_malformed(entries: list[Any]) -> None:
    found = responses.states(entries)
    assert len(found.malformed) >= found.nameless
    for read in (responses.job, responses.node, responses.partition, responses.reservation):
        for entry in entries:
            responses.Reader(read)(entry)


FIELDS = (
    *("job_id", "job_state", "nodes", "gres_detail", "flags", "step_id", "features"),
    *("name", "state", "partitions", "partition", "priority", "maximums", "cpus", "memory_per_node"),
    *("node_list", "start_time", "end_time"),
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_field_value_is_read_or_reported_as_malformed(entry: dict[str, Any]) -> None:
    for read in (
        responses.job,
        responses.node,
        responses.partition,
        responses.reservation,
        responses.configuration,
        responses.grant,
    ):
        responses.Reader(read)(entry)
    responses.states([entry])


PART_OF_A_NODE = st.sampled_from(["name", "memory", "sockets", "cores", "status", "core_bitmap", "gres"])


PARTS = st.lists(st.dictionaries(PART_OF_A_NODE, JSON, max_size=3), max_size=2)


@given(st.lists(st.dictionaries(PART_OF_A_NODE, JSON | PARTS, max_size=4), max_size=3))
def test_any_description_of_job_nodes_is_read_or_reported_as_malformed(
    on_nodes: list[dict[str, Any]],
) -> None:
    told = {"job_id": 7, "nodes": "n1", "job_resources": {"nodes": {"allocation": on_nodes}}}
    responses.Reader(responses.job)(told)
    responses.Reader(responses.grant)({"nodes": [{"node": "n1", **one} for one in on_nodes]})


def entry(submitted: int, state: str, who: str, cluster: str = "local") -> dict[str, Any]:
    """Returns an entry of a job in a reply of slurmdbd."""
    times, states = {"submission": submitted}, {"current": [state], "reason": "None"}
    return {"time": times, "state": states, "kill_request_user": who, "cluster": cluster}


READ_BOOKS = responses.Reader(partial(responses.canceller, cluster="local"))


@pytest.mark.parametrize(
    ("entries", "who"),
    [
        ([entry(1, "CANCELLED", "alice")], "alice"),
        ([entry(1, "CANCELLED", "")], None),
        ([entry(1, "PREEMPTED", "root")], None),
        ([entry(2, "RUNNING", ""), entry(1, "CANCELLED", "alice")], None),  # two jobs have had this id
        ([entry(1, "CANCELLED", "alice"), entry(2, "CANCELLED", "bob")], "bob"),
        ([entry(1, "CANCELLED", "alice"), entry(2, "CANCELLED", "bob", "other")], "alice"),
        ([entry(1, "CANCELLED", "bob", "other")], None),
        ([], None),
    ],
)
def test_the_canceller_of_a_job_is_read_from_its_newest_record(
    entries: list[dict[str, Any]], who: str | None
) -> None:
    assert READ_BOOKS({"jobs": entries}) == who


@pytest.mark.parametrize("entry", [None, 7, {}, {"time": {"submission": 1}}, {"time": 1, "state": "x"}])
def test_an_unreadable_accounting_record_is_malformed(entry: Any) -> None:
    assert isinstance(READ_BOOKS({"jobs": [entry]}), responses.Malformed)
