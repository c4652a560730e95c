"""Contract tests of lists and watches, for each kube-apiserver behind `protocol.Kubernetes`."""

import pytest

from kubernetes_client.protocol import Manifest
from kubernetes_client.watch import ResourceWatch
from tests.kubernetes_client.bench import Bench
from tests.kubernetes_client.test_contract import name_of, version


async def now(bench: Bench) -> str:
    """Returns the current resourceVersion, from a new list of Pods."""
    listed = await bench.kubernetes.list("pods", bench.selector)
    return str(listed["metadata"]["resourceVersion"])


# -- lists


async def test_list_has_a_version_and_sorted_objects_without_kind(bench: Bench) -> None:
    names = [bench.name() for _ in range(2)]
    for name in reversed(names):
        bench.pod(name)
    listed = await bench.kubernetes.list("pods", bench.selector)
    assert [name_of(each) for each in listed["items"]] == names
    assert not any({"kind", "apiVersion"} & each.keys() for each in listed["items"])
    assert int(version(listed)) >= max(int(version(each)) for each in listed["items"])


async def test_list_has_the_pods_that_match_all_terms_of_a_selector(bench: Bench) -> None:
    free, bound, over = bench.pod(), bench.pod(node="nowhere"), bench.pod(node="nowhere")
    bench.end(name_of(over), "Succeeded")
    for selector, fitting in (
        ("spec.nodeName=nowhere", [bound, over]),
        ("spec.nodeName=", [free]),
        ("spec.nodeName!=", [bound, over]),
        ("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", [bound]),
        ("spec.schedulerName!=default-scheduler", [free, bound, over]),
    ):
        listed = await bench.kubernetes.list("pods", f"{bench.selector},{selector}")
        assert [name_of(each) for each in listed["items"]] == [name_of(each) for each in fitting]


async def test_all_nodes_are_listed(bench: Bench) -> None:
    names = {name_of(bench.node()) for _ in range(3)}
    pages = [page async for page in bench.kubernetes.pages("nodes", None)]
    assert names <= {name_of(each) for page in pages for each in page["items"]}


@pytest.mark.parametrize(("pods", "sizes"), [(0, [0]), (2, [2]), (5, [2, 2, 1])])
async def test_a_long_list_comes_in_parts_of_one_version(
    bench: Bench, pods: int, sizes: list[int]
) -> None:
    names = [name_of(bench.pod()) for _ in range(pods)]
    pages = []
    async for page in bench.kubernetes.pages("pods", bench.selector):
        pages.append(page)
        bench.pod()
    assert [len(page["items"] or ()) for page in pages] == sizes
    assert [name_of(each) for page in pages for each in page["items"] or ()] == names
    assert len({version(page) for page in pages}) == 1


async def test_the_latest_version_is_that_of_a_list_or_newer(bench: Bench) -> None:
    for kind in ("pods", "events"):
        listed = await bench.kubernetes.list(kind, None)
        bench.pod()
        assert int(await bench.kubernetes.latest_version(kind)) > int(version(listed))


async def test_server_reports_whether_it_serves_a_kind(bench: Bench) -> None:
    assert await bench.kubernetes.serves("persistentvolumeclaims")
    assert await bench.kubernetes.serves("resourceclaims") is bench.serves_claims


# -- watches


async def test_watch_reports_changes_after_its_version_in_order(bench: Bench) -> None:
    before = bench.pod()
    since = await now(bench)
    created = bench.pod()
    changed = bench.edit("pods", name_of(before), {"metadata": {"labels": {"x": "y"}}})
    await bench.kubernetes.delete_pod("default", name_of(created), {}, 30)
    told = await bench.events(since, 4)
    assert told[:2] == [("ADDED", created), ("MODIFIED", changed)]
    assert [kind for kind, _ in told[2:]] == ["MODIFIED", "DELETED"]
    ends, gone = [manifest["metadata"] for _, manifest in told[2:]]
    assert ends["deletionGracePeriodSeconds"] == 0
    assert ends["uid"] == gone["uid"] == created["metadata"]["uid"]
    assert int(version(changed)) < int(ends["resourceVersion"]) < int(gone["resourceVersion"])
    assert await bench.events(ends["resourceVersion"], 1) == told[3:]


async def test_watch_without_a_version_starts_with_the_existing_objects(bench: Bench) -> None:
    """A program that tries to open a watch before its first list has no version yet."""
    there = [bench.pod() for _ in range(2)]
    assert await bench.events("", 2) == [("ADDED", pod) for pod in there]


async def test_open_watch_reports_new_changes(bench: Bench) -> None:
    told = await bench.events(await now(bench), 1, meanwhile=bench.pod)
    assert [kind for kind, _ in told] == ["ADDED"]


async def test_object_is_added_and_deleted_as_the_selector_matches(bench: Bench) -> None:
    pod = bench.pod()
    since = await now(bench)
    await bench.kubernetes.bind_pod("default", name_of(pod), "nowhere", {})
    bound = await bench.kubernetes.read_pod("default", name_of(pod))
    over = bench.end(name_of(pod), "Failed")
    bench.edit("pods", name_of(pod), {"metadata": {"labels": {"x": "y"}}})
    last = bench.pod(node="nowhere")
    selector = f"{bench.selector},spec.nodeName!=,status.phase!=Failed"
    came, went, other = await bench.events(since, 3, selector)
    assert came == ("ADDED", bound)
    kind, gone = went
    assert (kind, gone["status"]["phase"], version(gone)) == ("DELETED", "Pending", version(over))
    assert other == ("ADDED", last)


@pytest.mark.parametrize("opened_before", [True, False])
async def test_watch_ends_with_a_bookmark_if_the_version_is_newer(
    bench: Bench, opened_before: bool
) -> None:
    """A change of any Pod makes the version newer, even a Pod that the watch does not select. If no Pod
    changes during the watch, no bookmark is sent."""
    since, mine, bench.scheduler = await now(bench), bench.selector, "another"
    changed = list[Manifest]()

    def change() -> None:
        changed.append(bench.pod())

    if not opened_before:
        change()
    meanwhile = change if opened_before else lambda: None
    told = await bench.events(since, 99, mine, bench.short_s, meanwhile)
    bookmarks = {("BOOKMARK", version(changed[0]))} if opened_before else set()
    assert {(kind, version(manifest)) for kind, manifest in told} == bookmarks  # possibly repeated


async def test_a_watch_of_events_ends_without_a_bookmark(bench: Bench) -> None:
    since, event = await now(bench), {"involvedObject": {"kind": "Pod", "namespace": "default"}}
    async with bench.kubernetes.watch("events", "reason=None", since, bench.short_s) as pieces:
        await bench.kubernetes.create_event("default", event | {"metadata": {"name": bench.name()}})
        assert b"".join([piece async for piece in pieces]) == b""


async def test_a_watch_from_too_old_a_version_has_expired(bench: Bench) -> None:
    ((kind, status),) = await bench.events(bench.too_old(), 9)
    assert (kind, status["code"]) == ("ERROR", 410)


async def test_a_list_and_watch_misses_nothing(bench: Bench) -> None:
    before = bench.pod()
    watch = ResourceWatch(bench.kubernetes, "pods", bench.selector)
    assert [name_of(each) for each in await watch.list()] == [name_of(before)]
    created = bench.pod()
    bench.remove("pods", name_of(before))
    seen = []
    async for change in watch.changes():
        seen.append((name_of(change.manifest), change.gone))
        if change.gone:
            break
    leaving = name_of(before)
    assert seen == [(name_of(created), False), (leaving, False), (leaving, True)]
