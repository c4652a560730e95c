"""Tests of policy files: the meaning of valid files, and the messages about invalid files."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from extender.policy.__main__ import app
from extender.policy.file import read, schema
from extender.policy.rules import OPEN, RESTRICTED, Choice, Policy, Rule
from service.yaml_file import WrongFile

WHOLE = """\
preset: open
rules:
- name: team-a
  namespaces: [team-a, "team-a-*"]
  serviceAccounts: [trainer]
  default:
    {user: 2001, group: 5000, account: research, partition: gpu, qos: normal, reservation: r,
     timeout: 3601}
  allow:
    users: [2002, "*"]
    groups: [0]
    accounts: ["shared-*"]
    partitions: [a, b]
    qos: [high]
    reservations: ["*"]
    maxPriority: 1000
    maxTimeout: 86400
- namespaces: ["*"]
  default: {user: token}
"""


def parsed(tmp_path: Path, text: str) -> Policy:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return read(file)


def wrong(tmp_path: Path, text: str) -> list[str]:
    """Returns the messages about an invalid file, without the name of the file."""
    with pytest.raises(WrongFile) as told:
        parsed(tmp_path, text)
    name = str(tmp_path / "policy.yaml")
    assert all(line.startswith(name + ":") for line in told.value.lines)
    return [line.removeprefix(name + ":") for line in told.value.lines]


def test_file_with_all_fields_is_read(tmp_path: Path) -> None:
    team = Rule(
        "team-a",
        ("team-a", "team-a-*"),
        ("trainer",),
        user=Choice(2001, ("2002", "*")),
        group=Choice(5000, ("0",)),
        fields={
            "account": Choice("research", ("shared-*",)),
            "partition": Choice("gpu", ("a", "b")),
            "qos": Choice("normal", ("high",)),
            "reservation": Choice("r", ("*",)),
        },
        max_priority=1000,
        timeout_minutes=61,
        max_timeout_minutes=1440,
    )
    fields = dict.fromkeys(("account", "partition", "qos", "reservation"), Choice())
    rest = Rule("2", ("*",), token=True, fields=fields)
    assert parsed(tmp_path, WHOLE) == Policy((team, rest), open=True)


def test_file_without_a_preset_is_restricted(tmp_path: Path) -> None:
    assert parsed(tmp_path, "rules: []") == RESTRICTED
    assert parsed(tmp_path, "preset: restricted") == RESTRICTED
    assert parsed(tmp_path, "preset: open") == OPEN


def test_file_names_the_users_reserved_for_pods(tmp_path: Path) -> None:
    policy = parsed(tmp_path, "preset: open\npodUsers: [3000, token]")
    assert policy == Policy(open=True, pod_users=frozenset({3000, None}))


RULE = "rules:\n- namespaces: [a]\n  default: {user: 1}\n"
USER = "3: rules[0].default.user: "
NO_NUMBER = "4: rules[0].allow.{}[0]: a number from 0 to 2147483646"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *(
            (text, " is empty: the shortest valid file is `preset: restricted`")
            for text in ("", "# nothing\n")
        ),
        ("- a\n", "1: must be a mapping; fields: preset, rules"),
        ("rules: [a", "1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("preset: open\n--- \npreset: open", "2: not YAML: but found another document"),
        ("preset: !!python/name:os.system x", "1: not YAML: could not determine a constructor"),
        ("preset: 2026-99-99", " not YAML: month must be in 1..12"),
        ("preset: closed", "1: preset: must be restricted or open"),
        ("presets: open", "1: presets: is not a field; known fields: preset, rules, podUsers"),
        ("podUsers: [root]", "1: podUsers[0]: a number from 0 to 2147483646, except 99,"),
        *(
            (RULE.replace("1", each), f"{USER}{each} is not a plain decimal number")
            for each in ("010", "1_0")
        ),
        ("rules: {}", "1: rules: a list is needed, like [a, b]"),
        ("rules:\n- default: {user: 1}", "2: rules[0].namespaces: is missing"),
        ("rules:\n- namespaces: []\n  default: {user: 1}", "2: rules[0].namespaces: must not be empty"),
        ("rules:\n- namespaces: [a]", "2: rules[0]: gives no user: set default.user or allow.users"),
        (
            RULE + "  allow:\n",
            "4: rules[0].allow: must be a mapping; fields: users, groups, accounts, partitions, qos",
        ),
        (
            RULE + "  allow:\n    account: x",
            "5: rules[0].allow.account: is not a field; known fields: users",
        ),
        *(
            (f"{RULE}  allow: {{users: [{each}]}}", NO_NUMBER.format("users"))
            for each in ("alice", "true")
        ),
        *((f"{RULE}  allow: {{groups: [{each}]}}", NO_NUMBER.format("groups")) for each in (-1, 99)),
        (RULE + "  allow: {users: 1}", "4: rules[0].allow.users: a list is needed, like [a, b]"),
        (RULE + "  allow: {qos: [no]}", "4: rules[0].allow.qos[0]: a text is needed; quote values"),
        (RULE + "  allow: {qos: ['']}", "4: rules[0].allow.qos[0]:"),
        (RULE + "  allow: {qos: ['a,b']}", '4: rules[0].allow.qos[0]: "a,b" does not match'),
        (
            RULE + "  allow: {maxPriority: no}",
            "4: rules[0].allow.maxPriority: Input should be a valid int",
        ),
        (RULE + "  serviceAccounts: []", "4: rules[0].serviceAccounts: must not be empty"),
        (RULE + "  service_accounts: [a]", "4: rules[0].service_accounts: is not a field"),
        (RULE + "  default: {user: 2}", "4: rules[0].default: is a repeated key, first in line 3"),
        ("rules: &a [*a]", "1: rules[0]: must be a mapping; fields: name, namespaces"),
        (
            "rules:\n- namespaces: [A]\n  default: {user: 1}",
            '2: rules[0].namespaces[0]: "A" does not match',
        ),
        (
            "rules:\n- namespaces: [a]\n  default: {user: alice}",
            "3: rules[0].default.user: a number from 0 to 2147483646, except 99, which Slurm treats as",
        ),
        (
            "rules:\n- namespaces: [a]\n  default: {user: 1, account: '*'}",
            '3: rules[0].default.account: "*" does not match',
        ),
    ],
)
def test_mistake_is_reported_with_its_line_and_field(text: str, told: str, tmp_path: Path) -> None:
    (line,) = wrong(tmp_path, text)
    assert line.startswith(told)


def test_all_mistakes_are_reported_in_the_order_of_lines(tmp_path: Path) -> None:
    lines = wrong(tmp_path, RULE + "  x: 1\n  x: 2\n- namespaces: [b]\npreset: closed")
    assert [int(line.split(":")[0]) for line in lines] == [4, 5, 6, 7]


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(WrongFile, match=f"{path}: cannot be read"):
            read(path)
    (tmp_path / "latin").write_bytes(b"preset: \xff")
    with pytest.raises(WrongFile, match="cannot be read"):
        read(tmp_path / "latin")


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
KEYS = st.sampled_from(["preset", "rules", "namespaces", "default", "allow", "users", "user", "qos", ""])
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)


@given(document=DOCUMENTS.map(json.dumps) | st.text())
def test_any_file_is_a_policy_or_a_wrong_file(
    document: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(document, encoding="utf-8", errors="surrogatepass")
    with suppress(WrongFile):
        assert isinstance(read(file), Policy)


def run(*arguments: str, status: int = 0) -> tuple[str, str]:
    """Runs the program, and returns the standard output and the standard error."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == status
    return done.stdout, done.stderr


