"""Each check finds what it is for, and nothing in an installation with which nothing is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local.spec import KUBERNETES_RELEASES
from extender.execution.release_check import Release
from extender.preflight.checks import CHECKS, results, status
from extender.preflight.facts import Answer, Called, Facts, Token, Unread
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
"""What slurmrestd tells of slurm.conf before API v0.0.45."""
WITHOUT_MEMORY = replace(
    partition("bare", ["n1"], max_time_minutes=60), select_type_parameters=("CR_CPU",)
)
NAMES_N1 = {"slurm-extender.io.node-restriction.kubernetes.io/node": "n1"}
OLD = slurm(configuration=BEFORE_45)
OTHER_RELEASE = Release("b", "x", "x-bookkeeping")
ACCOUNTING = {"accounting_storage_type": "accounting_storage/slurmdbd"}


def old(**changes: Any) -> Facts:
    """Returns the facts with an old slurmrestd, and other settings."""
    return settings(OLD, **changes)


def machine(name: str = "n1", **changes: Any) -> Facts:
    """Returns the facts of a cluster with one Node, which has changed."""
    return kubernetes(nodes=(kubernetes_node(name, **changes),))


def pools(**slurm_conf: Any) -> Facts:
    """Returns the facts of an installation that has pools."""
    return settings(conf(**slurm_conf), pools_file=Path("pools"))


CASES: list[tuple[str, Facts, Verdict, str]] = [
    (
        "settings",
        replace(GOOD, variables={"SLURM_EXTENDER_X": None}),
        WARN,
        "no setting: SLURM_EXTENDER_X",
    ),
    (
        "settings",
        replace(GOOD, variables={"SLURM_EXTENDER_SCOP": "SLURM_EXTENDER_SCOPE"}),
        FAIL,
        "SLURM_EXTENDER_SCOP is no setting; SLURM_EXTENDER_SCOPE is probably meant",
    ),
    ("kubernetes-release", kubernetes(release="v1.31.0"), PASS, "v1.31.0"),
    ("kubernetes-release", kubernetes(release="v1.30.9"), FAIL, "the oldest supported is 1.31"),
    ("kubernetes-release", kubernetes(release="v1.38.0"), WARN, "the newest tested is 1.37"),
    ("kubernetes-release", kubernetes(release="v1.37.2-eks-1"), PASS, "eks"),
    ("kubernetes-release", kubernetes(release="unknown"), SKIPPED, "is no release"),
    ("kubernetes-release", kubernetes(release=UNREAD), FAIL, "not told"),
    ("admission-policies", kubernetes(admission_kinds=frozenset({"x"})), FAIL, "no Validating"),
    ("admission-policies", kubernetes(admission_kinds=UNREAD), SKIPPED, "not told"),
    ("node-in-token", kubernetes(release="v1.32.0"), PASS, "since Kubernetes 1.32"),
    ("node-in-token", kubernetes(release="v1.31.0"), FAIL, "names no Node"),
    (
        "node-in-token",
        kubernetes(release="v1.31.0", account=ACCOUNT | {"extra": NODE_IN_TOKEN}),
        PASS,
        "names its Node",
    ),
    ("node-in-token", kubernetes(release="v1.31.0", account=ADMINISTRATOR), SKIPPED, "no Pod's"),
    ("rights", kubernetes(denied=(Right("get", "pods"),)), FAIL, "may not get pods"),
    (
        "rights",
        kubernetes(denied=(Right("get", "pods"),), account=ADMINISTRATOR),
        WARN,
        "admin may not get pods",
    ),
    ("install-rights", kubernetes(account=ADMINISTRATOR), SKIPPED, "is installed"),
    ("install-rights", kubernetes(account=ADMINISTRATOR, lease=None), PASS, "may create all"),
    (
        "install-rights",
        kubernetes(account=ADMINISTRATOR, lease=None, cannot_install=(Right("create", "x"),)),
        FAIL,
        "may not create x",
    ),
    (
        "webhooks",
        kubernetes(webhooks={webhook(name="copies.slurm-extender.io"): ANSWERS}),
        FAIL,
        "without the extender's gate",
    ),
    ("webhooks", kubernetes(webhooks={webhook(): NO_SERVICE}), FAIL, "without the extender's gate"),
    ("webhooks", kubernetes(webhooks={webhook(authority=""): ANSWERS}), FAIL, "no caBundle"),
    ("webhooks", kubernetes(webhooks={}, lease=None), SKIPPED, "nothing is installed"),
    ("webhooks", kubernetes(webhooks=UNREAD), SKIPPED, "not told"),
    (
        "webhook-answers",
        kubernetes(
            webhooks={
                webhook(): ANSWERS,
                webhook("gone/first"): NO_SERVICE,
                webhook("gone/first", kind="validating", required=False): NO_SERVICE,
            },
            lease=None,
        ),
        FAIL,
        "rejects Pods that ask for Slurm (mutatingwebhookconfiguration/first, validatingwebhook",
    ),
    (
        "webhook-answers",
        kubernetes(webhooks={webhook(required=False): Called(Answer.NO, "does not answer: refused")}),
        WARN,
        "Service slurm/slurm-extender does not answer: refused: wrong Pod templates get no warning",
    ),
    (
        "webhook-answers",
        kubernetes(webhooks={webhook(): ANSWERS, webhook("b/x"): ANSWERS}),
        WARN,
        "Service b/x answers, in another namespace than slurm",
    ),
    (
        "webhook-answers",
        kubernetes(webhooks={webhook(): Called(Answer.UNKNOWN, "was not called: forbidden")}),
        SKIPPED,
        "Service slurm/slurm-extender was not called: forbidden",
    ),
    ("webhook-answers", kubernetes(webhooks={}, lease=None), PASS, "no webhook of slurm-extender"),
    ("webhook-answers", kubernetes(webhooks=UNREAD), SKIPPED, "not told"),
    ("policies", kubernetes(policies=("slurm-extender-resize",)), FAIL, "ends in bookkeeping"),
    ("policies", kubernetes(policies=("a-bookkeeping",)), WARN, "ends in resize"),
    ("policies", kubernetes(policies=(), lease=None), SKIPPED, "nothing is installed"),
    (
        "one-release",
        kubernetes(releases=(RELEASE, OTHER_RELEASE)),
        FAIL,
        "has 2 releases of slurm-extender: slurm/slurm-extender (slurm-extender-bookkeeping), b/x",
    ),
    ("one-release", kubernetes(releases=(OTHER_RELEASE,) * 2), FAIL, "2 releases"),
    ("one-release", kubernetes(releases=(OTHER_RELEASE,)), WARN, "in another namespace than slurm"),
    ("one-release", kubernetes(releases=()), PASS, "no other release"),
    ("one-release", kubernetes(releases=UNREAD), SKIPPED, "not told"),
    ("scheduler", good.scheduler(configuration(entry={"ignorable": True})), FAIL, "ignorable"),
    ("scheduler", replace(GOOD, scheduler=UNREAD), SKIPPED, "not told"),
    ("preemption", good.scheduler(configuration(entry=WITHOUT_VERB)), FAIL, "has no preemptVerb"),
    (
        "preemption",
        good.scheduler(configuration({"multiPoint": {"disabled": OFF}}, WITHOUT_VERB)),
        PASS,
        "is off in the profile",
    ),
    ("nri", machine(runtime="containerd://1.7.27"), WARN, "NRI off"),
    ("nri", machine(runtime="cri-o://1.34.1"), PASS, "NRI on"),
    ("nri", machine(runtime=""), SKIPPED, "do not tell"),
    ("slurm-api", slurm(capabilities=UNREAD), FAIL, "not told"),
    ("slurm-api", slurm(capabilities=UNREAD, accepted=False), SKIPPED, "not told"),
    ("slurm-api", slurm(capabilities=UNREAD, token=UNREAD), SKIPPED, "no token"),
    ("slurm-api", slurm(accepted=UNREAD), FAIL, "slurmctld does not answer"),
    ("slurm-api", slurm(capabilities=replace(EXTERNAL, external_jobs=False)), WARN, "a batch job"),
    ("token", slurm(token=UNREAD), FAIL, "not told"),
    ("token", slurm(token=Token("slurm", NOW - 60)), FAIL, "expired at"),
    ("token", slurm(accepted=False), FAIL, "does not take the token of slurm"),
    ("token", slurm(token=Token("slurm", NOW + DAY)), WARN, "which ends at"),
    ("token", slurm(token=Token("slurm", None)), PASS, "does not end"),
    ("token", slurm(token=Token(None, None), accepted=False), FAIL, "of nobody"),
    ("token-rights", slurm(privileged=False), FAIL, "slurm may neither choose"),
    ("token-rights", slurm(privileged=UNREAD), SKIPPED, "not told"),
    ("job-ids", conf(max_job_id=67_043_328), WARN, "one day"),
    ("job-ids", conf(next_job_id=33_554_432, max_job_id=67_043_328), FAIL, "has come into"),
    ("job-ids", OLD, SKIPPED, "MAX_JOB_ID is not set"),
    ("job-ids", slurm(configuration=BEFORE_45, newest_job_id=33_000_000), FAIL, "comes near"),
    ("job-ids", old(max_job_id=33_554_432), PASS, "up to 33554432"),
    ("kill-wait", conf(kill_wait_s=36), PASS, "may be 30 s"),
    ("kill-wait", conf(kill_wait_s=35), WARN, "may be 29 s, and Kubernetes' default"),
    ("kill-wait", conf(kill_wait_s=6), FAIL, "may be 0 s"),
    ("kill-wait", settings(conf(kill_wait_s=30), default_grace="refuse"), FAIL, "are refused"),
    ("kill-wait", OLD, SKIPPED, "reports no KillWait"),
    ("kill-wait", old(kill_wait_s=10), WARN, "KILL_WAIT_S is 10"),
    ("preempt-type", OLD, WARN, "no fast path"),
    ("preempt-type", old(preempt_type="preempt/qos"), PASS, "qos"),
    ("preempt-type", settings(preempt_type="preempt/qos"), WARN, "says preempt/qos"),
    ("preempt-type", settings(preempt_type="preempt/none"), PASS, "preempt/none"),
    (
        "scheduler-parameters",
        conf(scheduler_parameters=("nohold_on_prolog_fail", "defer")),
        WARN,
        "defer",
    ),
    ("scheduler-parameters", conf(scheduler_parameters=()), FAIL, "nohold_on_prolog_fail"),
    ("scheduler-parameters", conf(scheduler_parameters=(), prologs=()), PASS, "nothing"),
    ("scheduler-parameters", OLD, SKIPPED, "reports no"),
    ("timeouts", conf(message_timeout_s=15), WARN, "MessageTimeout is 15"),
    ("timeouts", OLD, SKIPPED, "reports no"),
    (
        "partitions",
        replace(GOOD, asked_partitions={"gpu": "the policy's rule a"}),
        FAIL,
        "rule a names gpu",
    ),
    ("partitions", slurm(partitions=(partition("main", ["n1"]),)), WARN, "each Pod has to name one"),
    (
        "partitions",
        slurm(partitions=(*good.SLURM.partitions, partition("old", ["n1"], up=False))),  # type: ignore[misc]
        WARN,
        "old is not up",
    ),
    ("cgroups", conf(task_plugins=("task/affinity",)), WARN, "no task/cgroup"),
    (
        "cgroups",
        conf(proctrack_type="proctrack/linuxproc"),
        WARN,
        "ProctrackType is proctrack/linuxproc",
    ),
    ("cgroups", OLD, SKIPPED, "cgroup.conf never"),
    ("hooks", settings(hooks_token_file=None), SKIPPED, "takes no pushes"),
    ("hooks", conf(slurmctld_epilogs=()), WARN, "no EpilogSlurmctld"),
    ("hooks", conf(slurmctld_epilogs=("/opt/mine",)), WARN, "is /opt/mine: does it call"),
    ("hooks", OLD, SKIPPED, "reports no"),
    ("prolog", conf(prologs=()), WARN, "no Prolog"),
    ("prolog", conf(prologs=("/opt/mine",)), WARN, "is /opt/mine: does it call"),
    ("prolog", OLD, SKIPPED, "reports no"),
    ("prolog", conf(prolog_flags=("NoHold",)), WARN, "has no Alloc"),
    ("select-type-parameters", conf(select_type_parameters=("CR_CORE",)), FAIL, "is CR_CORE, without"),
    ("select-type-parameters", slurm(partitions=(WITHOUT_MEMORY,)), FAIL, "of partition bare is CR_CPU"),
    (
        "select-type-parameters",
        slurm(partitions=(replace(WITHOUT_MEMORY, nodes=("elsewhere",)),)),
        PASS,
        "is CR_CORE_MEMORY",
    ),
    ("select-type-parameters", conf(select_type="select/linear"), WARN, "whole nodes"),
    (
        "select-type-parameters",
        conf(select_type="select/linear", select_type_parameters=("CR_CPU",)),
        WARN,
        "whole nodes",
    ),
    (
        "select-type-parameters",
        slurm(partitions=(replace(WITHOUT_MEMORY, oversubscribe="EXCLUSIVE"),)),
        PASS,
        "is CR_CORE_MEMORY",
    ),
    ("select-type-parameters", OLD, SKIPPED, "PARAMETERS is not set"),
    (
        "select-type-parameters",
        old(select_type_parameters="CR_Core"),
        FAIL,
        "is CR_Core, without memory",
    ),
    (
        "select-type-parameters",
        old(select_type_parameters="CR_Core_Memory,CR_PACK_NODES"),
        PASS,
        "is CR_Core_Memory,CR_PACK_NODES",
    ),
    ("select-type-parameters", settings(select_type_parameters="CR_Core"), PASS, "CR_CORE_MEMORY"),
    ("min-job-age", conf(min_job_age_s=299), WARN, "is 299 s"),
    ("min-job-age", conf(min_job_age_s=0), PASS, "is 0 s"),
    ("min-job-age", OLD, SKIPPED, "reports no"),
    ("max-job-count", conf(max_job_count=9_999), WARN, "at most 4999 placeholders"),
    ("max-job-count", OLD, SKIPPED, "reports no"),
    ("max-job-count", old(max_job_count=5000), WARN, "MAX_JOB_COUNT is 5000"),
    ("default-time", slurm(partitions=(partition("main", ["n1"]),)), WARN, "partitions main"),
    ("default-time", slurm(partitions=(partition("main", ["n1"], up=False),)), PASS, "each partition"),
    (
        "default-time",
        slurm(partitions=(replace(partition("main", ["n1"]), default_time_minutes=60),)),
        PASS,
        "each partition",
    ),
    (
        "backfill",
        slurm(waiting_jobs=1000),
        WARN,
        "has no bf_continue, bf_yield_interval, bf_yield_sleep",
    ),
    ("backfill", slurm(waiting_jobs=999), PASS, "999 jobs wait"),
    ("backfill", OLD, SKIPPED, "reports no"),
    ("accounting-store-flags", conf(**ACCOUNTING), WARN, "no job_comment"),
    (
        "accounting-store-flags",
        conf(**ACCOUNTING, accounting_store_flags=("job_comment",)),
        PASS,
        "has job_comment",
    ),
    ("accounting-store-flags", OLD, SKIPPED, "reports no"),
    ("pools", pools(), FAIL, "no enable_configless and MaxNodeCount is 0, and Slurm has 1 nodes"),
    ("pools", pools(slurmctld_parameters=("enable_configless",), max_node_count=2), WARN, "ReturnTo"),
    (
        "pools",
        pools(slurmctld_parameters=("enable_configless",), max_node_count=2, return_to_service="all"),
        PASS,
        "MaxNodeCount is 2",
    ),
    ("pools", old(pools_file=Path("pools")), SKIPPED, "reports no"),
    ("node-names", machine("other"), FAIL, "no Node has the name"),
    (
        "node-names",
        kubernetes(nodes=(kubernetes_node(), kubernetes_node("other"))),
        WARN,
        "Nodes that Slurm does not know: other",
    ),
    (
        "node-names",
        slurm(nodes=(node("n1", gres="gpu:8"), node("n2"), node("n3"))),
        WARN,
        "nodes of Slurm without a Node: n2, n3",
    ),
    (
        "node-names",
        kubernetes(nodes=tuple(kubernetes_node(name, labels=NAMES_N1) for name in ("a", "b"))),
        FAIL,
        "Nodes a, b name Slurm's node n1",
    ),
    (
        "node-names",
        kubernetes(nodes=(kubernetes_node(), kubernetes_node("b", labels=NAMES_N1))),
        WARN,
        "n1 alone stands for it",
    ),
    ("node-names", slurm(nodes=UNREAD), SKIPPED, "not told"),
    (
        "gres",
        machine(capacity=MACHINE | {"nvidia.com/gpu": "7"}),
        FAIL,
        "Node n1 has 7 nvidia.com/gpu, and Slurm's node n1 8 gpu",
    ),
    ("gres", slurm(nodes=(node("n1"),)), WARN, "Node n1 has 8 nvidia.com/gpu, and Slurm's node n1 0"),
    (
        "gres",
        machine(allocatable=MACHINE | {"nvidia.com/gpu.shared": "16"}),
        WARN,
        "Node n1 has nvidia.com/gpu.shared, which is mapped to no GRES",
    ),
    ("gres", slurm(nodes=(node("elsewhere"),)), SKIPPED, "no Node stands for"),
    ("cpus", slurm(nodes=(node("n1", cpus=32),)), FAIL, "Kubernetes counts 16"),
    (
        "cpus",
        machine(allocatable=MACHINE | {"cpu": "15500m"}),
        WARN,
        "gives 16 CPUs of node n1, and 15500m are allocatable",
    ),
    ("cpus", slurm(nodes=(replace(node("n1"), cores=8),)), PASS, "whole cores of 2 CPUs"),
    (
        "memory",
        machine(allocatable=MACHINE | {"memory": "63000Mi"}),
        WARN,
        "gives 64000 MiB of node n1, and 63000 are allocatable",
    ),
    ("node-agents", machine(), SKIPPED, "no Node has the condition"),
    (
        "node-agents",
        machine(conditions=(condition("True", "GPU 3 has fallen off"),)),
        FAIL,
        "Node n1: GPU 3 has fallen off",
    ),
]


def found(facts: Facts) -> dict[str, Result]:
    return {result.check: result for result in results(facts)}


@pytest.mark.parametrize(("name", "facts", "verdict", "words"), CASES)
def test_a_check_finds_what_it_is_for(name: str, facts: Facts, verdict: Verdict, words: str) -> None:
    result = found(facts)[name]
    assert (result.verdict, words in result.words) == (verdict, True), result
    assert bool(result.fix) is (verdict is not PASS)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    verdicts = {name: result.verdict for name, result in found(GOOD).items()}
    skipped = {name for name, verdict in verdicts.items() if verdict is not PASS}
    assert skipped == {"install-rights", "cgroups"}  # a Pod's account; cgroup.conf, which nobody tells
    assert set(verdicts.values()) == {PASS, SKIPPED}


def test_what_slurm_and_the_kubelet_keep_for_themselves_is_counted() -> None:
    kept = {"cpu": "15", "memory": "63000Mi", "nvidia.com/gpu": "8"}
    reserving = replace(node("n1", gres="gpu:8"), cpus_reserved=1, memory_reserved_mb=1000)
    facts = replace(
        kubernetes(nodes=(kubernetes_node(allocatable=kept),)), slurm=slurm(nodes=(reserving,)).slurm
    )
    assert {found(facts)[name].verdict for name in ("cpus", "memory")} == {PASS}


def test_each_check_can_fail_or_warn_and_has_its_words() -> None:
    assert {name for name, _, verdict, _ in CASES if verdict in (WARN, FAIL)} == set(found(GOOD))
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


def test_the_releases_of_kubernetes_are_those_that_are_tested() -> None:
    assert [f"{major}.{minor}" for major, minor in (NEWEST, OLDEST)] == list(KUBERNETES_RELEASES)
    assert CONFIGURATION.max_job_id == GOOD.settings.job_id_first
