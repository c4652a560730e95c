"""Tests of preflight's checks: each check finds its fault, and finds nothing in an installation without
problems."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local.spec import KUBERNETES_RELEASES
from extender.execution.release_check import Release
from extender.explain.wording import NO_DRA
from extender.preflight.checks import CHECKS, results, status
from extender.preflight.facts import Answer, Called, Facts, Token, Unread, known
from extender.preflight.kubernetes_checks import NEWEST, OLDEST
from extender.preflight.result import Result, Verdict
from kubernetes_client.protocol import Right
from slurm_client.in_memory import node, partition
from slurm_client.server import Configuration
from tests.kube_scheduler.test_configuration import OFF, WITHOUT_VERB, configuration
from tests.preflight import good
from tests.preflight.good import (
    ACCOUNT,
    ADMINISTRATOR,
    ANSWERS,
    CONFIGURATION,
    DAY,
    EXTERNAL,
    GOOD,
    MACHINE,
    NO_SERVICE,
    NOW,
    RELEASE,
    condition,
    conf,
    kubernetes,
    kubernetes_node,
    settings,
    slurm,
    webhook,
)

UNREAD = Unread("it is not told")
PASS, WARN, FAIL, SKIPPED = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIPPED
NODE_IN_TOKEN = {"authentication.kubernetes.io/node-name": ["n1"]}
BEFORE_45 = Configuration(boot_time=1)
"""Configuration that slurmrestd reports in versions of the API before v0.0.45: almost nothing."""
WITHOUT_MEMORY = replace(
    partition("bare", ["n1"], max_time_minutes=60), select_type_parameters=("CR_CPU",)
)
WITHOUT_GPUS = {"cpu": "16", "memory": "64000Mi"}
NAMES_N1 = {"slurm-extender.io.node-restriction.kubernetes.io/node": "n1"}
OLD = slurm(configuration=BEFORE_45)
OTHER_RELEASE = Release("b", "x", "x-bookkeeping")
ACCOUNTING = {"accounting_storage_type": "accounting_storage/slurmdbd"}
READY: dict[str, Any] = {
    "slurmctld_parameters": ("enable_configless",),
    "max_node_count": 2,
    "return_to_service": "all",
}
"""Settings of slurm.conf that pools need."""


def old(**changes: Any) -> Facts:
    """Returns the facts of an installation with an old slurmrestd and with changed settings."""
    return settings(OLD, **changes)


def machine(name: str = "n1", **changes: Any) -> Facts:
    """Returns the facts of a cluster with a single Node, which is changed."""
    return kubernetes(nodes=(kubernetes_node(name, **changes),))


def pools(**slurm_conf: Any) -> Facts:
    """Returns the facts of an installation with pools."""
    return settings(conf(**slurm_conf), pools_file=Path("pools"))


CASES: dict[tuple[str, Verdict, str], Facts] = {
    ("settings", WARN, "no setting: SLURM_EXTENDER_X"): replace(
        GOOD, variables={"SLURM_EXTENDER_X": None}
    ),
    (
        "settings",
        FAIL,
        "SLURM_EXTENDER_SCOP is no setting; SLURM_EXTENDER_SCOPE is probably meant",
    ): replace(GOOD, variables={"SLURM_EXTENDER_SCOP": "SLURM_EXTENDER_SCOPE"}),
    ("kubernetes-release", PASS, "v1.31.0"): kubernetes(release="v1.31.0"),
    ("kubernetes-release", FAIL, "the oldest supported is 1.31"): kubernetes(release="v1.30.9"),
    ("kubernetes-release", WARN, "the newest tested is 1.37"): kubernetes(release="v1.38.0"),
    ("kubernetes-release", PASS, "eks"): kubernetes(release="v1.37.2-eks-1"),
    ("kubernetes-release", SKIPPED, "is no release"): kubernetes(release="unknown"),
    ("kubernetes-release", FAIL, "not told"): kubernetes(release=UNREAD),
    ("admission-policies", FAIL, "no Validating"): kubernetes(admission_kinds=frozenset({"x"})),
    ("admission-policies", SKIPPED, "not told"): kubernetes(admission_kinds=UNREAD),
    ("node-in-token", PASS, "since Kubernetes 1.32"): kubernetes(release="v1.32.0"),
    ("node-in-token", FAIL, "names no Node"): kubernetes(release="v1.31.0"),
    ("node-in-token", PASS, "names its Node"): kubernetes(
        release="v1.31.0", account=ACCOUNT | {"extra": NODE_IN_TOKEN}
    ),
    ("node-in-token", SKIPPED, "no Pod's"): kubernetes(release="v1.31.0", account=ADMINISTRATOR),
    ("rights", FAIL, "may not get pods"): kubernetes(denied=(Right("get", "pods"),)),
    ("rights", WARN, "admin may not get pods"): kubernetes(
        denied=(Right("get", "pods"),), account=ADMINISTRATOR
    ),
    ("install-rights", SKIPPED, "is installed"): kubernetes(account=ADMINISTRATOR),
    ("install-rights", PASS, "may create all"): kubernetes(account=ADMINISTRATOR, lease=None),
    ("install-rights", FAIL, "may not create x"): kubernetes(
        account=ADMINISTRATOR, lease=None, cannot_install=(Right("create", "x"),)
    ),
    ("webhooks", FAIL, "without the extender's gate"): kubernetes(
        webhooks={webhook(name="copies.slurm-extender.io"): ANSWERS}
    ),
    ("webhooks", FAIL, "Pods are created without the extender's gate"): kubernetes(
        webhooks={webhook(): NO_SERVICE}
    ),
    ("webhooks", FAIL, "no caBundle"): kubernetes(webhooks={webhook(authority=""): ANSWERS}),
    ("webhooks", SKIPPED, "nothing is installed"): kubernetes(webhooks={}, lease=None),
    ("webhooks", SKIPPED, "not told"): kubernetes(webhooks=UNREAD),
    (
        "webhook-answers",
        FAIL,
        "rejects Pods that ask for Slurm (mutatingwebhookconfiguration/first, validatingwebhook",
    ): kubernetes(
        webhooks={
            webhook(): ANSWERS,
            webhook("gone/first"): NO_SERVICE,
            webhook("gone/first", kind="validating", required=False): NO_SERVICE,
        },
        lease=None,
    ),
    (
        "webhook-answers",
        WARN,
        "Service slurm/slurm-extender does not answer: refused: wrong Pod templates get no warning",
    ): kubernetes(webhooks={webhook(required=False): Called(Answer.NO, "does not answer: refused")}),
    ("webhook-answers", WARN, "Service b/x answers, in another namespace than slurm"): kubernetes(
        webhooks={webhook(): ANSWERS, webhook("b/x"): ANSWERS}
    ),
    ("webhook-answers", SKIPPED, "Service slurm/slurm-extender was not called: forbidden"): kubernetes(
        webhooks={webhook(): Called(Answer.UNKNOWN, "was not called: forbidden")}
    ),
    ("webhook-answers", PASS, "no webhook of slurm-extender"): kubernetes(webhooks={}, lease=None),
    ("webhook-answers", SKIPPED, "not told"): kubernetes(webhooks=UNREAD),
    ("policies", FAIL, "ends in bookkeeping"): kubernetes(policies=("slurm-extender-resize",)),
    ("policies", WARN, "ends in resize"): kubernetes(policies=("a-bookkeeping",)),
    ("policies", SKIPPED, "nothing is installed"): kubernetes(policies=(), lease=None),
    (
        "one-release",
        FAIL,
        "has 2 releases of slurm-extender: slurm/slurm-extender (slurm-extender-bookkeeping), b/x",
    ): kubernetes(releases=(RELEASE, OTHER_RELEASE)),
    ("one-release", FAIL, "2 releases"): kubernetes(releases=(OTHER_RELEASE,) * 2),
    ("one-release", WARN, "in another namespace than slurm"): kubernetes(releases=(OTHER_RELEASE,)),
    ("one-release", PASS, "no other release"): kubernetes(releases=()),
    ("one-release", SKIPPED, "not told"): kubernetes(releases=UNREAD),
    ("scheduler", FAIL, "ignorable"): good.scheduler(configuration(entry={"ignorable": True})),
    ("scheduler", SKIPPED, "not told"): replace(GOOD, scheduler=UNREAD),
    ("preemption", FAIL, "has no preemptVerb"): good.scheduler(configuration(entry=WITHOUT_VERB)),
    ("preemption", PASS, "is off in the profile"): good.scheduler(
        configuration({"multiPoint": {"disabled": OFF}}, WITHOUT_VERB)
    ),
    ("nri", WARN, "NRI off"): machine(runtime="containerd://1.7.27"),
    ("nri", PASS, "NRI on"): machine(runtime="cri-o://1.34.1"),
    ("nri", SKIPPED, "do not report"): machine(runtime=""),
    ("slurm-api", FAIL, "not told"): slurm(capabilities=UNREAD),
    ("slurm-api", SKIPPED, "not told"): slurm(capabilities=UNREAD, accepted=False),
    ("slurm-api", SKIPPED, "no token"): slurm(capabilities=UNREAD, token=UNREAD),
    ("slurm-api", FAIL, "slurmctld does not answer"): slurm(accepted=UNREAD),
    ("slurm-api", WARN, "a batch job"): slurm(capabilities=replace(EXTERNAL, external_jobs=False)),
    ("token", FAIL, "not told"): slurm(token=UNREAD),
    ("token", FAIL, "expired at"): slurm(token=Token("slurm", NOW - 60)),
    ("token", FAIL, "rejects the token of slurm"): slurm(accepted=False),
    ("token", WARN, "which expires at"): slurm(token=Token("slurm", NOW + DAY)),
    ("token", PASS, "does not expire"): slurm(token=Token("slurm", None)),
    ("token", FAIL, "of an unnamed user"): slurm(token=Token(None, None), accepted=False),
    ("token-rights", FAIL, "slurm may neither choose"): slurm(privileged=False),
    ("token-rights", SKIPPED, "not told"): slurm(privileged=UNREAD),
    ("job-ids", WARN, "may reach"): conf(max_job_id=67_043_328),
    ("job-ids", FAIL, "has come into"): conf(next_job_id=33_554_432, max_job_id=67_043_328),
    ("job-ids", SKIPPED, "MAX_JOB_ID is not set"): OLD,
    ("job-ids", FAIL, "comes near"): slurm(configuration=BEFORE_45, newest_job_id=33_000_000),
    ("job-ids", PASS, "up to 33554432"): old(max_job_id=33_554_432),
    ("kill-wait", PASS, "may be 30 s"): conf(kill_wait_s=36),
    ("kill-wait", WARN, "may be 29 s, and Kubernetes' default"): conf(kill_wait_s=35),
    ("kill-wait", FAIL, "may be 0 s"): conf(kill_wait_s=6),
    ("kill-wait", FAIL, "are refused"): settings(conf(kill_wait_s=30), default_grace="refuse"),
    ("kill-wait", SKIPPED, "reports no KillWait"): OLD,
    ("kill-wait", WARN, "KILL_WAIT_S is 10"): old(kill_wait_s=10),
    ("preempt-type", WARN, "no fast path"): OLD,
    ("preempt-type", PASS, "qos"): old(preempt_type="preempt/qos"),
    ("preempt-type", WARN, "PREEMPT_TYPE is preempt/qos"): settings(preempt_type="preempt/qos"),
    ("preempt-type", PASS, "preempt/none"): settings(preempt_type="preempt/none"),
    ("scheduler-parameters", WARN, "defer"): conf(
        scheduler_parameters=("nohold_on_prolog_fail", "defer")
    ),
    ("scheduler-parameters", FAIL, "nohold_on_prolog_fail"): conf(scheduler_parameters=()),
    ("scheduler-parameters", PASS, "nothing"): conf(scheduler_parameters=(), prologs=()),
    ("scheduler-parameters", SKIPPED, "reports no"): OLD,
    ("timeouts", WARN, "MessageTimeout is 15"): conf(message_timeout_s=15),
    ("timeouts", SKIPPED, "reports no"): OLD,
    ("partitions", FAIL, "rule a names gpu"): replace(
        GOOD, asked_partitions={"gpu": "the policy's rule a"}
    ),
    ("partitions", WARN, "must name a partition"): slurm(partitions=(partition("main", ["n1"]),)),
    ("partitions", WARN, "old is not up"): slurm(
        partitions=(*known(good.SLURM.partitions), partition("old", ["n1"], up=False))
    ),
    ("cgroups", WARN, "no task/cgroup"): conf(task_plugins=("task/affinity",)),
    ("cgroups", WARN, "ProctrackType is proctrack/linuxproc"): conf(
        proctrack_type="proctrack/linuxproc"
    ),
    ("cgroups", SKIPPED, "cgroup.conf never"): OLD,
    ("hooks", SKIPPED, "takes no pushes"): settings(hooks_token_file=None),
    ("hooks", WARN, "no EpilogSlurmctld"): conf(slurmctld_epilogs=()),
    ("hooks", WARN, "is /opt/mine: does it call"): conf(slurmctld_epilogs=("/opt/mine",)),
    ("hooks", SKIPPED, "reports no"): OLD,
    ("prolog", WARN, "no Prolog"): conf(prologs=()),
    ("prolog", WARN, "is /opt/mine: does it call"): conf(prologs=("/opt/mine",)),
    ("prolog", SKIPPED, "reports no"): OLD,
    ("prolog", WARN, "has no Alloc"): conf(prolog_flags=("NoHold",)),
    ("select-type-parameters", FAIL, "is CR_CORE, without"): conf(select_type_parameters=("CR_CORE",)),
    ("select-type-parameters", FAIL, "of partition bare is CR_CPU"): slurm(partitions=(WITHOUT_MEMORY,)),
    ("select-type-parameters", PASS, "is CR_CORE_MEMORY"): slurm(
        partitions=(replace(WITHOUT_MEMORY, nodes=("elsewhere",)),)
    ),
    ("select-type-parameters", WARN, "whole nodes"): conf(select_type="select/linear"),
    ("select-type-parameters", WARN, "each job gets whole nodes"): conf(
        select_type="select/linear", select_type_parameters=("CR_CPU",)
    ),
    ("select-type-parameters", PASS, "SelectTypeParameters is CR_CORE_MEMORY"): slurm(
        partitions=(replace(WITHOUT_MEMORY, oversubscribe="EXCLUSIVE"),)
    ),
    ("select-type-parameters", SKIPPED, "PARAMETERS is not set"): OLD,
    ("select-type-parameters", FAIL, "is CR_Core, without memory"): old(
        select_type_parameters="CR_Core"
    ),
    ("select-type-parameters", PASS, "is CR_Core_Memory,CR_PACK_NODES"): old(
        select_type_parameters="CR_Core_Memory,CR_PACK_NODES"
    ),
    ("select-type-parameters", PASS, "CR_CORE_MEMORY"): settings(select_type_parameters="CR_Core"),
    ("min-job-age", WARN, "is 299 s"): conf(min_job_age_s=299),
    ("min-job-age", PASS, "is 0 s"): conf(min_job_age_s=0),
    ("min-job-age", SKIPPED, "reports no"): OLD,
    ("max-job-count", WARN, "at most 4999 placeholders"): conf(max_job_count=9_999),
    ("max-job-count", SKIPPED, "reports no"): OLD,
    ("max-job-count", WARN, "MAX_JOB_COUNT is 5000"): old(max_job_count=5000),
    ("default-time", WARN, "partitions main"): slurm(partitions=(partition("main", ["n1"]),)),
    ("default-time", PASS, "each partition"): slurm(partitions=(partition("main", ["n1"], up=False),)),
    ("default-time", PASS, "each partition limits the time"): slurm(
        partitions=(replace(partition("main", ["n1"]), default_time_minutes=60),)
    ),
    ("backfill", WARN, "has no bf_continue, bf_yield_interval, bf_yield_sleep"): slurm(
        waiting_jobs=1000
    ),
    ("backfill", PASS, "999 jobs wait"): slurm(waiting_jobs=999),
    ("backfill", SKIPPED, "reports no"): OLD,
    ("accounting-store-flags", WARN, "no job_comment"): conf(**ACCOUNTING),
    ("accounting-store-flags", PASS, "has job_comment"): conf(
        **ACCOUNTING, accounting_store_flags=("job_comment",)
    ),
    ("accounting-store-flags", SKIPPED, "reports no"): OLD,
    ("pools", FAIL, "no enable_configless and MaxNodeCount is 0, and Slurm has 1 nodes"): pools(),
    ("pools", WARN, "ReturnTo"): pools(slurmctld_parameters=("enable_configless",), max_node_count=2),
    ("pools", PASS, "MaxNodeCount is 2"): pools(**READY),
    ("pools", PASS, "slurmds in Pods may register"): pools(**READY, slurmd_timeout_s=0),
    ("pools", WARN, "SlurmdTimeout is 299 s"): pools(**READY, slurmd_timeout_s=299),
    ("pools", SKIPPED, "reports no"): old(pools_file=Path("pools")),
    ("node-names", FAIL, "no Node has the name"): machine("other"),
    ("node-names", WARN, "Nodes that Slurm does not know: other"): kubernetes(
        nodes=(kubernetes_node(), kubernetes_node("other"))
    ),
    ("node-names", WARN, "Slurm nodes without a Node: n2, n3"): slurm(
        nodes=(node("n1", gres="gpu:8"), node("n2"), node("n3"))
    ),
    ("node-names", FAIL, "Nodes a, b name Slurm's node n1"): kubernetes(
        nodes=tuple(kubernetes_node(name, labels=NAMES_N1) for name in ("a", "b"))
    ),
    ("node-names", WARN, "b alone stands for it"): kubernetes(
        nodes=(kubernetes_node(), kubernetes_node("b", labels=NAMES_N1))
    ),
    ("node-names", SKIPPED, "not told"): slurm(nodes=UNREAD),
    ("gres", FAIL, "Node n1 has 7 nvidia.com/gpu, but Slurm node n1 has 8 gpu"): machine(
        capacity=MACHINE | {"nvidia.com/gpu": "7"}
    ),
    (
        "gres",
        FAIL,
        f"Slurm node n1 has 8 gpu: no Pod with nvidia.com/gpu is placed there ({NO_DRA})",
    ): machine(capacity=WITHOUT_GPUS),
    ("gres", FAIL, "Node n1 has no allocatable nvidia.com/gpu, but"): machine(
        allocatable=WITHOUT_GPUS | {"nvidia.com/gpu": "0"}
    ),
    ("gres", WARN, "Node n1 has 8 nvidia.com/gpu, but Slurm node n1 has 0"): slurm(nodes=(node("n1"),)),
    ("gres", WARN, "Node n1 has nvidia.com/gpu.shared, mapped to no GRES"): machine(
        allocatable=MACHINE | {"nvidia.com/gpu.shared": "16"}
    ),
    ("gres", SKIPPED, "no Node represents"): slurm(nodes=(node("elsewhere"),)),
    ("cpus", FAIL, "Kubernetes counts 16"): slurm(nodes=(node("n1", cpus=32),)),
    ("cpus", WARN, "gives 16 CPUs of node n1, but only 15500m are allocatable"): machine(
        allocatable=MACHINE | {"cpu": "15500m"}
    ),
    ("cpus", PASS, "whole cores of 2 CPUs"): slurm(nodes=(replace(node("n1"), cores=8),)),
    ("memory", WARN, "gives 64000 MiB of node n1, but only 63000 are allocatable"): machine(
        allocatable=MACHINE | {"memory": "63000Mi"}
    ),
    ("node-agents", SKIPPED, "no Node has the condition"): machine(),
    ("node-agents", FAIL, "Node n1: GPU 3 has fallen off"): machine(
        conditions=(condition("True", "GPU 3 has fallen off"),)
    ),
    ("node-agents", FAIL, "Node n1: the node agent is silent"): machine(
        conditions=(condition("False") | {"lastHeartbeatTime": "2020-01-01T12:00:00Z"},)
    ),
    ("device-plugins", FAIL, "beside the node agent: gpu/plugin-x on Node n1"): kubernetes(
        device_plugins={"n1": "gpu/plugin-x", "n2": "gpu/plugin-y"}
    ),
    ("device-plugins", PASS, "no vendor's device plugin runs beside 1 node agents"): kubernetes(
        device_plugins={"n2": "gpu/plugin-y"}
    ),
    ("device-plugins", SKIPPED, "no Node has the condition of a node agent"): machine(),
    ("device-plugins", SKIPPED, "not told"): kubernetes(device_plugins=UNREAD),
}


def found(facts: Facts) -> dict[str, Result]:
    return {result.check: result for result in results(facts)}


@pytest.mark.parametrize(("name", "verdict", "words"), CASES)
def test_each_check_finds_its_fault(name: str, verdict: Verdict, words: str) -> None:
    result = found(CASES[name, verdict, words])[name]
    assert (result.verdict, words in result.words) == (verdict, True), result
    assert bool(result.fix) is (verdict is not PASS)


def test_good_installation_has_no_findings() -> None:
    verdicts = {name: result.verdict for name, result in found(GOOD).items()}
    skipped = {name for name, verdict in verdicts.items() if verdict is not PASS}
    assert skipped == {"install-rights", "cgroups"}  # a Pod's account; unreported cgroup.conf
    assert set(verdicts.values()) == {PASS, SKIPPED}


def test_reserved_resources_of_slurm_and_the_kubelet_are_counted() -> None:
    kept = {"cpu": "15", "memory": "63000Mi", "nvidia.com/gpu": "8"}
    reserving = replace(node("n1", gres="gpu:8"), cpus_reserved=1, memory_reserved_mb=1000)
    facts = replace(
        kubernetes(nodes=(kubernetes_node(allocatable=kept),)), slurm=slurm(nodes=(reserving,)).slurm
    )
    assert {found(facts)[name].verdict for name in ("cpus", "memory")} == {PASS}


def test_a_plugin_is_no_problem_on_a_node_without_its_devices() -> None:
    """NVIDIA's own manifest runs the device plugin on every Node, even on Nodes without GPUs."""
    plain = kubernetes_node("n2", WITHOUT_GPUS, conditions=(condition("False"),))
    nodes = (*known(GOOD.kubernetes.nodes), plain)
    both = kubernetes(nodes=nodes, device_plugins={"n2": "gpu/plugin-y"})
    assert found(both)["device-plugins"].verdict is PASS


def test_each_check_can_fail_or_warn_and_has_texts() -> None:
    assert {name for name, verdict, _ in CASES if verdict in (WARN, FAIL)} == set(found(GOOD))
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.about.endswith(".") and check.fix.endswith(".") and check.look for check in CHECKS)


@pytest.mark.parametrize("because", ["token", "timeouts"])
def test_a_cause_is_named_only_if_its_check_fails(because: str) -> None:
    facts = slurm(accepted=False, nodes=Unread("the token is wrong", because))
    causes = {name: found(facts)[name].because for name in ("node-names", "gres", "token")}
    told = because if because == "token" else ""
    assert causes == {"node-names": told, "gres": told, "token": ""}


def test_the_exit_status_says_whether_something_fails() -> None:
    assert status(results(GOOD)) == 0
    assert status(results(conf(kill_wait_s=30))) == 0
    assert status(results(slurm(accepted=False))) == 1


def test_supported_kubernetes_releases_are_the_tested_releases() -> None:
    assert [f"{major}.{minor}" for major, minor in (NEWEST, OLDEST)] == list(KUBERNETES_RELEASES)
    assert CONFIGURATION.max_job_id == GOOD.settings.job_id_first
