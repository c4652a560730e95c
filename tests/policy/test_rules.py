"""Tests of the policy's rules. The rules limit the requests of Pods."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.pod_request.annotations import ANNOTATIONS
from extender.pod_request.job_request import Request
from extender.pod_request.pod import parse_pod
from extender.policy.rules import OPEN, RESTRICTED, Choice, Policy, Rule, described, judged
from slurm_client.model import JobSpec
from tests.builders import PREFIX, TRANSLATION, pod, pod_manifest

ALICE, BOB = 2001, 2002
FIELDS = {
    "account": Choice("research", ("shared-*",)),
    "partition": Choice(None, ("gpu*", "debug")),
    "qos": Choice("normal"),
}
TEAM = Rule("team-a", ("team-a", "team-a-*"), user=Choice(ALICE), fields=FIELDS, max_priority=1000)


def asked(
    rule: Rule | None = TEAM,
    namespace: str = "team-a",
    service_account: str | None = None,
    preset: Policy = RESTRICTED,
    **annotations: str,
) -> tuple[JobSpec, tuple[str, ...]]:
    """Returns the job and the problems of a Pod with these annotations, under a rule."""
    named = {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}
    spec = {} if service_account is None else {"serviceAccountName": service_account}
    one = pod(namespace=namespace, annotations=named, **spec)
    policy = Policy(() if rule is None else (rule,), preset.open)
    request = judged(one, policy, TRANSLATION).request
    return request.job, request.problems


def allowed(rule: Rule | None = TEAM, **given: Any) -> JobSpec:
    job, problems = asked(rule, **given)
    assert problems == ()
    return job


def problem(rule: Rule | None = TEAM, **given: Any) -> str:
    _, problems = asked(rule, **given)
    assert len(problems) == 1, problems
    return problems[0]


def test_first_matching_rule_applies() -> None:
    late = Rule("late", ("*",), user=Choice(BOB))
    policy = Policy((TEAM, late))
    assert policy.rule_for("team-a-dev", "default") is TEAM
    assert policy.rule_for("team-b", "default") is late


def test_rule_may_apply_to_some_service_accounts_only() -> None:
    rule = Rule("trainers", ("team-a",), ("train-*",), user=Choice(ALICE))
    assert allowed(rule, service_account="train-1").user_id == ALICE
    assert "ServiceAccount default" in problem(rule)
    assert "ServiceAccount serve" in problem(rule, service_account="serve")


def test_names_are_compared_exactly() -> None:
    assert TEAM.matches("team-a-1", "x")
    assert not TEAM.matches("team-ab", "x")
    assert not TEAM.matches("Team-a", "x")


def test_restricted_preset_refuses_a_pod_without_a_rule() -> None:
    job, problems = asked(namespace="team-b", user_id="2002", account="research", priority="5")
    (told,) = problems
    assert told == (
        "no rule of the policy is for Pods of namespace team-b and ServiceAccount default: the"
        " administrator of slurm-extender must add a rule with a Slurm user"
    )
    assert (job.user_id, job.group_id, job.account, job.priority) == (None, None, None, None)


def test_open_preset_allows_any_request_of_a_pod_without_a_rule() -> None:
    asks: dict[str, Any] = {
        "user_id": "2002",
        "account": "x",
        "qos": "y",
        "reservation": "z",
        "priority": "9",
    }
    job = allowed(namespace="team-b", preset=OPEN, **asks)
    assert (job.user_id, job.group_id, job.account, job.qos) == (BOB, None, "x", "y")
    assert (job.reservation, job.priority) == ("z", 9)
    assert allowed(None, preset=OPEN).user_id is None


def test_rule_applies_with_the_open_preset() -> None:
    assert "user-id" in problem(preset=OPEN, user_id="2002")


def test_job_has_the_user_of_the_rule_by_default() -> None:
    job = allowed()
    assert (job.user_id, job.group_id) == (ALICE, None)  # slurm_client sets the user's group


@pytest.mark.parametrize("asked_for", ["gpu,debug", "debug,gpu", "gpu", "gpu, debug"])
def test_pod_may_request_the_default_list_or_a_part_of_it(asked_for: str) -> None:
    rule = Rule("r", ("*",), user=Choice(ALICE), fields={"partition": Choice("gpu,debug")})
    assert allowed(rule, partition=asked_for).partition == asked_for.replace(" ", "")
    assert allowed(rule).partition == "gpu,debug"
    assert '"gpu,long"' in problem(rule, partition="gpu,long")


def test_request_for_the_default_values_is_allowed() -> None:
    job = allowed(user_id="2001", group_id="2001", account="research", qos="normal")
    assert (job.user_id, job.group_id, job.account, job.qos) == (ALICE, ALICE, "research", "normal")


def test_a_foreign_user_is_refused_and_never_in_the_job() -> None:
    job, problems = asked(user_id="2002")
    (told,) = problems
    assert told == (
        'annotation sunk.coreweave.com/user-id: "2002" is not allowed by the policy\'s rule "team-a",'
        " which allows 2001"
    )
    assert (job.user_id, job.group_id) == (ALICE, None)


def test_pod_may_request_a_user_of_its_rule() -> None:
    """A rule treats root like any other user."""
    assert '"0" is not allowed' in problem(user_id="0")
    assert allowed(Rule("r", ("*",), user=Choice(0))).user_id == 0
    rule = Rule("r", ("*",), user=Choice(ALICE, ("2002",)))
    job = allowed(rule, user_id="2002")
    assert (job.user_id, job.group_id) == (BOB, None)
    assert '"2003"' in problem(rule, user_id="2003")
    assert allowed(Rule("r", ("*",), user=Choice(ALICE, ("*",))), user_id="77").user_id == 77


def test_pod_must_name_a_user_if_its_rule_has_no_default_user() -> None:
    rule = Rule("r", ("*",), user=Choice(None, ("2001", "2002")))
    assert allowed(rule, user_id="2002").user_id == BOB
    told = problem(rule)
    assert 'rule "r" gives no user' in told
    assert "user-id" in told
    assert "2001, 2002" in told


def test_pod_may_not_name_the_user_of_the_token() -> None:
    rule = Rule("r", ("*",), token=True)
    assert allowed(rule).user_id is None
    assert '"0" is not allowed' in problem(rule, user_id="0")
    assert problem(rule, priority="0").endswith("which allows none")


def test_group_is_the_group_of_the_user_unless_a_rule_allows_another() -> None:
    assert 'group-id: "2002" is not allowed' in problem(group_id="2002")
    shared = Rule("r", ("*",), user=Choice(ALICE), group=Choice(5000, ("6000",)))
    assert allowed(shared).group_id == 5000
    assert allowed(shared, user_id="2001").group_id == 5000
    assert 'group-id: "2001" is not allowed' in problem(shared, group_id="2001")
    for group in (5000, 6000):
        assert allowed(shared, group_id=str(group)).group_id == group
    assert "which allows 5000, 6000" in problem(shared, group_id="7000")


def test_job_has_the_defaults_of_the_rule_and_no_other_values() -> None:
    job = allowed()
    assert (job.account, job.qos, job.partition, job.reservation) == ("research", "normal", None, None)
    assert job.priority is None


ALLOWED = [
    ("account", "shared-1"),
    ("partition", "gpu-large"),
    ("partition", "debug"),
    ("priority", "1000"),
]


@pytest.mark.parametrize(("annotation", "value"), ALLOWED)
def test_value_allowed_by_a_rule_may_be_requested(annotation: str, value: str) -> None:
    asks: dict[str, Any] = {annotation: value}
    assert str(getattr(allowed(**asks), annotation)) == value


@pytest.mark.parametrize(
    ("annotation", "value", "instead", "allows"),
    [
        ("account", "finance", "research", "research, shared-*"),
        ("partition", "root-only", None, "gpu*, debug"),
        ("qos", "high", "normal", "normal"),
        ("reservation", "maintenance", None, "none"),
        ("reservation", "None", None, "none"),
        ("priority", "1001", None, "up to 1000"),
    ],
)
def test_value_not_allowed_by_a_rule_is_refused(
    annotation: str, value: str, instead: str | None, allows: str
) -> None:
    asks: dict[str, Any] = {annotation: value}
    job, problems = asked(**asks)
    (told,) = problems
    assert told.startswith(f'annotation {PREFIX}{annotation}: "{value}" is not allowed')
    assert told.endswith(f'the policy\'s rule "team-a", which allows {allows}')
    assert getattr(job, annotation) == instead


def test_request_of_a_priority_class_is_judged_like_an_annotation() -> None:
    classes = {"high": {"partition": "urgent"}, "low": {"qos": "x", "partition": "gpu-spare"}}
    translation = replace(TRANSLATION, priority_classes=classes)

    def told(name: str, **annotations: str) -> Request:
        named = {PREFIX + name: value for name, value in annotations.items()}
        manifest = pod_manifest(namespace="team-a", annotations=named, priorityClassName=name)
        return judged(parse_pod(manifest, translation), Policy((TEAM,)), translation).request

    (problem,) = told("high").problems
    assert problem.startswith('priorityClassName high, for the partition: "urgent" is not allowed')
    assert told("high").job.partition is None
    assert told("high", partition="gpu").problems == ()
    (problem,) = told("low").problems
    assert problem.startswith('priorityClassName low, for the qos: "x" is not allowed')
    assert told("low").job.partition == "gpu-spare"


@pytest.mark.parametrize("partitions", ["gpu,secret", "secret,gpu", "gpu, secret", "gpu,,secret"])
def test_each_item_of_a_list_must_be_allowed(partitions: str) -> None:
    assert "partition" in problem(partition=partitions)
    assert allowed(partition="gpu-a, debug,").partition == "gpu-a,debug"


def test_all_problems_are_reported() -> None:
    _, problems = asked(user_id="5", priority="9999", qos="x", timeout="soon")
    assert len(problems) == 4


def test_fields_outside_the_policy_are_not_changed() -> None:
    job = allowed(comment="c", timeout="60", exclusive="user", required_nodes="n1", prefer="x")
    assert (job.comment, job.time_limit_minutes, job.required_nodes) == ("c", 1, ("n1",))


LIMITED = replace(TEAM, timeout_minutes=60, max_timeout_minutes=120)


@pytest.mark.parametrize(
    ("rule", "seconds", "minutes"),
    [
        (LIMITED, None, 60),
        (LIMITED, "7200", 120),
        (replace(LIMITED, timeout_minutes=None), None, 120),
        (replace(LIMITED, timeout_minutes=180), "10800", 180),  # the default is always allowed
        (replace(LIMITED, max_timeout_minutes=None), "31536000", 365 * 24 * 60),
        (TEAM, None, None),
    ],
)
def test_time_limit_has_a_maximum(rule: Rule, seconds: str | None, minutes: int | None) -> None:
    given = {} if seconds is None else {"timeout": seconds}
    assert allowed(rule, **given).time_limit_minutes == minutes


def test_too_long_time_limit_is_refused_from_each_source() -> None:
    words = (
        f"a time limit of 121 minutes (annotation {PREFIX}timeout, or activeDeadlineSeconds) is not"
        ' allowed by the policy\'s rule "team-a", which allows up to 120 minutes'
    )
    assert problem(LIMITED, timeout="7201") == words
    one = pod(namespace="team-a", activeDeadlineSeconds=7201)
    request = judged(one, Policy((LIMITED,)), TRANSLATION).request
    assert (request.problems, request.job.time_limit_minutes) == ((words,), 120)


def test_long_value_is_shortened_in_the_problem() -> None:
    assert len(problem(account="x" * 100_000)) < 300


def test_description_of_a_rule_is_readable() -> None:
    lines = dict(line.split(": ", 1) for line in described(TEAM))
    assert lines["user-id"] == "2001; allowed: 2001"
    assert lines["account"] == "research; allowed: research, shared-*"
    assert lines["partition"] == "Slurm's; allowed: gpu*, debug"
    assert lines["priority"] == "Slurm's; allowed: up to 1000"
    assert lines["timeout"] == "the partition's; allowed: any"
    limited = dict(line.split(": ", 1) for line in described(LIMITED))
    assert limited["timeout"] == "60 minutes; allowed: up to 120 minutes"


VALUES = {
    "user-id": st.sampled_from(["0", "2001", "2002", " 2002 ", "02002", "4294967295", "-1", "alice"]),
    "group-id": st.sampled_from(["0", "2001", "2002"]),
    "priority": st.sampled_from(["0", "1000", "1001", "4294967293"]),
    **dict.fromkeys(
        ("account", "partition", "qos", "reservation"),
        st.sampled_from(["*", "gpu", "gpu,root", "research", "normal", "None", "", "[a-z]*", "\n*"])
        | st.text(max_size=8),
    ),
}


@given(
    st.fixed_dictionaries({}, optional=VALUES),
    st.dictionaries(st.sampled_from([PREFIX + row.name for row in ANNOTATIONS]), st.text(max_size=8)),
    st.sampled_from(["team-a", "team-b", "team-a-x"]),
)
def test_no_annotation_gives_a_job_more_than_its_rule_allows(
    values: dict[str, str], odd: dict[str, str], namespace: str
) -> None:
    annotations = odd | {PREFIX + name: value for name, value in values.items()}
    one = pod(namespace=namespace, annotations=annotations)
    request = judged(one, Policy((TEAM,)), TRANSLATION).request
    job = request.job
    ours = namespace != "team-b"
    assert job.user_id == (ALICE if ours else None)
    assert job.group_id in ((None, ALICE) if ours else (None,))
    assert (job.priority or 0) <= (1000 if ours else 0)
    assert job.reservation is None
    assert job.qos == ("normal" if ours else None)
    assert job.account == ("research" if ours else None) or (job.account or "").startswith("shared-")
    for partition in (job.partition or "debug").split(","):
        assert partition.strip().startswith("gpu") or partition.strip() == "debug"
    assert ours or request.problems
