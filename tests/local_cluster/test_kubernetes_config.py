"""Tests of the configuration of kube-scheduler and kube-apiserver for an extender."""

import json
import os
import re
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.blueprint import port_names
from deploy.local.chart import AGENT_NAME, AGENT_USER, NAMESPACE, Rendered, values_of
from deploy.local.kubernetes.components import (
    EXTENDER_PROGRAM,
    control_components,
    extender_environment,
    store_components,
    write_extender_program,
)
from deploy.local.kubernetes.scheduler_config import configured
from deploy.local.layout import Layout
from deploy.local.programs.helm_binary import helm
from deploy.local.programs.kubernetes_binaries import BINARIES
from deploy.local.progress import silent
from deploy.local.spec import EXTENDER_VERBS, ClusterSpec
from extender.pod_request.gang import CONTROLLERS, LEADER, LWS_SIZE
from tests.kube_scheduler.entries import entry, shown_for_others
from tests.wellknown.test_names import NOTES
from wellknown.names import (
    CONDITION,
    DEFAULT_PREFIX,
    GATE,
    JOB_ID,
    LINGERING,
    OUT_OF_SERVICE,
    PODS_REJECTED,
    SLURM_OUT_OF_SERVICE,
    SLURMD,
)

pytestmark = pytest.mark.real  # Helm is built once


@cache
def chart(spec: ClusterSpec) -> Rendered:
    return Rendered.of(helm(silent), values_of(spec, 1, "ca"))


def test_recorded_objects_are_those_that_helm_makes() -> None:
    recorded = Rendered.recorded(1, "ca")
    assert recorded == chart(ClusterSpec()), "run python -m deploy.local.chart"


def configuration(spec: ClusterSpec, *, others: bool = False) -> str:
    return configured(chart(spec), spec, 1, Layout(Path("cluster")), others=others)


def kube_scheduler(spec: ClusterSpec, *, others: bool = False) -> tuple[set[str], dict[str, Any]]:
    """Returns the names of the profiles, and the entries of the extender as one, of a kube-scheduler's
    configuration."""
    rendered = yaml.safe_load(configuration(spec, others=others))
    extender = {key: value for each in rendered["extenders"] for key, value in each.items()}
    return {profile["schedulerName"] for profile in rendered["profiles"]}, extender


def verbs_of(extender: dict[str, Any]) -> set[str]:
    return {extender[key] for key in extender if key.endswith("Verb")}


def asked_by_kube_scheduler(spec: ClusterSpec) -> set[str]:
    _, extender = kube_scheduler(spec)
    return verbs_of(extender)


