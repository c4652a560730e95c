"""The read model of both systems' nodes, as it follows them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from extender.cluster_view import ClusterViewKeeper, Untold
from extender.health import Health
from extender.kubernetes_api import KubernetesApi
from extender.placement.cluster import ClusterView
from extender.placement.nodes import Standing
from slurm_client.errors import NeedsOperator
from slurm_client.model import Capabilities, Configuration, Partition
from slurm_client.protocol import Slurm
from tests.builders import Manifest, node_manifest
from tests.test_resource_watch import FakeApi, error, pod_event

LABEL = "slurm-extender.io/node"
MAIN = Partition("main", ("n1", "n2"), default=True)
LONG = Partition("long", ("n1", "n2"))
NOTHING = Untold()


class FakeSlurm:
    """Has partitions, and a way to preempt."""

    def __init__(
        self,
        preempt_type: str | None = "",
        *,
        tells_default: bool = True,
        kill_wait_s: int | None = None,
        max_job_count: int | None = None,
    ) -> None:
        self.preempt_type = preempt_type
        self.kill_wait_s = kill_wait_s
        self.max_job_count = max_job_count
        self.asked = asyncio.Event()
        self._tells_default = tells_default

    async def connect(self) -> Capabilities:
        return Capabilities("v", "26.05", "c", True, default_partition=self._tells_default)

    async def configuration(self) -> Configuration:
        return Configuration(
            preempt_type=self.preempt_type,
            kill_wait_s=self.kill_wait_s,
            max_job_count=self.max_job_count,
        )

    async def partitions(self) -> tuple[Partition, ...]:
        self.asked.set()
        return (replace(MAIN, default=self._tells_default), LONG)


def keeper(
    api: FakeApi,
    slurm: FakeSlurm | None = None,
    untold: Untold = NOTHING,
) -> ClusterViewKeeper:
    kubernetes, controller = cast(KubernetesApi, api), cast(Slurm, slurm or FakeSlurm())
    return ClusterViewKeeper(kubernetes, controller, Health(), LABEL, untold)


async def followed(api: FakeApi) -> list[ClusterView]:
    """Every view that is published until the API server's script is used up."""
    views: list[ClusterView] = []
    keeping = keeper(api)
    await keeping.load()
    with keeping.telling(views.append):
        running = asyncio.ensure_future(keeping.run())
        await asyncio.wait_for(api.idle.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not views or views[-1] is keeping.view
    return views


def renewed(name: str, uid: str) -> Manifest:
    manifest = node_manifest(name)
    manifest["metadata"]["uid"] = uid
    return manifest


async def test_nodes_and_partitions_are_read_with_their_names_for_each_other() -> None:
    labelled = node_manifest("n1", labels={LABEL: "gpu-01"})
    view = await keeper(FakeApi([([labelled, node_manifest("n2")], "5")])).load()
    assert {name: node.slurm_name for name, node in view.nodes.items()} == {"n1": "gpu-01", "n2": "n2"}
    assert view.partitions == {"main": MAIN, "long": LONG}


@pytest.mark.parametrize(
    ("preempt_type", "may_preempt"),
    [
        ("", False),
        ("none", False),
        ("preempt/none", False),
        ("preempt/partition_prio", False),
        ("preempt/qos", True),
        (None, True),
    ],
)
async def test_among_partitions_of_one_tier_what_slurm_says_of_preemption_counts(
    preempt_type: str | None, may_preempt: bool
) -> None:
    """A server that does not say may preempt by QOS, which no tier tells of."""
    view = await keeper(FakeApi([([], "5")]), FakeSlurm(preempt_type)).load()
    assert view.may_preempt("main") is may_preempt


async def test_what_slurmrestd_does_not_tell_is_what_the_settings_say() -> None:
    untold = Untold(default_partition="long", preempt_type="preempt/none")
    slurm = FakeSlurm(None, tells_default=False)
    view = await keeper(FakeApi([([], "5")]), slurm, untold).load()
    assert view.partition_name(None) == "long"
    assert not view.may_preempt("long")


async def test_of_a_qos_grace_time_only_the_settings_tell() -> None:
    untold = Untold(preempt_type="preempt/qos", graceful_qos=("patient",))
    view = await keeper(FakeApi([([], "5")]), FakeSlurm(None), untold).load()
    assert view.graceful_qos == {"patient"}
    assert view.gives_grace


async def test_what_slurmrestd_tells_counts_more_than_the_settings() -> None:
    untold = Untold(default_partition="long", preempt_type="preempt/none")
    view = await keeper(FakeApi([([], "5")]), FakeSlurm("preempt/qos"), untold).load()
    assert view.partition_name(None) == "main"
    assert view.may_preempt("main")


@pytest.mark.parametrize(("told", "counts"), [(None, 4000), (800, 800)])
async def test_max_job_count_is_what_slurm_tells_else_what_the_settings_say(
    told: int | None, counts: int
) -> None:
    slurm = FakeSlurm(max_job_count=told)
    view = await keeper(FakeApi([([], "5")]), slurm, Untold(max_job_count=4000)).load()
    assert view.max_job_count == counts


@pytest.mark.parametrize(("told", "counts"), [(None, 45), (60, 60), (0, 0)])
async def test_kill_wait_is_what_slurm_tells_else_what_the_settings_say(
    told: int | None, counts: int
) -> None:
    keeping = keeper(FakeApi([([], "5")]), FakeSlurm(kill_wait_s=told), Untold(kill_wait_s=45))
    assert keeping.kill_wait_s == 45  # Slurm was not asked yet
    await keeping.load()
    assert keeping.kill_wait_s == counts


async def test_what_is_changed_in_slurm_conf_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.cluster_view._CONFIGURATION_S", 0.001)
    slurm = FakeSlurm(kill_wait_s=60)
    keeping = keeper(FakeApi([([], "5")]), slurm)
    assert not (await keeping.load()).may_preempt("main")
    slurm.kill_wait_s, slurm.preempt_type = 90, "preempt/qos"
    slurm.asked.clear()
    running = asyncio.ensure_future(keeping.run())
    await asyncio.wait_for(slurm.asked.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert keeping.kill_wait_s == 90
    assert keeping.view.may_preempt("main")


async def test_a_default_partition_that_slurm_does_not_have_is_an_operators_mistake() -> None:
    slurm = FakeSlurm(tells_default=False)
    with pytest.raises(NeedsOperator, match="is mian; Slurm has the partitions main, long"):
        await keeper(FakeApi([([], "5")]), slurm, Untold(default_partition="mian")).load()


async def test_a_node_that_comes_changes_or_goes_is_published() -> None:
    cordoned = node_manifest("n1", unschedulable=True)
    events = [
        pod_event("ADDED", node_manifest("n2")),
        pod_event("MODIFIED", cordoned),
        pod_event("DELETED", cordoned),
    ]
    views = await followed(FakeApi([([node_manifest("n1")], "5")], events))
    assert [sorted(view.nodes) for view in views] == [["n1", "n2"], ["n1", "n2"], ["n2"]]
    assert [view.nodes["n1"].unschedulable for view in views[:2]] == [False, True]


async def test_a_heartbeat_is_not_published() -> None:
    beat = node_manifest("n1") | {"status": {"conditions": [{"type": "Ready"}]}}
    assert await followed(FakeApi([([node_manifest("n1")], "5")], [pod_event("MODIFIED", beat)])) == []


async def test_what_a_node_says_of_itself_is_kept_beside_the_view() -> None:
    unready = node_manifest("n1") | {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    for events, changed, standings in (
        ([], False, {"n1": Standing()}),
        ([pod_event("MODIFIED", node_manifest("n1"))], False, {"n1": Standing()}),
        ([pod_event("MODIFIED", unready)], True, {"n1": Standing(ready=False)}),
        ([pod_event("DELETED", unready)], True, {}),
        ([pod_event("MODIFIED", node_manifest("n1", unschedulable=True))], True, {"n1": Standing()}),
    ):
        api = FakeApi([([node_manifest("n1")], "5")], events)
        keeping = keeper(api)
        await keeping.load()
        running = asyncio.ensure_future(keeping.run())
        await asyncio.wait_for(api.idle.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (keeping.nodes_changed.is_set(), keeping.standings) == (changed, standings)


async def test_a_node_made_anew_while_the_watch_was_blind_is_there() -> None:
    lists = [([renewed("n1", "old")], "5"), ([renewed("n1", "new")], "30")]
    views = await followed(FakeApi(lists, [error(410)]))
    assert [sorted(view.nodes) for view in views][-1:] in ([], [["n1"]])
