"""kube-scheduler gets an answer before the timeout, and the answer names the silent system."""

import asyncio
import gc
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.kube_scheduler import deadline
from extender.unmanaged.free_capacity import UNKNOWN
from kubernetes_client.errors import Unavailable
from slurm_client.errors import BadToken, OutcomeUnknown, Unreachable
from tests.builders import Manifest, unmanaged
from tests.eventually import until
from tests.verbs import test_unmanaged_pods as others
from tests.verbs.callers import body
from tests.verbs.test_bind import Cluster, granted
from tests.verbs.test_unmanaged_pods import machine

SILENT = re.compile(
    r"Slurm has not answered since \d\d:\d\d UTC; free capacity of its nodes is unknown;"
    r" kube-scheduler retries the Pod"
)
NO_SLURM = "Slurm does not answer"
NO_KUBERNETES = "kube-apiserver does not answer"
InTime = Callable[[Awaitable[object]], Awaitable[object]]
VERBS = ("filter", "prioritize", "bind", "preempt")
USUAL = deadline._QUESTIONS_S, deadline._ANSWER_S


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets short deadlines, so that a test without an answer ends soon. After a pause of the process,
    two deadlines closer than half a second could pass in one turn of the event loop."""
    monkeypatch.setattr(deadline, "_QUESTIONS_S", 0.4)
    monkeypatch.setattr(deadline, "_ANSWER_S", 0.9)


@pytest.fixture
def patiently(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function that restores the usual deadlines. Calls that get an answer need the usual
    deadlines, because a busy machine may need 0.4 s for an answer."""

    def restore() -> None:
        monkeypatch.setattr(deadline, "_QUESTIONS_S", USUAL[0])
        monkeypatch.setattr(deadline, "_ANSWER_S", USUAL[1])

    return restore


async def guests(*pods: Manifest, **given: Any) -> others.Cluster:
    """Returns a cluster with a free Node n1 for unmanaged Pods."""
    return await others.Cluster(*pods, nodes=(machine("n1"),), **given).known()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("of_slurm", [True, False])
@pytest.mark.parametrize("managed", [True, False])
async def test_verb_answers_while_a_system_is_silent(
    verb: str, *, of_slurm: bool, managed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.unmanaged.free_capacity._PATIENCE_S", 0.05)
    asks = granted() if managed else unmanaged()
    cluster = Cluster(asks)
    cluster.slurm.silent = of_slurm
    if not of_slurm:
        cluster.kubernetes.hold()
    sent = body(verb)
    if verb == "bind":
        metadata = asks["metadata"]
        sent |= {"PodName": metadata["name"], "PodUID": metadata["uid"]}
    else:
        sent |= {"Pod": asks}
    async with asyncio.timeout(5):
        answer = await cluster.listeners.ask(verb, sent)
    if verb == "bind":
        assert answer["Error"]
        assert cluster.kubernetes.bindings == []
    cluster.kubernetes.release()


@pytest.mark.parametrize("known", [True, False])
async def test_bind_names_slurm_while_slurm_is_silent(*, known: bool) -> None:
    cluster = Cluster(granted())
    if known:
        cluster.knows(granted(), immediate=True)
    cluster.slurm.silent = True
    assert await cluster.bind() == NO_SLURM
    assert cluster.kubernetes.bindings == []


@pytest.mark.parametrize("call", ["read_pod", "list pods"])
async def test_bind_names_a_silent_kube_apiserver(call: str, patiently: Callable[[], None]) -> None:
    cluster = Cluster(granted())
    cluster.kubernetes.hold(call)
    assert await cluster.bind() == NO_KUBERNETES
    cluster.kubernetes.release()
    assert cluster.kubernetes.bindings == []
    patiently()
    assert await cluster.bind() == ""


@pytest.mark.parametrize(
    ("slow", "other", "error"),
    [
        (deadline.kubernetes_in_time, deadline.slurm_in_time, Unavailable),
        (deadline.slurm_in_time, deadline.kubernetes_in_time, OutcomeUnknown),
    ],
)
async def test_error_names_the_system_that_used_up_the_time(
    slow: InTime, other: InTime, error: type[Exception]
) -> None:
    async def ask_both() -> None:
        with deadline.questions_in_time():
            await slow(asyncio.sleep(0.9 * deadline._QUESTIONS_S))
            await other(asyncio.Event().wait())

    with pytest.raises(error):
        await ask_both()


async def test_bind_does_not_blame_slurm_for_a_slow_kube_apiserver() -> None:
    cluster = await guests(unmanaged())
    cluster.slurm.silent = True
    cluster.kubernetes.hold("list pods")
    asked = cluster.kubernetes.calls.count("list pods")
    bind = asyncio.ensure_future(cluster.bind(unmanaged(), "n1"))
    await until(lambda: cluster.kubernetes.calls.count("list pods") > asked)
    await asyncio.sleep(0.9 * deadline._QUESTIONS_S)
    cluster.kubernetes.release()
    assert await bind == NO_KUBERNETES
    assert cluster.listeners.occupancy.unknown(unmanaged()) == UNKNOWN


async def test_bind_of_unmanaged_pod_dates_silence_of_slurm(patiently: Callable[[], None]) -> None:
    cluster = await guests(unmanaged())
    cluster.slurm.silent = True
    told = [await cluster.bind(unmanaged(), "n1") for _ in range(2)]
    assert SILENT.fullmatch(told[0])
    assert told[1] == told[0]
    cluster.slurm.silent = False
    patiently()
    assert await cluster.bind(unmanaged(), "n1") == ""


async def test_filter_and_bind_say_the_same_about_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.unmanaged.free_capacity._FAILURE_S", 0.01)
    cluster = await guests(unmanaged())
    cluster.slurm.silent = True
    told = await cluster.bind(unmanaged(), "n1")
    answer = await cluster.filter(unmanaged(), "n1")
    assert answer["FailedAndUnresolvableNodes"] == {"n1": told}


@pytest.mark.parametrize("error", [Unreachable("down", number=1800), OutcomeUnknown("silent")])
async def test_text_is_the_same_for_every_kind_of_outage(error: Exception) -> None:
    cluster = await guests(unmanaged())
    cluster.slurm.silent = True
    told = await cluster.bind(unmanaged(), "n1")
    cluster.slurm.silent, cluster.slurm.error = False, error  # type: ignore[assignment]
    assert await cluster.bind(unmanaged(), "n1") == told


async def test_message_repeats_the_time_reported_by_another_replica() -> None:
    """If each replica reported a time of its own, the message would alternate between two replicas.
    kube-scheduler would then retry at once after each change."""
    told = "0/1 nodes are available: 1 Slurm has not answered since 03:36 UTC; free capacity of its"
    asks = unmanaged()
    asks["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": told}]}
    cluster = await guests(asks)
    cluster.slurm.silent = True
    assert "since 03:36 UTC;" in await cluster.bind(asks, "n1")


