"""Tests of the watch of claims: a new, changed or deleted claim reaches the Pods that refer to the
claim."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from extender.execution.claim_watch import ClaimWatch
from extender.execution.dispatcher import Dispatcher
from extender.execution.pod_watch import PodWatch
from extender.explain.sentences import sentence
from extender.pod_request.constraints.node_constraints import NodeConstraints
from extender.pod_request.devices.claims import Claims, Need, Verdict
from extender.pod_request.pod import Pod
from extender.pod_request.translation import TranslationConfig
from extender.policy.current import CurrentPolicy
from extender.record.events import PodObserved
from kubernetes_client.errors import KubernetesError, Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from tests.builders import PREFIX, Manifest, pod_manifest
from tests.eventually import until
from wellknown.pauses import Pauses

LATE: Manifest = {
    "metadata": {"name": "late", "uid": "c1", "resourceVersion": "6"},
    "volumeBindingMode": "WaitForFirstConsumer",
}
VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
MISSING = 'PersistentVolumeClaim "data" not found; the extender requests no job until the claim exists'
FORBIDDEN = Rejected(403, "persistentvolumeclaims is forbidden")
NO_WATCH = Rejected(403, "persistentvolumeclaims cannot be watched")


def claim(name: str = "data", storage_class: str = "late", **metadata: Any) -> Manifest:
    named = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {"metadata": named | metadata, "spec": {"storageClassName": storage_class}}


def on_a_volume() -> tuple[Manifest, Manifest]:
    """Returns a bound claim, and the volume of the claim. Only some Nodes can reach the volume."""
    bound = claim(annotations={"pv.kubernetes.io/bind-completed": "yes"})
    bound["spec"] |= {"volumeName": "pv"}
    terms = [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
    spec = {
        "claimRef": {"namespace": "default", "name": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    return bound, {"metadata": {"name": "pv", "uid": "pv", "resourceVersion": "8"}, "spec": spec}


CALLS = {"lists": "pages", "groups": "serves", "watches": "watch"}


class Api(InMemoryKubernetes):
    """Kubernetes in memory. For each kind, a parameter gives the objects, or the error of each list."""

    def __init__(self, **lists: list[Manifest] | Exception) -> None:
        super().__init__(unserved={"resourceclaims"})
        for kind, listed in ({"storageclasses": [LATE]} | lists).items():
            if isinstance(listed, KubernetesError):
                self.fail("lists", kind, listed)
            elif isinstance(listed, list):
                self.put(kind, *listed)

    def fail(self, at: str, kind: str, error: KubernetesError | None) -> None:
        """Makes "lists", "groups" or "watches" of a kind fail. With None as the error, the calls work
        again."""
        self.outage(error, f"{CALLS[at]} {kind}")

    async def asked(self, at: str, kind: str, times: int) -> None:
        """Waits until `times` more of these requests about the kind have ended."""
        call = f"{CALLS[at]} {kind}"
        times += self.calls.count(call)
        await until(lambda: self.calls.count(call) > times)  # so that the last request has ended


def _sentence(pod: Pod) -> str | None:
    obstacle = pod.scheduling.obstacle
    return None if obstacle is None else sentence(obstacle)


class Site:
    """A Pod that refers to the claim "data", and the events about the Pod for the ledger."""

    def __init__(self, api: Api, *pods: Manifest) -> None:
        self.api, self.health = api, Health()
        api.put("pods", *(pods or (pod_manifest(volumes=VOLUMES),)))
        claims = ClaimWatch(api, self.health)
        policy = CurrentPolicy(None, "open")
        translation = TranslationConfig()
        self.pods = PodWatch(api, lambda: translation, self.health, policy, claims)
        self.told: asyncio.Queue[PodObserved] = asyncio.Queue()

    async def obstacle(self) -> str | None:
        """Returns the Pod's obstacle after all objects are listed."""
        (pod,) = await self.pods.list()
        return _sentence(pod)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        dispatcher = cast(Dispatcher, SimpleNamespace(feed=self.told.put_nowait))
        running = asyncio.create_task(self.pods.run(dispatcher))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def next_obstacle(self) -> str | None:
        return _sentence((await self.told.get()).pod)


@pytest.fixture(autouse=True)
def _tries_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.execution.claim_watch._AGAIN_S", 0.001)


async def test_missing_claim_is_an_obstacle_until_it_appears() -> None:
    site = Site(Api())
    assert await site.obstacle() == MISSING
    async with site.following():
        site.api.put("persistentvolumeclaims", claim("another"))
        site.api.put("persistentvolumeclaims", claim())
        assert await site.next_obstacle() is None
        site.api.remove("persistentvolumeclaims", "data")
        assert await site.next_obstacle() == MISSING
    assert site.told.empty()