def test_check_prints_no_problems_for_a_valid_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(WHOLE)
    out, _ = run("check", str(file))
    assert "2 rules" in out


def test_check_prints_all_problems_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("preset: closed\nrules: [x]\n")
    out, err = run("check", str(file), status=1)
    assert out == ""
    assert [line.removeprefix(str(file)).split(":")[1] for line in err.splitlines()] == ["1", "2"]


def test_who_command_names_the_rule_that_applies(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(WHOLE.replace('["*"]\n', "[team-b]\n"))
    for arguments, told in (
        (["team-a", "trainer"], 'rule "team-a"\n'),
        (["team-b"], 'rule "2"\n  user-id: the token\'s own user'),
        (["team-a"], "no rule: anything goes (preset: open)"),
    ):
        assert run("who", str(file), *arguments)[0].startswith(told)
    for account, name in (("trainer", "team-a"), ("default", None)):
        told = json.loads(run("who", str(file), "team-a", account, "-o", "json")[0])
        assert (told["rule"] and told["rule"]["name"], told["preset"]) == (name, "open")


def test_schema_has_each_field() -> None:
    printed = json.loads(run("schema")[0])
    assert printed == schema()
    parts = {"": printed, **printed["$defs"]}
    fields = {name for part in parts.values() for name in part["properties"]}
    assert {"preset", "rules", "serviceAccounts", "maxPriority", "reservations"} <= fields
    assert all(part["additionalProperties"] is False for part in parts.values())
