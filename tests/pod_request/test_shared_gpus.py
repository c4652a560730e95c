"""Tests of the settings for a Pod with GPUs if native jobs may use the same GPUs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from extender.pod_request.devices.shared_gpus import SharedGpus
from extender.pod_request.job_request import Request
from extender.pod_request.pod import parse_pod
from extender.policy.rules import OPEN, Choice, Policy, Rule, judged
from slurm_client.model import Sharing
from tests.builders import PREFIX, TRANSLATION, Manifest, container, pod_manifest

PODS, ALICE = 3000, 2001
MAPPED = {"nvidia.com/gpu": "gpu", "nvidia.com/mig-1g.10gb": "gpu:1g.10gb", "example.com/npu": "npu"}
TEAM = Policy((Rule("team", ("*",), user=Choice(PODS, ("*",))),), pod_users=frozenset({PODS}))
"""By default, Pods belong to the user PODS. Only Pods have this user."""


def asked(
    setting: SharedGpus = "isolate",
    policy: Policy = TEAM,
    resource: str = "nvidia.com/gpu",
    gres: Mapping[str, str] = MAPPED,
    not_gpus: frozenset[str] = frozenset(),
    initContainers: Sequence[Manifest] = (),  # noqa: N803 -- as in a manifest
    **annotations: str,
) -> Request:
    """Returns the request of a Pod with a GPU."""
    named = {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}
    amounts = {"cpu": "1", "memory": "1Gi", resource: "1"}
    manifest = pod_manifest(
        annotations=named, containers=[container(amounts)], initContainers=list(initContainers)
    )
    translation = replace(TRANSLATION, shared_gpus=setting, gres=gres, not_gpus=not_gpus)
    return judged(parse_pod(manifest, translation), policy, translation).request


def refused(**given: Any) -> str:
    request = asked(**given)
    (problem,) = request.problems
    assert request.warnings == ()
    return problem


@pytest.mark.parametrize("setting", ["refuse", "isolate", "allow"])
@pytest.mark.parametrize(("exclusive", "shared"), [("none", Sharing.NONE), ("user", Sharing.USER)])
def test_pod_that_shares_no_node_with_native_jobs_is_unchanged(
    setting: SharedGpus, exclusive: str, shared: Sharing
) -> None:
    request = asked(setting, exclusive=exclusive)
    assert (request.job.shared, request.problems, request.warnings) == (shared, (), ())


@pytest.mark.parametrize("setting", ["refuse", "isolate"])
def test_pod_is_refused_if_native_jobs_may_have_its_user(setting: SharedGpus) -> None:
    told = refused(setting=setting, exclusive="user", user_id=str(ALICE))
    assert told == (
        "the Pod requests gpu:1, and a native job on the node may use the same GPUs: set the annotation"
        " sunk.coreweave.com/exclusive to none, for a whole node, or to user, with a user that only"
        " Pods have: the policy does not list user 2001 in podUsers"
        " (docs/reference/annotations.md#shared-gpus)"
    )


NOT_APART: list[dict[str, Any]] = [{}, *({"exclusive": each} for each in ("ok", "mcs", "topo"))]


@pytest.mark.parametrize("exclusive", NOT_APART)
def test_refusal_names_both_fixes(exclusive: dict[str, Any]) -> None:
    told = refused(setting="refuse", **exclusive)
    assert "exclusive to none, for a whole node, or to user, with a user that only Pods have" in told
    assert "podUsers" not in told  # only Pods have the Pod's user


@pytest.mark.parametrize("exclusive", NOT_APART)
def test_isolated_pod_shares_nodes_with_its_user_alone(exclusive: dict[str, Any]) -> None:
    request = asked(**exclusive)
    assert (request.job.shared, request.problems) == (Sharing.USER, ())
    (warning,) = request.warnings
    assert warning.startswith("exclusive is user for this Pod, so that no native job uses its GPUs (")


def test_pod_of_a_user_with_native_jobs_is_not_isolated() -> None:
    assert "the policy does not list user 2001 in" in refused(user_id=str(ALICE))
    assert "does not list the user of the extender's token in" in refused(policy=OPEN)


def test_pod_of_the_token_user_is_isolated_if_pod_users_allows_it() -> None:
    request = asked(policy=replace(OPEN, pod_users=frozenset({None})))
    assert (request.job.shared, request.problems) == (Sharing.USER, ())


def test_setting_allow_keeps_the_sharing_and_adds_a_warning() -> None:
    for exclusive, shared in (("ok", Sharing.ALLOWED), ("mcs", Sharing.MCS)):
        request = asked("allow", policy=OPEN, exclusive=exclusive)
        assert (request.job.shared, request.problems) == (shared, ())
    assert asked("allow").job.shared is None
    (warning,) = asked("allow").warnings
    assert warning.startswith("a native job may use the GPUs of this Pod: both share the node")
    assert len(warning) <= 256  # kube-apiserver's limit


def test_setting_node_agent_keeps_the_sharing_and_demands_an_agent() -> None:
    request = asked("node-agent", exclusive="ok")
    assert (request.job.shared, request.problems, request.warnings) == (Sharing.ALLOWED, (), ())
    assert request.constraints.demands.agent
    for exclusive in ("none", "user"):  # no native job shares the node
        assert not asked("node-agent", exclusive=exclusive).constraints.demands.agent


def test_slice_of_a_gpu_counts_as_gpu_and_other_devices_do_not() -> None:
    assert "requests gpu:1g.10gb:1," in refused(policy=OPEN, resource="nvidia.com/mig-1g.10gb")
    assert asked("refuse", OPEN, "example.com/npu").problems == ()


def test_pod_without_gpus_may_share_its_node() -> None:
    request = asked("refuse", OPEN, "example.com/uncounted")
    assert (request.job.shared, request.problems, request.warnings) == (None, (), ())


NAMES = [
    *("nvidia.com/gpu.shared", "nvidia.com/mig-2g.20gb", "nvidia.com/a100", "amd.com/cpx_nps4"),
    *("gpu.intel.com/i915", "habana.ai/gaudi", "aws.amazon.com/neuroncore"),
    *("volcano.sh/vgpu-number", "huawei.com/Ascend910", "birentech.com/gpu", "kunlunxin.com/xpu"),
    *("enflame.com/gcu", "vastaitech.com/va", "koordinator.sh/gpu-core", "koordinator.sh/gpu"),
    "deviceclass.resource.kubernetes.io/gpu.example.com",
]


@pytest.mark.parametrize("setting", ["refuse", "isolate", "node-agent"])
@pytest.mark.parametrize("resource", NAMES)
def test_gpu_that_slurm_does_not_count_is_invalid(setting: SharedGpus, resource: str) -> None:
    assert refused(setting=setting, resource=resource).startswith(f"the Pod requests {resource}: Slurm")


@pytest.mark.parametrize(
    ("resource", "gres"),
    [
        ("nvidia.com/mig-2g.20gb", "gpu:2g.20gb"),
        ("nvidia.com/gpu.shared", "shard"),
        ("gpu.intel.com/i915", "gpu"),
    ],
)
def test_the_message_has_the_setting_that_maps_the_gpu(resource: str, gres: str) -> None:
    told = refused(resource=resource)
    value = json.loads(told[told.index("{") : told.index("}") + 1])
    assert "SLURM_EXTENDER_GRES=" in told
    assert value == MAPPED | {resource: gres}
    assert asked(resource=resource, gres=value).problems == ()


@pytest.mark.parametrize("sidecar", [True, False])
def test_init_container_with_an_uncounted_gpu_makes_the_pod_invalid(sidecar: bool) -> None:
    init = container({"cpu": "1"}, limits={"nvidia.com/gpu.shared": "1"}, sidecar=sidecar)
    assert "nvidia.com/gpu.shared" in refused(resource="cpu", initContainers=[init])


def test_uncounted_gpu_is_valid_if_no_native_job_shares_the_node() -> None:
    for exclusive in ("none", "user"):
        request = asked(resource="nvidia.com/gpu.shared", exclusive=exclusive)
        assert (request.problems, request.warnings) == ((), ())


def test_uncounted_gpu_causes_a_warning_if_shared_gpus_are_allowed() -> None:
    request = asked("allow", resource="nvidia.com/gpu.shared")
    assert request.problems == ()
    assert "a native job may use the GPUs of this Pod" in request.warnings[0]


@pytest.mark.parametrize(
    "resource", ["rdma/ib", "example.com/nvidia.com", "nvidia.com/hostdev", "koordinator.sh/rdma"]
)
def test_devices_other_than_gpus_are_left_to_kube_scheduler(resource: str) -> None:
    request = asked(resource=resource, not_gpus=frozenset({"nvidia.com/hostdev"}))
    assert (request.problems, request.warnings) == ((), ())
