"""Tests of the updater, which keeps the view of Kubernetes Nodes and Slurm nodes up to date."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.node_view.node_conditions import NodeStatus
from extender.node_view.view import ClusterView
from extender.node_view.view_updater import MEMORY, NAMES, ClusterViewUpdater, SlurmDefaults
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from slurm_client.errors import NeedsOperator, Unreachable
from slurm_client.in_memory import InMemorySlurm, node
from slurm_client.model import Partition
from slurm_client.server import Configuration
from tests.builders import Manifest, node_manifest
from tests.eventually import until
from wellknown.conditions import timestamp
from wellknown.names import DEVICE_PROBLEM, LINGERING, NODE_NAME_LABEL

MAIN = Partition("main", ("n1", "n2"), default=True)
LONG = Partition("long", ("n1", "n2"))
NOTHING = SlurmDefaults()
Happens = Callable[[InMemoryKubernetes], object]


class ToldSlurm(InMemorySlurm):
    """Has two partitions. Reports a configuration with the given fields."""

    def __init__(
        self, preempt_type: str | None = "", *, tells_default: bool = True, **told: Any
    ) -> None:
        partitions = [replace(MAIN, default=tells_default), LONG]
        configuration = Configuration(preempt_type=preempt_type, **told)
        super().__init__([node("n1"), node("n2")], partitions, configuration=configuration)
        self._capabilities = replace(self._capabilities, default_partition=tells_default)

    def edit_conf(self, **told: Any) -> None:
        self._configuration = replace(self._configuration, **told)


def updater(
    kubernetes: InMemoryKubernetes,
    slurm: ToldSlurm | None = None,
    untold: SlurmDefaults = NOTHING,
    health: Health | None = None,
) -> ClusterViewUpdater:
    asked = slurm or ToldSlurm()
    return ClusterViewUpdater(kubernetes, asked, health or Health(), NODE_NAME_LABEL, untold)


def having(*nodes: Manifest) -> InMemoryKubernetes:
    kubernetes = InMemoryKubernetes()
    kubernetes.put("nodes", *nodes)
    return kubernetes


async def followed(
    updating: ClusterViewUpdater, kubernetes: InMemoryKubernetes, *happens: Happens
) -> list[ClusterView]:
    """Runs the updater until the watch has reported all changes. Returns each published view."""
    views: list[ClusterView] = []
    await updating.load()
    with updating.telling(views.append):
        running = asyncio.ensure_future(updating.run())
        for happening in happens:
            happening(kubernetes)
        await asyncio.wait_for(kubernetes.all_sent(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not views or views[-1] is updating.view
    return views


async def read_again(updating: ClusterViewUpdater, slurm: ToldSlurm) -> None:
    """Runs the updater until a read of slurm.conf and the partitions."""
    slurm.reads.clear()
    running = asyncio.ensure_future(updating.run())
    await until(lambda: slurm.reads["partitions"], within_s=10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def comes(node: Manifest) -> Happens:
    """Creates or changes a Node."""
    return lambda kubernetes: kubernetes.put("nodes", node)


def goes(name: str) -> Happens:
    return lambda kubernetes: kubernetes.remove("nodes", name)


async def test_nodes_and_partitions_are_read_with_their_slurm_names() -> None:
    labelled = node_manifest("n1", labels={NODE_NAME_LABEL: "gpu-01"})
    view = await updater(having(labelled, node_manifest("n2"))).load()
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
async def test_slurms_preempt_type_counts_within_one_tier(
    preempt_type: str | None, may_preempt: bool
) -> None:
    """If slurmrestd reports no PreemptType, preempt/qos is possible. Priority tiers do not limit
    preempt/qos."""
    view = await updater(having(), ToldSlurm(preempt_type)).load()
    assert view.may_preempt("main") is may_preempt


@pytest.mark.parametrize(
    ("slurm", "default", "may_preempt"),
    [
        (ToldSlurm(None, tells_default=False), "long", False),
        (ToldSlurm("preempt/qos"), "main", True),
    ],
)
async def test_settings_are_used_if_slurmrestd_does_not_report_them(
    slurm: ToldSlurm, default: str, may_preempt: bool
) -> None:
    untold = SlurmDefaults(default_partition="long", preempt_type="preempt/none")
    view = await updater(having(), slurm, untold).load()
    assert (view.partition_name(None), view.may_preempt(default)) == (default, may_preempt)


async def test_grace_time_of_a_qos_comes_only_from_the_settings() -> None:
    untold = SlurmDefaults(preempt_type="preempt/qos", graceful_qos=("patient",))
    view = await updater(having(), ToldSlurm(None), untold).load()
    assert view.graceful_qos == {"patient"}
    assert view.gives_grace


@pytest.mark.parametrize(("told", "counts"), [(None, 4000), (800, 800)])
async def test_max_job_count_is_slurms_else_the_settings(told: int | None, counts: int) -> None:
    slurm = ToldSlurm(max_job_count=told)
    view = await updater(having(), slurm, SlurmDefaults(max_job_count=4000)).load()
    assert view.max_job_count == counts


@pytest.mark.parametrize(("told", "counts"), [(None, 45), (60, 60), (0, 0)])
async def test_kill_wait_is_slurms_else_the_settings(told: int | None, counts: int) -> None:
    updating = updater(having(), ToldSlurm(kill_wait_s=told), SlurmDefaults(kill_wait_s=45))
    assert updating.kill_wait_s == 45  # the configuration is not read yet
    await updating.load()
    assert updating.kill_wait_s == counts


@pytest.mark.parametrize(("told", "counts"), [(None, 300), (60, 60), (0, 0)])
async def test_slurmd_timeout_is_slurms_else_slurms_default(told: int | None, counts: int) -> None:
    updating = updater(having(), ToldSlurm(slurmd_timeout_s=told))
    await updating.load()
    assert updating.slurmd_timeout_s == counts


@pytest.mark.parametrize(
    ("told", "setting", "problem"),
    [
        (None, (), None),
        (None, ("CR_Core",), "SelectTypeParameters is CR_Core, without memory"),
        (None, ("CR_Core_Memory",), None),
        (
            ("CR_CPU", "CR_PACK_NODES"),
            (),
            "SelectTypeParameters is CR_CPU,CR_PACK_NODES, without memory",
        ),
        (("CR_CORE_MEMORY",), ("CR_Core",), None),
    ],
)
async def test_a_slurm_that_does_not_count_memory_is_a_problem(
    told: tuple[str, ...] | None, setting: tuple[str, ...], problem: str | None
) -> None:
    health, defaults = Health(), SlurmDefaults(select_type_parameters=setting)
    await updater(having(), ToldSlurm(select_type_parameters=told), defaults, health).load()
    words = health.problems().get(MEMORY)
    assert (words is None) is (problem is None)
    assert words is None or (problem or "") in words


async def test_uncounted_memory_is_no_problem_if_jobs_get_whole_nodes() -> None:
    health = Health()
    slurm = ToldSlurm(select_type="select/linear", select_type_parameters=("CR_CPU",))
    await updater(having(), slurm, health=health).load()
    assert MEMORY not in health.problems()


async def test_problem_of_uncounted_memory_ends_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.node_view.view_updater._CONFIGURATION_S", 0.001)
    health, slurm = Health(), ToldSlurm(select_type_parameters=("CR_CORE",))
    updating = updater(having(), slurm, health=health)
    await updating.load()
    assert MEMORY in health.problems()
    slurm.edit_conf(select_type_parameters=("CR_CORE_MEMORY",))
    await read_again(updating, slurm)
    assert MEMORY not in health.problems()


async def test_changes_of_slurm_conf_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.node_view.view_updater._CONFIGURATION_S", 0.001)
    slurm = ToldSlurm(kill_wait_s=60)
    updating = updater(having(), slurm)
    assert not (await updating.load()).may_preempt("main")
    slurm.edit_conf(kill_wait_s=90, preempt_type="preempt/qos")
    await read_again(updating, slurm)
    assert updating.kill_wait_s == 90
    assert updating.view.may_preempt("main")


async def test_after_an_outage_slurm_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.node_view.view_updater._CONFIGURATION_S", 0.001)
    health, slurm = Health(), ToldSlurm()
    updating = updater(having(), slurm, health=health)
    await updating.load()

    async def down() -> Configuration:
        monkeypatch.setattr(slurm, "configuration", configuration)
        monkeypatch.setattr("extender.node_view.view_updater._CONFIGURATION_S", 1000.0)
        raise Unreachable("slurmctld is down")

    configuration = slurm.configuration
    monkeypatch.setattr(slurm, "configuration", down)
    monkeypatch.setattr("extender.node_view.view_updater._RETRY_S", 0.001)
    await read_again(updating, slurm)
    assert health.parts() == {"Slurm": False}


async def test_unknown_default_partition_needs_an_operator() -> None:
    slurm = ToldSlurm(tells_default=False)
    with pytest.raises(NeedsOperator, match="is mian; Slurm has the partitions main, long"):
        await updater(having(), slurm, SlurmDefaults(default_partition="mian")).load()


async def test_added_changed_and_deleted_nodes_are_published() -> None:
    kubernetes = having(node_manifest("n1"))
    cordoned = node_manifest("n1", unschedulable=True)
    happens = comes(node_manifest("n2")), comes(cordoned), goes("n1")
    views = await followed(updater(kubernetes), kubernetes, *happens)
    assert [sorted(view.nodes) for view in views] == [["n1", "n2"], ["n1", "n2"], ["n2"]]
    assert [view.nodes["n1"].unschedulable for view in views[:2]] == [False, True]


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        ([], "Nodes n1, n2 name Slurm's node gpu: none stands for it, and it gets no Pods"),
        ([comes(node_manifest("gpu"))], "Nodes gpu, n1, n2 name Slurm's node gpu: none"),
        ([comes(node_manifest("gpu")), goes("n2")], "Nodes gpu, n1 name Slurm's node gpu: n1 alone"),
        ([comes(node_manifest("n2"))], ""),
        ([goes("n2")], ""),
    ],
)
async def test_contested_slurm_node_is_a_problem_until_it_ends(
    happens: list[Happens], told: str
) -> None:
    labelled = [node_manifest(name, labels={NODE_NAME_LABEL: "gpu"}) for name in ("n1", "n2")]
    kubernetes, health = having(*labelled), Health()
    updating = updater(kubernetes, health=health)
    await updating.load()
    assert NAMES in health.for_strangers()["problems"]  # type: ignore[operator]
    await followed(updating, kubernetes, *happens)
    problems = health.problems()
    assert isinstance(problems, dict)
    assert problems.get(NAMES, "").startswith(told)
    assert bool(problems.get(NAMES)) is bool(told)


async def test_a_heartbeat_is_not_published() -> None:
    beat = node_manifest("n1") | {"status": {"conditions": [{"type": "Ready"}]}}
    kubernetes = having(node_manifest("n1"))
    assert await followed(updater(kubernetes), kubernetes, comes(beat)) == []


async def test_node_loses_its_agent_after_missing_heartbeats() -> None:
    """Even if nothing changes, the kubelet patches the Node every five minutes. At this patch, the
    updater notices the missing heartbeats of the agent."""
    beat = {"type": DEVICE_PROBLEM, "status": "False", "lastHeartbeatTime": timestamp(datetime.now(UTC))}
    silent = beat | {"lastHeartbeatTime": "2020-01-01T12:00:00Z"}
    before, after = (node_manifest("n1") | {"status": {"conditions": [each]}} for each in (beat, silent))
    kubernetes = having(before)
    views = await followed(updater(kubernetes), kubernetes, comes(before), comes(after))
    assert [view.nodes["n1"].has_agent for view in views] == [False]


async def test_node_statuses_are_kept_beside_the_view() -> None:
    unready = node_manifest("n1") | {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    for happens, changed, node_statuses in (
        ([], False, {"n1": NodeStatus()}),
        ([comes(node_manifest("n1") | {"status": {}})], False, {"n1": NodeStatus()}),
        ([comes(unready)], True, {"n1": NodeStatus(ready=False)}),
        ([goes("n1")], True, {}),
        ([comes(node_manifest("n1", unschedulable=True))], True, {"n1": NodeStatus()}),
    ):
        kubernetes = having(node_manifest("n1"))
        updating = updater(kubernetes)
        await followed(updating, kubernetes, *happens)
        assert (updating.nodes_changed.is_set(), updating.node_statuses) == (changed, node_statuses)


async def test_node_recreated_during_a_gap_of_the_watch_is_in_the_view() -> None:
    kubernetes = having(node_manifest("n1"))
    anew = node_manifest("n1")
    anew["metadata"]["uid"] = "new"
    happens = goes("n1"), comes(anew), InMemoryKubernetes.compact
    views = await followed(updater(kubernetes), kubernetes, *happens)
    assert [sorted(view.nodes) for view in views][-1:] in ([], [["n1"]])
    assert kubernetes.calls.count("pages nodes") == 2


async def test_invalid_note_on_a_node_is_logged_once_and_other_notes_count() -> None:
    notes = [{"job": 7, "pod": "default/chat", "seconds": 30}, {"job": 8}]
    noted = node_manifest("n1")
    noted["metadata"]["annotations"] = {LINGERING: json.dumps(notes)}
    beat = noted | {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    kubernetes = having(node_manifest("n1"))
    updating = updater(kubernetes)
    with capture_logs() as logged:
        await followed(updating, kubernetes, comes(noted), comes(beat))
    assert [each.pod for each in updating.lingering_notes.on("n1")] == ["default/chat"]
    told = [line for line in logged if line["event"] == "invalid notes on a Node"]
    assert [(line["node"], line["error"]) for line in told] == [("n1", "note 2: pod: Field required")]


async def test_notes_of_a_node_that_is_deleted_while_away_expire() -> None:
    away = node_manifest("n1", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    away["metadata"]["annotations"] = {
        LINGERING: json.dumps([{"job": 7, "pod": "default/chat", "seconds": 0.05}])
    }
    kubernetes = having(away)
    updating = updater(kubernetes)
    await followed(updating, kubernetes, goes("n1"))
    await asyncio.sleep(0.06)
    assert updating.lingering_notes.on("n1") == ()
