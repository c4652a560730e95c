"""Tests of how preflight reads both systems, also if a system does not answer."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.execution.release_check import Release
from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.policy.rules import Choice, Policy, Rule
from extender.preflight import rights
from extender.preflight.checks import results
from extender.preflight.facts import Facts, Unread
from extender.preflight.reader import Reader
from extender.preflight.result import Verdict
from extender.settings import Settings
from kubernetes_client.errors import Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.errors import BadToken, Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.in_memory.slurm import DEFAULTS
from tests.preflight.good import kubernetes_node
from tests.preflight.test_device_plugins import NVIDIA, daemon

SCHEDULER = SchedulerConfiguration()


def token(path: Path, **claims: Any) -> Path:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    path.write_text(f"e30.{payload}.x")
    return path


class World:
    def __init__(self, folder: Path, **settings: Any) -> None:
        file = token(folder / "token", sun="slurm", exp=2_000)
        self.settings = Settings(slurm_token_file=file, **settings)
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", kubernetes_node())
        self.slurm = InMemorySlurm(
            [node("n1")],
            [partition("main", ["n1"])],
            configuration=replace(DEFAULTS, slurm_user="slurm"),
        )
        self.policy = Policy()

    async def read(self, kubernetes: Any = None) -> Facts:
        own = self.kubernetes if kubernetes is None else kubernetes
        return await Reader(self.settings, own, self.slurm, self.policy, SCHEDULER).read(1_000.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_both_systems_are_read(world: World) -> None:
    name = "slurm-extender-bookkeeping"
    labels = {"app.kubernetes.io/instance": "a", "slurm-extender.io/release-namespace": "b"}
    policies = {"metadata": {"name": name, "labels": labels}}, {"metadata": {"name": "a"}}
    world.kubernetes.put("validatingadmissionpolicies", *policies)
    world.kubernetes.put("pods", daemon(NVIDIA, "p"), daemon("busybox", "q"))
    facts = await world.read()
    assert facts.kubernetes.device_plugins == {"n1": "gpu/p-x"}
    assert facts.kubernetes.release == "v1.37.2"
    assert facts.kubernetes.account == {"username": "admin", "groups": ["system:masters"]}
    assert (facts.kubernetes.denied, facts.kubernetes.cannot_install) == ((), ())
    assert facts.kubernetes.webhooks == {}
    assert facts.kubernetes.policies == ("a", name)
    assert facts.kubernetes.releases == (Release("b", "a", name),)
    assert facts.kubernetes.lease is None
    assert facts.slurm.accepted is True
    assert facts.slurm.privileged is True
    assert not isinstance(facts.slurm.token, Unread)
    assert (facts.slurm.token.user, facts.slurm.token.expires) == ("slurm", 2_000)
    assert (facts.slurm.newest_job_id, facts.slurm.waiting_jobs) == (None, 0)
    assert not [name for name in facts.slurm.__slots__ if isinstance(getattr(facts.slurm, name), Unread)]


@pytest.mark.parametrize(
    ("variable", "verdict"), [("SLURMRESTD_ULR", Verdict.FAIL), ("KUBE_SCHEDULER", Verdict.WARN)]
)
async def test_only_a_variable_near_a_setting_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, variable: str, verdict: Verdict
) -> None:
    monkeypatch.setenv(f"SLURM_EXTENDER_{variable}", "x")
    found = {each.check: each.verdict for each in results(await world.read())}
    assert found["settings"] is verdict


async def test_denied_right_is_reported(world: World) -> None:
    first, second = rights.of_extender(world.settings)[3:5]
    world.kubernetes.lacking |= {first, second, rights.of_installation(world.settings)[0]}
    facts = await world.read()
    assert facts.kubernetes.denied == (first, second)
    assert facts.kubernetes.cannot_install == rights.of_installation(world.settings)[:1]


@pytest.mark.parametrize(("user", "privileged"), [("root", True), ("slurm", True), ("alice", False)])
async def test_tokens_of_root_and_slurm_user_have_rights(
    world: World, user: str, privileged: bool
) -> None:
    token(world.settings.slurm_token_file, sun=user)
    assert (await world.read()).slurm.privileged is privileged


async def test_forbidden_call_does_not_stop_the_other_calls(world: World) -> None:
    world.kubernetes.outage(Rejected(403, "nodes is forbidden"), "list nodes")
    facts = await world.read()
    assert isinstance(facts.kubernetes.nodes, Unread)
    assert "nodes is forbidden" in facts.kubernetes.nodes.why
    assert facts.kubernetes.release == "v1.37.2"


async def test_slurm_is_read_while_kube_apiserver_does_not_answer(world: World) -> None:
    world.kubernetes.outage(Unavailable(0, "refused"))
    facts = await world.read()
    unread = [getattr(facts.kubernetes, name) for name in facts.kubernetes.__slots__]
    assert all(isinstance(each, Unread) for each in unread)
    assert set(unread) == {Unread("cannot read kube-apiserver: refused", "kubernetes-release")}
    assert facts.slurm.accepted is True
    facts = await world.read(Unread("no kubeconfig"))
    assert facts.kubernetes.lease == Unread("no kubeconfig")


async def test_kubernetes_is_read_while_slurm_does_not_answer(world: World) -> None:
    world.slurm.outage(Unreachable("connection refused"))
    facts = await world.read()
    assert isinstance(facts.slurm.capabilities, Unread)
    assert isinstance(facts.slurm.accepted, Unread)
    assert facts.slurm.nodes == Unread("connection refused", "slurm-api")
    assert facts.kubernetes.release == "v1.37.2"
    assert {each.check for each in results(facts) if each.because == "slurm-api"} >= {"token", "gres"}


async def test_slurm_is_not_read_with_a_rejected_token(world: World) -> None:
    world.slurm.outage(BadToken("expired"))
    facts = await world.read()
    assert facts.slurm.accepted is False
    assert facts.slurm.nodes == Unread("slurmctld rejects the token", "token")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "is not a JWT"),
        ("a.b.c", "is not a JWT"),
        ("SLURM_JWT=e30.eyJzdW4iOiJyb290In0.x", "is not a JWT: leave out SLURM_JWT="),
    ],
)
async def test_a_file_without_a_jwt_is_named(world: World, text: str, told: str) -> None:
    world.settings.slurm_token_file.write_text(text)
    world.slurm.outage(BadToken("malformed"))
    facts = await world.read()
    assert isinstance(facts.slurm.token, Unread)
    assert f"{world.settings.slurm_token_file} {told}" in facts.slurm.token.why
    assert text not in facts.slurm.token.why
    failing = {each.check for each in results(facts) if each.verdict is Verdict.FAIL}
    assert "token" in failing
    assert "slurm-api" not in failing


async def test_variables_without_setting_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_EXTENDER_SLURMRESTD_ULR", "http://slurmrestd:6820")
    variables = (await world.read()).variables
    assert variables["SLURM_EXTENDER_SLURMRESTD_ULR"] == "SLURM_EXTENDER_SLURMRESTD_URL"


async def test_missing_token_file_is_reported(world: World) -> None:
    world.settings.slurm_token_file.unlink()
    facts = await world.read()
    assert isinstance(facts.slurm.token, Unread)
    assert "cannot be read" in facts.slurm.token.why


async def test_named_partitions_are_collected_without_patterns(tmp_path: Path) -> None:
    world = World(tmp_path, default_partition="main", priority_classes="fast=partition:high")
    fields = {"partition": Choice("a,b", ("gpu-*", "c"))}
    world.policy = Policy((Rule("mine", ("*",), fields=fields),))
    assert (await world.read()).asked_partitions == {
        "main": "SLURM_EXTENDER_DEFAULT_PARTITION",
        "high": "SLURM_EXTENDER_PRIORITY_CLASSES (fast)",
        **dict.fromkeys("abc", "the policy's rule mine"),
    }