def objects(spec: ClusterSpec) -> dict[tuple[str, str], Any]:
    """Returns the objects that are created in kube-apiserver, by kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each for each in chart(spec).wanted(spec)}


def webhooks(spec: ClusterSpec) -> set[str]:
    """Returns the verbs that kube-apiserver calls."""
    asked = (each.get("webhooks", ()) for each in objects(spec).values())
    return {hook["clientConfig"]["url"].split("/")[3] for hooks in asked for hook in hooks}


def test_extender_gets_all_calls_by_default() -> None:
    assert webhooks(ClusterSpec()) == {"mutate", "validate"}
    assert asked_by_kube_scheduler(ClusterSpec()) == set(EXTENDER_VERBS) - {"mutate", "validate"}


def test_extender_gets_only_calls_of_its_verbs() -> None:
    spec = ClusterSpec(extender_verbs=("filter", "bind"))
    assert asked_by_kube_scheduler(spec) == {"filter", "bind"}
    assert not webhooks(spec)


@pytest.mark.parametrize("on", [False, True])
def test_profile_of_the_extender_disables_preemption_by_default(
    on: bool,
) -> None:
    """`multiPoint` covers single Pods and PodGroups. `postFilter` covers only single Pods, and
    Kubernetes 1.36 rejects the field for PodGroups of 1.37."""
    spec = ClusterSpec(default_preemption=on)
    others, ours = yaml.safe_load(configuration(spec))["profiles"]
    assert others == {"schedulerName": "default-scheduler"}
    off = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}
    assert ours.get("plugins") == (None if on else off)


def test_kube_scheduler_has_both_profiles_and_needs_the_extender() -> None:
    profiles, extender = kube_scheduler(ClusterSpec())
    assert profiles == {"default-scheduler", "slurm-scheduler"}
    assert extender["ignorable"] is False
    _, extender = kube_scheduler(ClusterSpec(ignorable=True))
    assert extender["ignorable"] is True


@pytest.mark.parametrize("ignorable", [False, True])
def test_own_kube_scheduler_always_needs_the_extender(
    ignorable: bool,
) -> None:
    spec = ClusterSpec(own_scheduler=True, ignorable=ignorable)
    profiles, extender = kube_scheduler(spec)
    assert profiles == {"slurm-scheduler"}
    assert extender["ignorable"] is False
    profiles, extender = kube_scheduler(spec, others=True)
    assert profiles == {"default-scheduler"}
    assert (verbs_of(extender), extender["ignorable"]) == ({"filter", "preempt"}, ignorable)


def test_other_kube_scheduler_is_configured_as_the_page_shows() -> None:
    spec = ClusterSpec(own_scheduler=True, ignorable=True)
    assert entry(configuration(spec, others=True)) == shown_for_others()


def test_slurm_extender_command_has_the_settings_of_the_cluster(tmp_path: Path) -> None:
    gres = '{"example.com/gpu": "it\'s \\"odd\\""}'
    spec, ports = ClusterSpec(extender_settings=(("GRES", gres),)), defaultdict[str, int](int)
    layout = Layout(tmp_path)
    layout.bin.mkdir()
    write_extender_program(spec, ports, layout)
    command = layout.bin / EXTENDER_PROGRAM
    helped = subprocess.run([command, "audit", "--help"], capture_output=True, text=True, check=True)
    assert "all differences between both systems" in helped.stdout
    print_environment = "-c 'import json, os; print(json.dumps(dict(os.environ)))'"
    exported = command.read_text().replace("-m extender", print_environment)
    printed = subprocess.run(["sh", "-c", exported], capture_output=True, text=True, check=True)
    settings = extender_environment("extender", spec, ports, layout)
    settings["SLURM_EXTENDER_KUBECONFIG"] = str(layout.kubeconfig)
    assert json.loads(printed.stdout).items() >= settings.items()
    own = {**os.environ, "SLURM_EXTENDER_GRES": "{}"}
    printed = subprocess.run(["sh", "-c", exported], env=own, capture_output=True, text=True, check=True)
    assert json.loads(printed.stdout)["SLURM_EXTENDER_GRES"] == "{}"


def test_annotations_of_the_extender_are_guarded_and_not_copied() -> None:
    """The webhook for copies is first, because later webhooks write the number of the attempt."""
    spec = ClusterSpec(namespaces=("team-a",), pod_labels=(("slurm", "yes"),))
    made = objects(spec)
    copies = made["MutatingWebhookConfiguration", "slurm-extender"]["webhooks"][0]
    assert (copies["name"], copies["failurePolicy"]) == ("copies.slurm-extender.io", "Ignore")
    assert not {"namespaceSelector", "objectSelector"} & copies.keys()
    guard = made["ValidatingAdmissionPolicy", "slurm-extender-bookkeeping"]["spec"]
    for condition, others in (
        (copies["matchConditions"][0], set()),
        (guard["matchConditions"][0], {GATE, CONDITION}),
    ):
        keys = re.findall(r"'(slurm-extender\.io/[\w-]+)'", condition["expression"])
        assert set(keys) == NOTES | others
        labels = re.findall(r"labels\[\?'([^']+)'\]", condition["expression"])
        assert set(labels) == {JOB_ID}


def test_a_pod_keeps_all_that_names_its_gang() -> None:
    guard = objects(ClusterSpec())["ValidatingAdmissionPolicy", "slurm-extender-bookkeeping"]["spec"]
    own = [f"{DEFAULT_PREFIX}{name}" for name in ("gang", "gang-size", "members-per-node")]
    labels = [label for each in CONTROLLERS.values() for label in (each.name, *each.identity)]
    for expression in (
        guard["matchConditions"][0]["expression"],
        guard["validations"][0]["messageExpression"],
    ):
        assert all(f"'{name}'" in expression for name in (*own, *labels, LEADER, LWS_SIZE))


def is_agents(manifest: dict[str, Any]) -> bool:
    return bool(manifest["metadata"]["labels"].get("app.kubernetes.io/component") == "node-agent")


def test_objects_name_only_keys_that_the_extender_knows() -> None:
    spec = ClusterSpec(validates_pods=True, namespaces=("team-a",))
    rendered = json.dumps([each for each in objects(spec).values() if not is_agents(each)])
    keys = set(re.findall(r"(?:'|\"key\": \")(slurm-extender\.io/[\w-]+)", rendered))
    of_nodes = {LINGERING, SLURM_OUT_OF_SERVICE, PODS_REJECTED, SLURMD, OUT_OF_SERVICE}
    assert keys == {*NOTES, GATE, CONDITION, *of_nodes, "slurm-extender.io/every-pod"}
    assert set(re.findall(r"startsWith\('([^']+\.com/)'\)", rendered)) == {DEFAULT_PREFIX}


def test_resize_of_a_pod_with_a_job_is_denied() -> None:
    """tests/end_to_end/test_policy.py tests the expression of the policy with a real kube-apiserver."""
    made = objects(ClusterSpec())
    policy = made["ValidatingAdmissionPolicy", "slurm-extender-resize"]["spec"]
    assert policy["matchConstraints"]["resourceRules"][0]["resources"] == ["pods/resize"]
    bound = made["ValidatingAdmissionPolicyBinding", "slurm-extender-resize"]["spec"]
    assert bound == {"policyName": "slurm-extender-resize", "validationActions": ["Deny"]}


@pytest.mark.parametrize("guest", [False, True])
def test_agent_of_the_guest_has_the_role_of_the_agent_account(guest: bool) -> None:
    """The agent of the guest has a static token without a Node, so the policy must not apply to the
    agent's user. tests/end_to_end/test_own_node.py tests the expression of the policy with a real
    kube-apiserver."""
    spec = ClusterSpec(guest=guest, extender=False)
    made = {each["kind"]: each for each in chart(spec).wanted(spec)}
    account, *users = made["ClusterRoleBinding"]["subjects"]
    assert account == {"kind": "ServiceAccount", "name": AGENT_NAME, "namespace": NAMESPACE}
    assert [user["name"] for user in users] == ([AGENT_USER] if guest else [])
    (only,) = made["ValidatingAdmissionPolicy"]["spec"]["matchConditions"]
    whom = f"'system:serviceaccount:{NAMESPACE}:{AGENT_NAME}'"
    assert only["expression"] == f"request.userInfo.username == {whom}"


def argv(spec: ClusterSpec, name: str) -> tuple[str, ...]:
    """Returns the command line of a component."""
    binaries, ports = {each: each for each in BINARIES}, dict.fromkeys(port_names(spec), 1)
    layout = Layout(Path("nowhere"))
    started = (
        *store_components(spec, binaries, ports, layout),
        *control_components(spec, binaries, ports, layout),
    )
    return next(each.argv for each in started if each.name == name)


def test_feature_gates_are_set_for_all_programs_of_kubernetes() -> None:
    gated = ClusterSpec(feature_gates=("GenericWorkload", "GangScheduling"))
    told = "--feature-gates=GenericWorkload=true,GangScheduling=true"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert told in argv(gated, name)
        assert not any(each.startswith("--feature-gates") for each in argv(ClusterSpec(), name))
    assert "--runtime-config=api/beta=true" in argv(gated, "kube-apiserver")
    assert "--runtime-config=api/beta=true" not in argv(ClusterSpec(), "kube-apiserver")