async def test_new_storage_class_wakes_the_pods_of_its_claims() -> None:
    site = Site(Api(persistentvolumeclaims=[claim()], storageclasses=[]))
    assert "does not exist" in (await site.obstacle() or "")
    async with site.following():
        site.api.put("storageclasses", LATE)
        assert await site.next_obstacle() is None


async def test_new_volume_wakes_the_pod_and_sets_its_nodes() -> None:
    bound, volume = on_a_volume()
    site = Site(Api(persistentvolumeclaims=[bound]))
    assert '"pv", not found' in (await site.obstacle() or "")
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    async with site.following():
        site.api.put("persistentvolumes", volume)
        told = (await site.told.get()).pod
    assert (told.scheduling.obstacle, told.request.constraints.demands.claimed) == (None, [terms])


class Looks:
    """Counts the checks of claims, the checks in a row without a turn for other tasks, and the created
    constraints of Nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = self.in_a_row = self.most_in_a_row = self.made = 0
        verdict, with_claimed = Claims.verdict, NodeConstraints.with_claimed

        def look(claims: Claims, uid: str, needs: tuple[Need, ...]) -> Verdict:
            self.number += 1
            self.in_a_row += 1
            self.most_in_a_row = max(self.most_in_a_row, self.in_a_row)
            return verdict(claims, uid, needs)

        def make(constraints: NodeConstraints, terms: Any) -> NodeConstraints:
            self.made += 1
            return with_claimed(constraints, terms)

        monkeypatch.setattr(Claims, "verdict", look)
        monkeypatch.setattr(NodeConstraints, "with_claimed", make)

    async def reach(self, number: int) -> None:
        while self.number < number:
            await asyncio.sleep(0)
            self.in_a_row = 0


async def test_claim_change_without_effect_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, volume = on_a_volume()
    many = [pod_manifest(name=f"p{n}", volumes=VOLUMES) for n in range(5_000)]
    site = Site(Api(persistentvolumeclaims=[bound], persistentvolumes=[volume]), *many)
    await site.pods.list()
    looks = Looks(monkeypatch)
    async with site.following():
        owned = bound["metadata"] | {"ownerReferences": [{"uid": "x", "controller": True}]}
        site.api.put("persistentvolumeclaims", bound | {"metadata": owned})
        await looks.reach(len(many))
        await asyncio.sleep(0)
    assert (looks.number, looks.made) == (len(many), 0)
    assert looks.most_in_a_row < len(many)
    assert site.told.empty()


async def test_forbidden_kind_causes_no_checks_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Api(persistentvolumes=FORBIDDEN))
    await site.pods.list()
    looks = Looks(monkeypatch)
    async with site.following():
        await site.api.asked("lists", "persistentvolumes", times=5)
    assert looks.number == 0


async def test_bound_pod_gets_no_reports_about_its_claims() -> None:
    site = Site(Api(), pod_manifest(volumes=VOLUMES, node="n1", gates=()))
    assert await site.obstacle() is None
    async with site.following():
        site.api.put("persistentvolumeclaims", claim())
        site.api.remove("persistentvolumeclaims", "data")
        await asyncio.sleep(0.01)
    assert site.told.empty()


async def test_pod_that_became_bound_gets_no_reports_about_its_claims() -> None:
    site = Site(Api(persistentvolumeclaims=[claim()]))
    await site.pods.list()
    changed = {PREFIX + "comment": "new"}
    site.api.put("pods", pod_manifest(volumes=VOLUMES, annotations=changed, node="n1", gates=()))
    await site.pods.list()
    async with site.following():
        site.api.remove("persistentvolumeclaims", "data")
        await asyncio.sleep(0.01)
    assert site.told.empty()


async def test_forbidden_claims_are_reported_and_not_checked() -> None:
    site = Site(Api(persistentvolumeclaims=FORBIDDEN))
    assert await site.obstacle() is None
    problems = site.health.problems()
    assert "forbidden" in str(problems)
    assert "watch of persistentvolumeclaims" in str(problems)


async def test_claims_are_checked_once_readable() -> None:
    site = Site(Api(persistentvolumeclaims=FORBIDDEN))
    assert await site.obstacle() is None
    async with site.following():
        site.api.outage(None)
        assert await site.next_obstacle() == MISSING
    assert site.health.problems() == {}


@pytest.mark.parametrize("status", [0, 410, 429, 503])
@pytest.mark.parametrize("at", ["lists", "groups"])
async def test_claim_watch_continues_after_a_transient_error(at: str, status: int) -> None:
    site = Site(Api(persistentvolumeclaims=FORBIDDEN))
    assert await site.obstacle() is None
    async with site.following():
        site.api.fail(at, "persistentvolumeclaims", KubernetesError(status, "not now"))
        await site.api.asked(at, "persistentvolumeclaims", times=2)
        assert "not now" in str(site.health.problems())
        site.api.outage(None)
        assert await asyncio.wait_for(site.next_obstacle(), 5) == MISSING
    assert site.health.problems() == {}


async def test_missing_api_group_is_no_problem() -> None:
    site = Site(Api())
    site.api.fail("groups", "resourceclaims", KubernetesError(503, "not now"))
    await site.obstacle()
    assert "not now" in str(site.health.problems())
    async with site.following():
        site.api.fail("groups", "resourceclaims", None)
        await until(lambda: not site.health.problems())


async def test_failed_list_is_reported_and_hides_no_missing_claim() -> None:
    site = Site(Api(persistentvolumes=KubernetesError(503, "not now")))
    assert await site.obstacle() == MISSING
    assert "not now" in str(site.health.problems())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes_client.watch._PAUSES", Pauses(0.001, 0.002))
    monkeypatch.setattr("extender.execution.claim_watch._BROKEN_S", 0.02)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("from_the_start", [True, False])
async def test_unwatched_claims_decide_nothing_until_listed_again(from_the_start: bool) -> None:
    kind, site = "persistentvolumeclaims", Site(Api())
    if from_the_start:
        site.api.fail("watches", kind, NO_WATCH)
    assert await site.obstacle() == MISSING
    async with site.following(), asyncio.timeout(5):
        if not from_the_start:
            await site.api.all_sent()
            site.api.fail("watches", kind, NO_WATCH)
        assert await site.next_obstacle() is None
        await site.api.asked("watches", kind, times=100)
        assert "not checked" in str(site.health.problems())
        assert site.api.calls.count(f"pages {kind}") == 1
        site.api.fail("watches", kind, None)
        assert await site.next_obstacle() == MISSING
        assert site.api.calls.count(f"pages {kind}") == 2
        await site.api.all_sent()
    assert site.told.empty()
    assert site.health.problems() == {}


@pytest.mark.usefixtures("impatient")
async def test_claims_are_checked_again_soon_after_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.execution.claim_watch._AGAIN_S", 1000.0)
    monkeypatch.setattr("extender.execution.claim_watch._SOON_S", 0.001)
    kind, down, site = "persistentvolumeclaims", Unavailable(503, "not now"), Site(Api())
    assert await site.obstacle() == MISSING
    async with site.following(), asyncio.timeout(5):
        await site.api.all_sent()
        site.api.fail("watches", kind, down)
        assert await site.next_obstacle() is None
        await site.api.asked("watches", kind, times=100)
        assert site.health.parts() == {"Kubernetes": True}
        site.api.fail("watches", kind, None)
        assert await site.next_obstacle() == MISSING
    assert site.health.parts() == {"Kubernetes": False}


@pytest.mark.usefixtures("impatient")
async def test_claim_created_while_the_watch_was_broken_is_found_later() -> None:
    kind, site = "persistentvolumeclaims", Site(Api())
    site.api.fail("watches", kind, NO_WATCH)
    assert await site.obstacle() == MISSING
    async with site.following(), asyncio.timeout(5):
        assert await site.next_obstacle() is None
        site.api.put(kind, claim())
        site.api.fail("watches", kind, None)
        site.api.put(kind, claim(deletionTimestamp="2026-01-01T00:00:00Z"))
        assert "is being deleted" in (await site.next_obstacle() or "")
    assert site.told.empty()


@pytest.mark.usefixtures("impatient")
async def test_watch_broken_for_a_short_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored watch may stay silent for longer than `_BROKEN_S`."""
    monkeypatch.setattr("extender.execution.claim_watch._BROKEN_S", 2.0)
    kind, site = "persistentvolumeclaims", Site(Api())
    assert await site.obstacle() == MISSING
    async with site.following(), asyncio.timeout(5):
        await site.api.all_sent()
        site.api.fail("watches", kind, NO_WATCH)
        await site.api.asked("watches", kind, times=5)
        site.api.fail("watches", kind, None)
        await site.api.all_sent()
        await asyncio.sleep(2.1)
        assert site.told.empty()
        assert site.api.calls.count(f"pages {kind}") == 1
        site.api.put(kind, claim())
        assert await site.next_obstacle() is None
    assert site.health.problems() == {}


async def test_kinds_that_the_api_server_lacks_are_not_listed() -> None:
    api = Api(persistentvolumeclaims=[claim()])
    entry = {"name": "gpus", "resourceClaimName": "devices"}
    site = Site(api, pod_manifest(volumes=VOLUMES, resourceClaims=[entry]))
    assert await site.obstacle() is None
    assert "pages resourceclaims" not in api.calls
    assert site.health.problems() == {}
