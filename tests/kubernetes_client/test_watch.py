"""Tests that a list followed by a watch reports each change, even if kube-apiserver ends watches,
forgets versions, or sends parts of events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest
from structlog.testing import capture_logs

from extender.execution.dispatcher import Dispatcher
from extender.execution.pod_watch import PodWatch
from extender.pod_request.scope import Scope
from extender.pod_request.translation import TranslationConfig
from extender.policy.current import CurrentPolicy
from extender.record.events import Event, PodObserved, PodVanished
from kubernetes_client import watch
from kubernetes_client.errors import Expired, KubernetesError, Unavailable
from kubernetes_client.protocol import Kubernetes
from kubernetes_client.watch import ResourceWatch
from service import cooperative
from service.health import Health
from tests.builders import TRANSLATION, Manifest, node_manifest, pod_manifest
from tests.service.turns import turns_of_others
from wellknown.pauses import Pauses

Step = bytes | Exception | None

DOWN = Unavailable(0, "kube-apiserver does not answer")
EXPIRED = Expired(410, "too old resource version: 5 (9)")
BROKEN_OFF: Manifest = {}
"""Stands in a list for the page at which kube-apiserver stops answering."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PAUSES", Pauses(0.001, 0.002))


class FakeApi:
    """Answers lists and watches by a script. After the script's last watch, the next watch stays silent.

    The script of a list is its objects and its version. The list comes in pages of `page` objects. The
    script of a watch is a sequence of steps: pieces of the stream, an exception, or None. An exception
    as the first step is raised when the watch opens. A later exception is raised in the stream. At None,
    the stream becomes silent.
    """

    async def cluster_uid(self) -> str:
        return "cluster-1"

    def __init__(
        self, lists: Sequence[tuple[list[Manifest], str] | Exception], *watches: Sequence[Step]
    ) -> None:
        self._lists = list(lists)
        self._watches = list(watches)
        self.idle = asyncio.Event()
        """Set as soon as all steps of the script are done."""
        self.since: list[str] = []
        self.selectors: set[tuple[str, str | None]] = set()
        self.page = 1
        self.pages_given = 0
        self.on_open: Callable[[], None] = lambda: None
        self.latest: str | Exception = "99"
        """The current version of the server, or the error that a read of the version raises."""

    async def latest_version(self, _kind: str) -> str:
        if isinstance(self.latest, Exception):
            raise self.latest
        return self.latest

    async def pages(self, kind: str, selector: str | None) -> AsyncIterator[Manifest]:
        self.selectors.add((kind, selector))
        listed = self._lists.pop(0)
        if isinstance(listed, Exception):
            raise listed
        items, version = listed
        starts = range(0, len(items), self.page)
        parts: list[list[Manifest] | None] = [items[at : at + self.page] for at in starts]
        for part in parts or [None]:
            if part == [BROKEN_OFF]:
                raise DOWN
            self.pages_given += 1
            yield {"items": part, "metadata": {"resourceVersion": version}}

    @asynccontextmanager
    async def watch(
        self, kind: str, selector: str | None, version: str, _seconds: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.selectors.add((kind, selector))
        self.since.append(version)
        self.on_open()
        steps = self._watches.pop(0) if self._watches else None
        if steps and isinstance(steps[0], Exception):
            raise steps[0]
        yield self._stream(steps)

    async def _stream(self, steps: Sequence[Step] | None) -> AsyncIterator[bytes]:
        if steps is None:
            self.idle.set()
            await asyncio.Event().wait()
        for step in steps or ():
            if isinstance(step, Exception):
                raise step
            if step is None:
                await asyncio.Event().wait()
            else:
                yield step


def item(uid: str, version: int, **more: Any) -> Manifest:
    return {"metadata": {"uid": uid, "name": f"name of {uid}", "resourceVersion": str(version)}} | more


def event(kind: str, uid: str = "", version: int = 0, **more: Any) -> bytes:
    found = {"metadata": {"resourceVersion": str(version)}} if kind == "BOOKMARK" else item(uid, version)
    return orjson.dumps({"type": kind, "object": found | more}) + b"\n"


def error(code: int) -> bytes:
    status = {"kind": "Status", "status": "Failure", "code": code, "message": "it failed"}
    return orjson.dumps({"type": "ERROR", "object": status}) + b"\n"


def _watch(api: FakeApi, kind: str = "pods", **options: Any) -> ResourceWatch:
    return ResourceWatch(cast(Kubernetes, api), kind, **options)


async def told(api: FakeApi, watch: ResourceWatch | None = None) -> list[str]:
    """Returns all changes that the watch reports until the script is done. "a6" means that version 6 of
    the object a exists. "-a7" and "-a" mean that a is deleted."""
    watch = watch or _watch(api)
    seen: list[str] = []

    async def read() -> None:
        await watch.list()
        async for change in watch.changes():
            metadata = change.manifest["metadata"]
            version = metadata.get("resourceVersion", "")
            seen.append(f"{'-' if change.gone else ''}{metadata['uid']}{version}")

    await _until_idle(read(), api)
    return seen


async def _until_idle(reading: Any, api: FakeApi) -> None:
    reader, idle = asyncio.ensure_future(reading), asyncio.ensure_future(api.idle.wait())
    await asyncio.wait((reader, idle), timeout=10, return_when=asyncio.FIRST_COMPLETED)
    if reader.done():
        reader.result()
    assert api.idle.is_set()
    for task in (reader, idle):
        task.cancel()
    await asyncio.gather(reader, idle, return_exceptions=True)


EMPTY: tuple[list[Manifest], str] = ([], "5")
STREAM = b"".join(
    [
        event("ADDED", "a", 6, labels={"name": "Grüße\u2028"}),
        event("BOOKMARK", version=7),
        event("MODIFIED", "a", 8),
        event("ADDED", "b", 9),
        event("DELETED", "a", 10),
    ]
)
IN_STREAM = ["a6", "a8", "b9", "-a10"]


# One watch


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
async def test_events_are_read_however_the_stream_is_cut(size: int) -> None:
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert await told(FakeApi([EMPTY], pieces)) == IN_STREAM


async def test_empty_pieces_of_a_stream_are_ignored() -> None:
    assert await told(FakeApi([EMPTY], [b"", STREAM, b""])) == IN_STREAM


async def test_first_list_returns_the_objects() -> None:
    api = FakeApi([([item("a", 3)], "5")])
    watch = _watch(api)
    assert await watch.list() == (item("a", 3),)


async def test_failed_first_list_raises_the_error() -> None:
    watch = _watch(FakeApi([DOWN]))
    with pytest.raises(Unavailable):
        await watch.list()


async def test_kind_and_selector_go_with_every_request() -> None:
    api = FakeApi([EMPTY, EMPTY], [error(410)])
    await told(api, _watch(api, "nodes", field_selector="spec.x=y"))
    assert api.selectors == {("nodes", "spec.x=y")}


# Ended and resumed watches


A6, A7 = event("ADDED", "a", 6), event("MODIFIED", "a", 7)
Resumed = tuple[list[list[Step]], list[str], list[str]]
"""The watches of the script, the expected changes, and the versions from which the watches must
start."""
RESUMED: dict[str, Resumed] = {
    "where the list ended": ([], [], ["5"]),
    "after the last event": ([[A6], [A7]], ["a6", "a7"], ["5", "6", "7"]),
    "after a bookmark": ([[A6, event("BOOKMARK", version=40)]], ["a6"], ["5", "40"]),
    "after an error event": ([[A6 + error(500)], [A7]], ["a6", "a7"], ["5", "6", "7"]),
    "before half an event": ([[A6, A7[:30]], [A7]], ["a6", "a7"], ["5", "6", "7"]),
    "after no JSON": ([[b"upstream connect error\n"], [A6]], ["a6"], ["5", "5", "6"]),
}


@pytest.mark.parametrize(("watches", "seen", "since"), RESUMED.values(), ids=RESUMED)
async def test_watch_is_resumed_at_its_version(
    watches: list[list[Step]], seen: list[str], since: list[str]
) -> None:
    api = FakeApi([EMPTY], *watches)
    assert await told(api) == seen
    assert api.since == since


@pytest.mark.parametrize(
    "failure",
    [DOWN, KubernetesError(403, "forbidden"), TimeoutError(), ConnectionResetError("reset by peer")],
)
async def test_after_any_error_the_watch_goes_on_from_the_last_version(failure: Exception) -> None:
    """The error is raised when the watch opens, after an event, and several times in a row. The reader
    never lists the objects again."""
    api = FakeApi([EMPTY], [failure], [A6, failure], [failure], [failure], [A7])
    assert await told(api) == ["a6", "a7"]
    assert api.since == ["5", "5", "6", "6", "6", "7"]


@pytest.fixture
def _soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SILENCE_S", 0.01)


SILENT: dict[str, Resumed] = {
    "a dead connection": ([[event("BOOKMARK", version=6), None], [A7, None]], ["a7"], ["5", "6", "7"]),
    "no bookmarks": ([[None], [None], [A6, None]], ["a6"], ["5", "5", "5", "6"]),
}


@pytest.mark.parametrize(("watches", "seen", "since"), SILENT.values(), ids=SILENT)
@pytest.mark.usefixtures("_soon_silent")
async def test_silent_watch_is_opened_again_from_its_version(
    watches: list[list[Step]], seen: list[str], since: list[str]
) -> None:
    api = FakeApi([([item("z", 3)], "5")], *watches)
    assert await told(api) == seen
    assert api.since == since


@pytest.mark.parametrize(("own", "latest"), [("30", "9"), ("5", "v9"), ("v5", "9")])
@pytest.mark.usefixtures("_soon_silent")
async def test_objects_are_listed_again_if_a_version_is_smaller_or_no_number(
    own: str, latest: str
) -> None:
    """If kube-apiserver is restored from a backup, its version is smaller than the reader's version.
    kube-apiserver would then report no change until the reader's version is reached."""
    api = FakeApi([([item("a", 3)], own), ([item("b", 4)], "9")], [None], [event("ADDED", "c", 10)])
    api.latest = latest
    assert await told(api) == ["b4", "-a", "c10"]
    assert api.since == [own, "9", "10"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the pauses between calls. The pauses take no time."""
    monkeypatch.setattr(watch, "_PAUSES", Pauses(1.0, 16.0))
    given: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        given.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", counted)
    return given


async def test_watches_that_end_at_once_are_reopened_after_a_pause(pauses: list[float]) -> None:
    await told(FakeApi([EMPTY], [], [], []))
    assert pauses == [1.0] * 3


async def test_a_list_or_a_watch_that_succeeds_resets_the_delay(pauses: list[float]) -> None:
    await told(FakeApi([EMPTY, DOWN, DOWN, EMPTY], [DOWN], [DOWN], [error(410)], [DOWN], [], [DOWN]))
    assert pauses == [2.0, 4.0, 2.0, 4.0, 8.0, 1.0, 2.0, 1.0, 2.0]


async def test_lists_become_rarer_while_every_watch_expires_at_once(pauses: list[float]) -> None:
    ends = event("ADDED", "a", 6) + error(410)
    await told(FakeApi([EMPTY] * 6, *([error(410)],) * 4, [ends]))
    assert pauses == [2.0, 1.0, 4.0, 1.0, 8.0, 1.0, 16.0, 1.0, 2.0, 1.0]


# Trying whether a watch opens


@pytest.mark.parametrize("answer", [[], [EXPIRED]], ids=["opened", "expired"])
async def test_try_watch_succeeds_if_a_watch_opens_or_has_expired(answer: Sequence[Step]) -> None:
    api = FakeApi([EMPTY], answer)
    watch = _watch(api)
    await watch.list()
    await watch.try_watch()
    assert api.since == ["5"]


async def test_try_watch_fails_if_a_watch_is_refused() -> None:
    watch = _watch(FakeApi([EMPTY], [DOWN]))
    with pytest.raises(Unavailable):
        await watch.try_watch()


# Versions that have expired: a new list

EXPIRIES: list[Sequence[Step]] = [[error(410)], [EXPIRED]]


@pytest.mark.parametrize("expiry", EXPIRIES, ids=["as an event", "as HTTP"])
async def test_after_410_every_object_is_listed_and_reported_again(
    expiry: Sequence[Step],
) -> None:
    again: tuple[list[Manifest], str] = ([item("a", 20), item("b", 21)], "30")
    api = FakeApi([([item("a", 3)], "5"), again], expiry, [event("ADDED", "c", 31)])
    assert await told(api) == ["a20", "b21", "c31"]
    assert api.since == ["5", "30", "31"]


async def test_object_deleted_during_a_gap_is_reported_as_gone() -> None:
    """Objects that the reader knows from the list or from events are reported as deleted. An object
    whose deletion was already reported is not reported again."""
    events = [event("ADDED", "b", 6), event("ADDED", "c", 7), event("DELETED", "c", 8), error(410)]
    api = FakeApi([([item("a", 3)], "5"), ([], "30")], events)
    before, gone = (seen := await told(api))[:3], seen[3:]
    assert before == ["b6", "c7", "-c8"]
    assert sorted(gone) == ["-a", "-b"]


async def test_deletion_is_reported_before_a_new_object_of_the_same_name() -> None:
    """The reader of Nodes identifies Nodes by name. If the deletion came later, the reader would drop
    the new Node."""
    anew = item("new", 20)
    anew["metadata"]["name"] = item("old", 3)["metadata"]["name"]
    api = FakeApi([([item("old", 3)], "5"), ([item("z", 9), anew], "30")], [error(410)])
    assert await told(api) == ["z9", "-old", "new20"]


async def test_same_name_in_two_namespaces_means_two_objects() -> None:
    pods = [pod_manifest(uid=uid, namespace=uid, name="same") for uid in ("here", "there")]
    api = FakeApi([([pods[0]], "5"), (pods[::-1], "30")], [error(410)])
    assert [each.rstrip("0123456789") for each in await told(api)] == ["there", "here"]


async def test_second_list_is_reported_page_by_page() -> None:
    """All pages of a large list together would need too much memory: a gigabyte for 50,000 objects."""
    api = FakeApi([EMPTY, ([item(uid, 20) for uid in "abc"], "30")], [error(410)])
    watch, given = _watch(api), []
    await watch.list()
    before, changes = api.pages_given, watch.changes()
    for _ in "abc":
        await anext(changes)
        given.append(api.pages_given - before)
    await cast(Any, changes).aclose()
    assert given == [1, 2, 3]


async def test_interrupted_list_is_repeated_and_deletions_are_reported() -> None:
    half, whole = ([item("a", 20), BROKEN_OFF], "30"), ([item("b", 33)], "40")
    api = FakeApi([EMPTY, half, whole], [error(410)])
    assert await told(api) == ["a20", "b33", "-a"]
    assert api.since == ["5", "40"]


PIECE = b"".join(event("ADDED", str(number), 20) for number in range(1000))


@pytest.mark.parametrize(("step", "least"), [(error(410), 999), (PIECE, 990)], ids=["list", "piece"])
async def test_other_tasks_run_while_a_thousand_objects_are_read(
    step: bytes, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooperative, "_TURN_S", 0.0)
    items = [item(str(number), 20) for number in range(1000)]
    api = FakeApi([(items, "5"), (items, "30")], [step])
    api.page = len(items)
    watch = _watch(api)
    changes = watch.changes()

    async def read() -> None:
        for _ in items:
            await anext(changes)

    assert await turns_of_others(watch.list()) >= 999
    assert await turns_of_others(read()) >= least
    await cast(Any, changes).aclose()


async def test_deleted_object_is_reported_with_its_names() -> None:
    pod, node = pod_manifest(uid="u1", namespace="ml", name="train"), node_manifest("n1")
    for manifest, names in ((pod, {"uid", "namespace", "name"}), (node, {"uid", "name"})):
        api = FakeApi([([manifest], "5"), ([], "30")], [error(410)])
        watch = _watch(api)
        await watch.list()
        gone = await anext(changes := watch.changes())
        await cast(Any, changes).aclose()
        assert (gone.gone, gone.seen) == (True, False)
        metadata = manifest["metadata"]
        assert gone.manifest == {"metadata": {name: metadata[name] for name in names}}


async def test_a_second_list_that_fails_is_repeated() -> None:
    api = FakeApi([EMPTY, DOWN, DOWN, ([item("a", 20)], "30")], [error(410)])
    assert await told(api) == ["a20"]


async def test_a_watch_may_expire_again_and_again() -> None:
    lists: list[tuple[list[Manifest], str]] = [([item("a", 20)], str(30 + i)) for i in range(3)]
    api = FakeApi([EMPTY, *lists], *([error(410)],) * 3)
    assert await told(api) == ["a20"] * 3
    assert api.since == ["5", "30", "31", "32"]


# Problems


async def test_start_and_end_of_a_problem_are_reported() -> None:
    said: list[KubernetesError | None] = []
    api = FakeApi([EMPTY], [DOWN], [event("ADDED", "a", 6), TimeoutError()])
    await told(api, _watch(api, on_problem=said.append))
    down, opened, broken, opened_again = said
    assert (down, opened, opened_again) == (DOWN, None, None)
    assert isinstance(broken, Unavailable)
    assert "TimeoutError" in str(broken)


async def test_failed_list_after_410_is_a_problem() -> None:
    said: list[KubernetesError | None] = []
    api = FakeApi([EMPTY, DOWN, EMPTY], [error(410)])
    await told(api, _watch(api, on_problem=said.append))
    assert said == [None, DOWN, None]


@pytest.mark.parametrize("heard", [[], [A6]], ids=["at all", "after an event"])
@pytest.mark.usefixtures("_soon_silent")
async def test_a_silent_watch_is_no_problem(heard: Sequence[Step]) -> None:
    said: list[KubernetesError | None] = []
    api = FakeApi([EMPTY], [*heard, None], [None], [None])
    await told(api, _watch(api, "events", on_problem=said.append))
    assert said == [None] * 4


@pytest.mark.usefixtures("_soon_silent")
async def test_a_silent_server_and_a_restored_one_are_problems() -> None:
    for latest, words in (("4", "went back from version 5 to 4"), (DOWN, str(DOWN))):
        said: list[KubernetesError | None] = []
        api = FakeApi([EMPTY, EMPTY], [None], [event("ADDED", "a", 6)])
        api.latest = latest
        await told(api, _watch(api, on_problem=said.append))
        before, problem, after = said[:3]
        assert isinstance(problem, Unavailable)
        assert (before, after) == (None, None)
        assert words in str(problem)


# The Pods' reader


class Heard:
    """Replaces the extender's dispatcher, and records the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, event: Event) -> None:
        self.events.append(event)


async def followed(
    api: FakeApi, health: Health, translation: TranslationConfig = TRANSLATION
) -> list[Event]:
    policy = CurrentPolicy(None, "open")
    watch = PodWatch(cast(Kubernetes, api), lambda: translation, health, policy)
    heard = Heard()
    await watch.list()
    await _until_idle(watch.run(cast(Dispatcher, heard)), api)
    return heard.events


def pod_event(kind: str, manifest: Manifest) -> bytes:
    return orjson.dumps({"type": kind, "object": manifest}) + b"\n"


async def test_only_pods_of_slurm_scheduler_are_requested() -> None:
    api = FakeApi([EMPTY])
    await followed(api, Health())
    assert api.selectors == {("pods", "spec.schedulerName=slurm-scheduler")}


async def test_pod_out_of_scope_is_not_reported_as_gone() -> None:
    ours, other = pod_manifest(uid="u1", namespace="ml"), pod_manifest(uid="u2", gates=())
    api = FakeApi([([ours, other], "5"), ([], "30")], [error(410)])
    gone = PodVanished("u1", seen=False)
    assert await followed(api, Health(), TranslationConfig(scope=Scope.of(["ml"]))) == [gone]


async def test_pods_are_reported_as_observed_and_as_vanished() -> None:
    manifest = pod_manifest(uid="u1", version="6")
    api = FakeApi([EMPTY], [pod_event("ADDED", manifest), pod_event("DELETED", manifest)])
    observed, vanished = await followed(api, Health())
    assert isinstance(observed, PodObserved)
    assert (observed.pod.uid, observed.pod.resource_version) == ("u1", "6")
    assert isinstance(vanished, PodVanished)
    assert (vanished.uid, vanished.seen) == ("u1", True)
    assert vanished.last == observed.pod  # the event has the Pod's last known state


async def test_a_broken_watch_shows_in_the_health_report_while_it_is_broken() -> None:
    """A broken watch reports no changes, so the health report must not depend on a change."""
    health = Health()
    reports: list[Any] = []
    api = FakeApi([EMPTY], [DOWN], [DOWN])
    api.on_open = lambda: reports.append(health.problems())
    with capture_logs() as logs:
        await followed(api, health)
    assert reports == [{}, {"Kubernetes": str(DOWN)}, {"Kubernetes": str(DOWN)}]
    assert [line["event"] for line in logs] == ["problem", "problem ended"]
    assert health.problems() == {}
