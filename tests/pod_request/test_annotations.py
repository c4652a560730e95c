"""Tests of the annotations: the job's field for each annotation, and the messages about wrong values."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from extender.pod_request.annotations import JOB_ANNOTATIONS, ParsedAnnotations, read_annotations
from slurm_client import hostlist
from slurm_client.model import JobSpec, Sharing
from wellknown.names import DEFAULT_PREFIX

NAMES = [row.name for row in JOB_ANNOTATIONS]
SLURM_LARGEST = 0xFFFFFFFD  # uint32; 0xfffffffe and 0xffffffff are NO_VAL and INFINITE
LISTS = ("partition", "qos", "reservation")
THOUSAND = [f"n{number}" for number in range(1000, 2000)]
SAID = "nächtlicher Lauf, ночной, 夜間, لیلی \N{RIGHT-TO-LEFT MARK}"


def fields(name: str, value: str) -> Mapping[str, Any]:
    read = read_annotations({DEFAULT_PREFIX + name: value})
    assert not read.problems
    return read.fields


def problem(name: str, value: str) -> str:
    read = read_annotations({DEFAULT_PREFIX + name: value})
    assert read.fields == {}
    assert len(read.problems) == 1
    return read.problems[0]


def named(told: str) -> str:
    """Returns the annotation that a message names."""
    return told.split(": ", maxsplit=1)[0].removeprefix("annotation " + DEFAULT_PREFIX)


@pytest.mark.parametrize(
    ("name", "value", "asked"),
    [
        ("account", "physics", {"account": "physics"}),
        ("comment", "it is mine", {"comment": "it is mine"}),
        ("constraints", "a100&nvme", {"constraints": "a100&nvme"}),
        ("current-working-dir", "/home/x", {"current_working_directory": "/home/x"}),
        ("excluded-nodes", "a, b", {"excluded_nodes": ("a,b",)}),
        ("group-id", "7", {"group_id": 7}),
        ("partition", "main", {"partition": "main"}),
        ("prefer", "h100", {"prefer": "h100"}),
        ("priority", "0", {"priority": 0}),
        ("qos", "high", {"qos": "high"}),
        ("required-nodes", "a", {"required_nodes": ("a",)}),
        ("reservation", "maint", {"reservation": "maint"}),
        ("user-id", "1000", {"user_id": 1000}),
        *(("exclusive", value, {"shared": Sharing.NONE}) for value in ("none", "true")),
        *(("exclusive", value, {"shared": Sharing.ALLOWED}) for value in ("ok", "false")),
        *(("exclusive", name, {"shared": Sharing[name.upper()]}) for name in ("user", "mcs", "topo")),
        *(("timeout", value, {"time_limit_minutes": 1}) for value in ("1", "60")),
        *(("timeout", value, {"time_limit_minutes": m}) for value, m in (("61", 2), ("3600", 60))),
        ("timeout", "31536000", {"time_limit_minutes": 525_600}),
        ("priority", str(SLURM_LARGEST), {"priority": SLURM_LARGEST}),
        # A list of nodes stays compressed, with each node once, because every Pod stays in memory.
        ("excluded-nodes", ",".join(THOUSAND), {"excluded_nodes": ("n[1000-1999]",)}),
        ("required-nodes", "n2,n[1-3],n1", {"required_nodes": ("n[1-3]",)}),
        *((name, "main\n", {name: "main"}) for name in ("account", *LISTS)),  # the end of a YAML block
        *((name, " main, short,,main ,\n", {name: "main,short"}) for name in LISTS),
        ("comment", SAID, {"comment": SAID}),
    ],
)
def test_a_value_becomes_the_jobs_field(name: str, value: str, asked: dict[str, Any]) -> None:
    assert fields(name, value) == asked


@given(st.integers(1, 31_536_000))
def test_timeout_is_rounded_up_by_less_than_a_minute(seconds: int) -> None:
    granted = 60 * fields("timeout", str(seconds))["time_limit_minutes"]
    assert seconds <= granted < seconds + 60


def test_group_id_annotation_sets_the_group() -> None:
    both = {DEFAULT_PREFIX + "user-id": "7", DEFAULT_PREFIX + "group-id": "8"}
    assert read_annotations(both).fields == {"user_id": 7, "group_id": 8}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("account", ""),
        ("partition", "  "),
        ("current-working-dir", "home/x"),
        ("excluded-nodes", " , "),
        ("exclusive", "maybe"),
        ("exclusive", "TRUE"),
        ("priority", "-1"),
        ("priority", "1.5"),
        *(("timeout", value) for value in ("0", "10m")),
        *(("user-id", value) for value in ("root", "")),
        ("priority", str(SLURM_LARGEST + 1)),
        *((name, " , ") for name in LISTS),
    ],
)
def test_problem_names_the_annotation_the_value_and_the_page(name: str, value: str) -> None:
    told = problem(name, value)
    assert told.startswith(f'annotation {DEFAULT_PREFIX}{name}: "{value}" is not ')
    assert "is not (" not in told
    assert told.endswith(f" (docs/reference/annotations.md#{name})")


@pytest.mark.parametrize("name", ["priority", "user-id", "group-id", "timeout"])
@pytest.mark.parametrize("digits", [11, 40, 5000])
def test_problem_of_a_huge_number_hides_the_error_of_python(name: str, digits: int) -> None:
    assert "int_max_str_digits" not in problem(name, "9" * digits)


def test_a_very_long_wrong_value_is_not_repeated_in_full() -> None:
    assert len(problem("exclusive", "x" * 200_000)) < 1000


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("gpu[1,3]", ("gpu1", "gpu3")),
        ("a1, gpu[01-02,09] ,x5,", ("a1", "gpu01", "gpu02", "gpu09", "x5")),
        ("rack[1-2]n[1-2],b", ("rack1n1", "rack1n2", "rack2n1", "rack2n2", "b")),
    ],
)
def test_hostlist_expands_to_its_node_names(value: str, names: tuple[str, ...]) -> None:
    (expression,) = fields("excluded-nodes", value)["excluded_nodes"]
    assert {*hostlist.expand(expression)} == {*names}


@pytest.mark.parametrize(
    ("value", "many"),
    [
        ("n[1-1001]", "1001"),
        ("a,n[1-1000]", "1001"),
        ("a[1-40]b[1-50]", "2000"),
        ("n[1-10000]", "10000"),
        ("n[1-999999999999]", "more than 10000"),
        ("n,n," * 10_000, "more than 10000"),
    ],
)
def test_a_list_of_too_many_nodes_is_refused_with_their_number(value: str, many: str) -> None:
    assert f"excluded-nodes: {many} node names, and at most 1000" in problem("excluded-nodes", value)


def test_a_list_of_too_many_brackets_is_refused_with_their_number() -> None:
    value = ("[1-1]" * 250 + ",") * 209  # 209 names, each with 250 brackets
    assert "excluded-nodes: 52250 brackets, and at most 2000 are taken" in problem(
        "excluded-nodes", value
    )
    each_twice = ",".join(f"rack[{n}]n[1]" for n in range(1000))
    assert fields("excluded-nodes", each_twice)


@pytest.mark.parametrize(
    "value",
    [
        *("gpu[1", "gpu1]", "gpu[1[2]]", "a b", "a;b", "gpu[x]", "[", "a\nb", "n[1-999999999999]"),
        *("n[3-1]", "n[]", "n[1-10001]", "n" * 256, "(null)", "a[1-999]b[1-999]"),
    ],
)
def test_invalid_hostlist_is_a_problem(value: str) -> None:
    assert problem("excluded-nodes", value)


TEXTS = ["account", "comment", "constraints", "partition", "prefer", "qos", "reservation"]


@pytest.mark.parametrize("name", [*TEXTS, "current-working-dir"])
@pytest.mark.parametrize(
    "inside", ["\0", "\n", "\r", "\t", "\b", "\x1b[2K", "\x7f", "\x85", "\u2028", "\u202e"]
)
def test_text_with_control_characters_is_rejected(name: str, inside: str) -> None:
    assert "without line ends or other control characters" in problem(name, f"/x{inside}y")


@pytest.mark.parametrize(
    ("name", "most"), [*((name, 1024) for name in TEXTS), ("current-working-dir", 4095)]
)
def test_text_longer_than_slurm_accepts_is_a_problem(name: str, most: int) -> None:
    longest = "/" + "é" * ((most - 1) // 2) + "x" * ((most - 1) % 2)
    assert fields(name, longest)
    assert f"{most} bytes" in problem(name, longest + "x")


def test_timeout_above_365_days_is_a_problem() -> None:
    """While a job with a time limit of 78 years waits, slurmctld of 24.11 answers no calls."""
    assert "from 1 to 31536000, 365 days" in problem("timeout", "31536001")


@pytest.mark.parametrize("name", ["user-id", "group-id"])
@pytest.mark.parametrize("number", ["99", "2147483647", "4294967293"])
def test_user_and_group_ids_that_slurm_misreads_are_refused(name: str, number: str) -> None:
    assert "from 0 to 2147483646, except 99, which Slurm treats as root" in problem(name, number)


def test_all_problems_are_found_at_once() -> None:
    wrong = {DEFAULT_PREFIX + name: "" for name in NAMES}
    assert [named(told) for told in read_annotations(wrong).problems] == NAMES


def test_configured_prefix_replaces_the_default_prefix() -> None:
    both = {"x.example/partition": "mine", DEFAULT_PREFIX + "partition": "theirs"}
    assert read_annotations(both, "x.example/") == ParsedAnnotations({"partition": "mine"})


def test_annotations_of_other_programs_are_ignored() -> None:
    foreign = {"kubectl.kubernetes.io/x": "1", "partition": "x", "x" + DEFAULT_PREFIX + "qos": "x"}
    for others in (foreign, {}):
        assert read_annotations(others) == ParsedAnnotations({})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((written, "partition") for written in ("Partition", "partiton", "partitions")),
        *((written, "user-id") for written in ("USER_ID", "userid")),
        ("required_nodes", "required-nodes"),
        ("exclude-nodes", "excluded-nodes"),
        ("tiemout", "timeout"),
        ("constraint", "constraints"),
        ("qoss", "qos"),
        *((written, None) for written in ("workdir", "nodes", "lock", "unheard-of", "", "x" * 200_000)),
    ],
)
def test_unknown_name_is_a_problem_if_near_a_known_name(written: str, meant: str | None) -> None:
    read = read_annotations({DEFAULT_PREFIX + written: "1"})
    assert read.fields == {}
    told = read.warnings if meant is None else read.problems
    assert len(read.problems) + len(read.warnings) == len(told) == 1
    assert DEFAULT_PREFIX + written[:60] in told[0]
    assert meant is None or f"did you mean {DEFAULT_PREFIX}{meant}?" in told[0]
    assert len(told[0]) < 256


def test_no_known_name_is_reported_as_misspelt() -> None:
    every = {DEFAULT_PREFIX + row.name: row.example for row in JOB_ANNOTATIONS}
    read = read_annotations(every)
    assert read.problems == ()
    assert [named(told) for told in read.warnings] == ["required-nodes"]


def test_number_of_messages_is_limited_for_many_unknown_names() -> None:
    many = {f"{DEFAULT_PREFIX}{letter}artition-{n}": "" for n in range(50_000) for letter in "pq"}
    read = read_annotations(many)
    assert 0 < len(read.problems) + len(read.warnings) <= 50


def test_required_nodes_cause_a_warning() -> None:
    read = read_annotations({DEFAULT_PREFIX + "required-nodes": "n1"})
    assert len(read.warnings) == 1
    assert "fails the job" in read.warnings[0]


@pytest.mark.parametrize("value", ["\0" * 80, "\U000e0001" * 80, "'" * 80, '"' * 80 + "'"])
def test_problem_of_an_unusual_value_fits_a_warning(value: str) -> None:
    assert len(problem("exclusive", value)) < 256


@given(st.dictionaries(st.sampled_from(NAMES), st.text()))
def test_any_value_is_a_job_field_or_a_problem(values: dict[str, str]) -> None:
    annotations = {DEFAULT_PREFIX + name: value for name, value in values.items()}
    found = read_annotations(annotations)
    JobSpec("p", 1, 1, **found.fields)
    read = {row.name for row in JOB_ANNOTATIONS if row.field in found.fields} - (
        {"group-id"} if "group-id" not in values else set()
    )
    wrong = {named(told) for told in found.problems}
    assert read | wrong >= values.keys()
    assert len(found.problems) == len(wrong)


@given(st.dictionaries(st.text().map(lambda name: DEFAULT_PREFIX + name) | st.text(), st.text()))
def test_any_annotation_names_can_be_read(annotations: dict[str, str]) -> None:
    read = read_annotations(annotations)
    under = {name for name in annotations if name.startswith(DEFAULT_PREFIX)}
    told = len(read.problems) + len(read.warnings)
    assert told + len(read.fields) >= len(under) or told == 15


@given(st.sampled_from(NAMES), st.data())
def test_one_typing_error_suggests_the_correct_name(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    slip = data.draw(st.sampled_from(["drop", "double", "swap", "upper"]))
    typed = {
        "drop": name[:at] + name[at + 1 :],
        "double": name[: at + 1] + name[at:],
        "swap": name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
        "upper": name[:at] + name[at].upper() + name[at + 1 :],
    }[slip]
    assume(typed not in NAMES and (len(name) > 4 or slip != "swap"))
    problems = read_annotations({DEFAULT_PREFIX + typed: "1"}).problems
    assert len(problems) == 1
    assert f"did you mean {DEFAULT_PREFIX}{name}?" in problems[0]
