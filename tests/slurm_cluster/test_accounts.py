"""Tests of the comparison of the accounts file with slurmdbd's records, without a Slurm."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.yaml_file import WrongFile
from slurm_cluster.accounts import sacctmgr, values
from slurm_cluster.accounts.apply import read
from slurm_cluster.accounts.difference import Action, Step, batches, others, steps
from slurm_cluster.accounts.document import Document
from slurm_cluster.accounts.entities import Entity, Kind, State, WrongAccounts, wanted
from slurm_cluster.command_line import app

FILE = """\
qos:
  - {name: low}
  - name: high
    priority: 100
    flags: [DenyOnLimit]
    preempt: [low, normal]
    limits: {MaxJobsPerUser: 4, MaxTRESPerUser: "mem=16G,gres/gpu=8", MaxWall: 2-00:00:00}
accounts:
  - {name: vision, parent: research, qos: [normal, high], defaultQos: normal}
  - {name: research, limits: {GrpTRES: gres/gpu=32}}
users:
  - name: alice
    accounts: [{name: vision, fairshare: 10}, {name: research, partition: main}]
"""
NORMAL: State = {(Kind.QOS, ("normal",)): Entity(Kind.QOS, ("normal",), {})}


def document(tmp_path: Path, text: str) -> Document:
    file = tmp_path / "accounts.yaml"
    file.write_text(text)
    return read(file)


@pytest.fixture
def wants(tmp_path: Path) -> State:
    return wanted(document(tmp_path, FILE), NORMAL)


def named(made: list[Step]) -> list[str]:
    return [f"{step.action} {Entity(step.kind, step.key, {})}" for step in made]


def test_objects_are_created_after_the_objects_that_they_name(wants: State) -> None:
    assert named(steps(NORMAL, wants, prune=False)) == [
        "+ qos low",
        "+ qos high",
        "~ qos high",  # sets `preempt`, because the QOS low now exists
        "+ account research",
        "+ account vision",
        "+ user alice in account vision",
        "+ user alice in account research, partition main",
        "+ user alice",
    ]


def test_plan_prints_changes_as_text_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sacctmgr, "clusters", lambda: ["one"])
    monkeypatch.setattr(sacctmgr, "read", lambda _: NORMAL)
    file = tmp_path / "accounts.yaml"
    file.write_text("qos: [{name: low}]\naccounts: [{name: a}]\n")
    shown, told = (
        CliRunner().invoke(app, ["accounts", "plan", str(file), "--output", output])
        for output in ("table", "json")
    )
    assert (shown.exit_code, told.exit_code) == (1, 1)
    assert json.loads(told.stdout)["changes"] == shown.stdout.splitlines()
    assert shown.stdout.startswith("+ qos low")


def test_the_same_change_of_many_users_takes_few_commands(tmp_path: Path) -> None:
    users = "".join(
        f"  - {{name: u{each}, accounts: [{{name: a}}, {{name: b, fairshare: 2}}]}}\n"
        for each in range(150)
    )
    wants = wanted(document(tmp_path, f"accounts: [{{name: a}}, {{name: b}}]\nusers:\n{users}"), NORMAL)
    todo = steps(NORMAL, wants, prune=False)
    grouped = list(batches(todo))
    assert [len(each) for each in grouped] == [1, 1, 100, 50, 100, 50, 100, 50]
    assert sorted(map(str, (step for group in grouped for step in group))) == sorted(map(str, todo))


def test_existing_objects_need_no_change(wants: State) -> None:
    assert steps({**NORMAL, **wants}, wants, prune=True) == []


def test_only_fields_that_differ_are_changed(wants: State) -> None:
    key = (Kind.QOS, ("high",))
    old = Entity(*key, {**wants[key].fields, "MaxJobsPerUser": "9", "GrpJobs": "3"})
    (step,) = steps({**NORMAL, **wants, key: old}, wants, prune=False)
    assert (step.action, step.fields) == (Action.CHANGE, {"MaxJobsPerUser": "4", "GrpJobs": ""})
    assert step.lines() == ["~ qos high", "    GrpJobs: 3 -> not set", "    MaxJobsPerUser: 9 -> 4"]


def has_more(wants: State) -> State:
    old = [
        Entity(Kind.QOS, ("old",), {}),
        Entity(Kind.ACCOUNT, ("past",), {"Parent": "root"}),
        Entity(Kind.ACCOUNT, ("below",), {"Parent": "past"}),
        Entity(Kind.ASSOCIATION, ("bob", "past", ""), {}),
        Entity(Kind.ASSOCIATION, ("alice", "past", ""), {}),
        Entity(Kind.USER, ("bob",), {}),
        Entity(Kind.ACCOUNT, ("root",), {}),
        Entity(Kind.ASSOCIATION, ("root", "root", ""), {}),
        Entity(Kind.USER, ("root",), {}),
    ]
    return {**NORMAL, **wants, **{(entity.kind, entity.key): entity for entity in old}}


def test_nothing_is_removed_without_prune(wants: State) -> None:
    has = has_more(wants)
    assert steps(has, wants, prune=False) == []
    assert len(others(has, wants)) == 6


def test_removals_are_ordered_and_slurms_own_objects_stay(wants: State) -> None:
    assert named(steps(has_more(wants), wants, prune=True)) == [
        "- user bob",
        "- user alice in account past",
        "- account below",
        "- account past",
        "- qos old",
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("high], default", "hihg], default", "may use the QOS hihg, which does not exist"),
        ("[low, normal]", "[lowest]", "qos high preempts the QOS lowest, which does not exist"),
        ("parent: research", "parent: lab", "account vision has the parent lab, which does not exist"),
        (
            "{name: research, limits",
            "{name: research, parent: vision, limits",
            "account vision is below itself",
        ),
        ("name: vision, fairshare", "name: lab, fairshare", "user alice is in the account lab"),
        ("MaxJobsPerUser", "MaxJobs", "qos high: MaxJobs is not a limit here"),
        ("gres/gpu=32", "gpu=32", 'account research: GrpTRES: "gpu=32" is not TRES=NUMBER'),
        ("2-00:00:00", "two days", 'qos high: MaxWall: "two days" is not a time'),
        ("{name: low}", "{name: high}", "qos high occurs twice"),
        ("defaultQos: normal", "defaultQos: low", "account vision has the default QOS low"),
        ("- name: alice", "- name: alice\n    defaultAccount: lab", "the default account lab"),
        ("{name: research, limits", "{name: research, coordinators: [eve], limits", "coordinator eve"),
    ],
)
def test_a_wrong_name_or_limit_is_reported(tmp_path: Path, before: str, after: str, words: str) -> None:
    assert before in FILE
    with pytest.raises(WrongAccounts) as wrong:
        wanted(document(tmp_path, FILE.replace(before, after)), NORMAL)
    assert any(words in problem for problem in wrong.value.problems)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = FILE.replace("[low, normal]", "[lowest]").replace("parent: research", "parent: lab")
    with pytest.raises(WrongAccounts) as wrong:
        wanted(document(tmp_path, text), NORMAL)
    assert len(wrong.value.problems) == 2


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("priority: 100", "priorty: 100", "priorty: is not a field"),
        ("DenyOnLimit", "DenyLimit", "must be DenyOnLimit"),
        ("{name: low}", "{name: Low}", '"Low" does not match'),
        ("fairshare: 10", "fairshare: ten", "fairshare"),
    ],
)
def test_a_wrong_field_or_value_is_reported(tmp_path: Path, before: str, after: str, words: str) -> None:
    with pytest.raises(WrongFile, match=words):
        document(tmp_path, FILE.replace(before, after))


def test_existing_names_may_be_used_unless_prune_removes_them(tmp_path: Path) -> None:
    text = "accounts: [{name: a, qos: [old]}]\n"
    has = {**NORMAL, (Kind.QOS, ("old",)): Entity(Kind.QOS, ("old",), {})}
    assert wanted(document(tmp_path, text), has)
    with pytest.raises(WrongAccounts, match="old"):
        wanted(document(tmp_path, f"prune: true\n{text}"), has)


@pytest.mark.parametrize(
    ("form", "given", "told"),
    [
        (values.tres, "mem=16G,cpu=4", "cpu=4,mem=16384"),
        (values.tres, "MEM=16384M", "mem=16384"),
        (values.tres, "gres/gpu=2K", "gres/gpu=2048"),
        (values.tres, "cpu=4,mem=-1", "cpu=4"),
        (values.minutes, "90", "90"),
        (values.minutes, "90:30", "91"),
        (values.minutes, "01:30:00", "90"),
        (values.minutes, "1-0", "1440"),
        (values.minutes, "1-01:30:00", "1530"),
        (values.minutes, "-1", ""),
    ],
)
def test_tres_and_times_are_normalised(form: values.Form, given: str, told: str) -> None:
    assert form(given) == told


@pytest.mark.parametrize(
    ("name", "value", "before", "given"),
    [
        ("MaxJobs", "4", "", "4"),
        ("MaxJobs", "", "4", "-1"),
        ("GrpTRES", "gres/gpu=8", "gres/gpu=4,mem=1", "gres/gpu=8,mem=-1"),
        ("GrpTRES", "", "cpu=1,mem=1", "cpu=-1,mem=-1"),
        ("QOS", "", "high", ""),
        ("DefaultQOS", "", "high", "-1"),
        ("Flags", "", "DenyOnLimit", "-1"),
        ("PreemptExemptTime", "90", "", "1:30"),
        ("PreemptExemptTime", "", "90", "-1"),
    ],
)
def test_changed_and_removed_values_are_written_for_sacctmgr(
    name: str, value: str, before: str, given: str
) -> None:
    assert values.argument(name, value, before) == given