async def test_silence_begins_after_the_last_answer() -> None:
    cluster = await guests(unmanaged())
    before = datetime.now(UTC)
    cluster.slurm.silent = True
    told = await cluster.bind(unmanaged(), "n1")
    assert any(f"{when:%H:%M} UTC" in told for when in (before, datetime.now(UTC)))


async def test_rejected_token_is_not_reported_as_silence(patiently: Callable[[], None]) -> None:
    patiently()
    cluster = await guests(unmanaged())
    cluster.slurm.error = BadToken("the token expired", number=6001)
    assert "the token expired" in await cluster.bind(unmanaged(), "n1")
    assert cluster.listeners.occupancy.unknown(unmanaged()) == UNKNOWN


# A Binding in progress at the deadline


async def test_a_late_binding_is_reported_to_the_next_call(patiently: Callable[[], None]) -> None:
    cluster = Cluster(granted())
    cluster.kubernetes.hold("bind_pod")
    assert [await cluster.bind(), await cluster.bind()] == [NO_KUBERNETES, NO_KUBERNETES]
    patiently()
    third = asyncio.ensure_future(cluster.bind())
    await asyncio.sleep(0)
    cluster.kubernetes.release()
    assert await third == ""
    assert len(cluster.kubernetes.bindings) == 1
    assert cluster.kubernetes.calls.count("bind_pod") == 1
    assert await cluster.bind() == ""


async def test_a_late_failure_of_a_binding_is_no_unhandled_error() -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: unhandled.append(error))
    cluster = Cluster(granted())
    cluster.kubernetes.hold("bind_pod")
    assert await cluster.bind() == NO_KUBERNETES
    cluster.kubernetes.outage(Unavailable(0, "it broke off"), "bind_pod")
    cluster.kubernetes.release()
    await asyncio.sleep(0.1)
    gc.collect()
    assert "bind_pod" in cluster.kubernetes.calls
    assert unhandled == []


async def test_late_binding_reserves_its_capacity_until_its_answer(
    patiently: Callable[[], None],
) -> None:
    """Two Pods need 5 CPUs each, and the node has 8 CPUs, so only one Pod may be bound."""
    pods = [unmanaged(name, cpu="5") for name in ("first", "second")]
    cluster = await guests(*pods)
    cluster.kubernetes.hold("bind_pod")
    assert await cluster.bind(pods[0], "n1") == NO_KUBERNETES
    assert await cluster.bind(pods[1], "n1") == NO_KUBERNETES
    cluster.kubernetes.release()
    patiently()
    assert await cluster.bind(pods[0], "n1") == ""
    assert "too little room" in await cluster.bind(pods[1], "n1")
    assert [node for node, _ in cluster.kubernetes.bindings] == ["n1"]


async def test_no_binding_is_sent_after_the_answer() -> None:
    cluster = Cluster(granted())
    cluster.kubernetes.hold("read_pod")
    assert await cluster.bind() == NO_KUBERNETES
    cluster.kubernetes.release()
    await asyncio.sleep(deadline._ANSWER_S)
    assert "bind_pod" not in cluster.kubernetes.calls
