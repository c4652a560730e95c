"""Tests of every annotation of docs/reference/annotations.md on a Slurm with accounting: the job in
scontrol and sacct, the Node and the neighbours of the Pod, and Slurm's rejections.

Invalid values are in test_admission, and violations of the policy in test_policy.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.local.accounting import Account, Limits, Qos, Reservation, User, declare, reserved
from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from extender.pod_request.annotations import JOB_ANNOTATIONS
from tests.end_to_end.actors import PREFIX, Actors
from tests.eventually import eventually, eventually_not

Annotations = Mapping[str, str]

real = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
CPUS = 64
"""One node has room for the Pods of all CASES."""
FEATURES = {"node-1": "h100,ib", "node-2": "h100", "node-3": "a100", "node-4": "a100,ib"}
BLOCKS = "BlockName=b1 Nodes=node-[1-2]\nBlockName=b2 Nodes=node-[3-4]\nBlockSizes=2\n"
CONF = (
    "MCSPlugin=mcs/account",
    "MCSParameters=enforced,ondemandselect",
    "PartitionName=short Nodes=node-[1-4] MaxTime=5 State=UP",
    "PartitionName=whole Nodes=node-[1-4] OverSubscribe=EXCLUSIVE State=UP",
)
WHO_MAY_WHAT = (
    Qos("high", priority=10),
    Qos("one-runs", limits=Limits(max_jobs=1)),
    Qos("one-submitted", limits=Limits(max_submit_jobs=1)),
    Qos("bobs"),
    Account("ml"),
    Account("lab"),
    Account("narrow"),
    Account("web"),
    User("root", ("root", "lab"), ("normal", "high")),
    User("alice", ("ml", "lab"), ("normal", "high", "one-runs", "one-submitted")),
    User("alice", ("narrow",), limits=Limits(max_jobs=1)),
    User("bob", ("web",), ("normal", "bobs")),
)
OURS = Reservation("ours", nodes=("node-3",), users=("root", "alice"))
ALICE, BOB = {"user-id": "2001"}, {"user-id": "2002"}


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=len(NODES),
        cpus_per_node=CPUS,
        release=slurm_release,
        accounting=True,
        slurm_conf=CONF,
    )
    with (
        tempfile.TemporaryDirectory(prefix="annotations-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        make_blocks(running)
        for node, has in FEATURES.items():
            changes = (f"AvailableFeatures={has}", f"ActiveFeatures={has}")
            running.run_slurm("scontrol", "update", f"NodeName={node}", *changes)
        declare(running, *WHO_MAY_WHAT)
        yield running


def make_blocks(cluster: Cluster) -> None:
    """Adds blocks to the topology, for --exclusive=topo. slurmctld reads the topology at the start."""
    etc = cluster.directory / "slurm" / "etc"
    (etc / "topology.conf").write_text(BLOCKS)
    with (etc / "slurm.conf").open("a") as conf:
        conf.write("TopologyPlugin=topology/block\n")
    cluster.stop("slurmctld")
    cluster.start("slurmctld")


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


def place(actors: Actors, name: str, *asked: Annotations, **given: Any) -> str:
    """Creates a Pod with all given annotations, waits until the Pod is bound, and returns the Node."""
    actors.create(name, annotations=joined(*asked), **given)
    return actors.bound(name)


def joined(*asked: Annotations) -> dict[str, str]:
    return {key: value for each in asked for key, value in each.items()}


def on(node: str) -> Annotations:
    return {"required-nodes": node}


def waits(actors: Actors, name: str, reason: str) -> str:
    """Waits until the Pod's condition has the reason, and returns the message."""
    eventually(lambda: actors.condition(name).get("reason") == reason, f"{name} waits for {reason}")
    assert actors.node_of(name) is None
    return actors.condition(name)["message"]


# Fields of a job


@dataclass(frozen=True)
class Case:
    """Annotations of a Pod, and the expected values of the job in scontrol (`job`) and in sacct
    (`books`)."""

    asked: Annotations
    job: Mapping[str, str] = field(default_factory=dict)
    books: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = NODES
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the Pod's spec."""

    def __str__(self) -> str:
        said = " ".join(f"{key}={value}" for key, value in (*self.asked.items(), *self.pod.items()))
        return said.replace("/", "-") or "nothing"


CASES = [
    Case({}, {"Account": "root or ml", "QOS": "normal", "Partition": "main", "Reservation": ""}),
    Case({"account": "lab"}, {"Account": "lab"}, {"account": "lab"}),
    Case({"comment": "for Ada's paper: a=b|c"}),  # no field of scontrol: the comment has spaces
    Case({"constraints": "a100&ib"}, {"Features": "a100&ib"}, {"constraints": "a100&ib"}, ("node-4",)),
    Case({"constraints": "[ib|a100]"}, {"Features": "[ib|a100]"}, nodes=("node-1", "node-3", "node-4")),
    Case({"current-working-dir": "/home/bob"}, {"WorkDir": "/home/bob"}, {"workdir": "/home/bob"}),
    Case({"current-working-dir": "/no/such"}, {"WorkDir": "/no/such"}),
    Case({"excluded-nodes": "node-[1-2],node-4"}, {"ExcNodeList": "node-[1-2,4]"}, nodes=("node-3",)),
    Case({"excluded-nodes": "node-1,node-2"}, {"ExcNodeList": "node-[1-2]"}, nodes=NODES[2:]),
    Case({"required-nodes": "node-2"}, {"ReqNodeList": "node-2"}, {"nodelist": "node-2"}, ("node-2",)),
    Case({"required-nodes": "node-[2-3]"}, {"ReqNodeList": "node-[2-3]"}, nodes=("node-2", "node-3")),
    Case(
        {"partition": "short"}, {"Partition": "short", "TimeLimit": "00:05:00"}, {"partition": "short"}
    ),
    Case({"partition": "short,main"}, {"Partition": "short or main"}),
    Case({"prefer": "a100"}),
    Case({"priority": "777"}, {"Priority": "777"}, {"priority": "777"}),
    Case({"qos": "high"}, {"QOS": "high"}, {"qos": "high"}),
    Case({"reservation": "ours"}, {"Reservation": "ours"}, nodes=OURS.nodes),
    Case({"timeout": "90"}, {"TimeLimit": "00:02:00"}, {"timelimit": "00:02:00"}),
    Case({}, {"TimeLimit": "00:02:00"}, {"timelimit": "00:02:00"}, pod={"activeDeadlineSeconds": 90}),
    Case({"timeout": "3600"}, {"TimeLimit": "01:00:00"}, pod={"activeDeadlineSeconds": 90}),
    Case(
        {"user-id": "2002"},
        {"UserId": "bob(2002)", "GroupId": "bob(2002)", "Account": "web"},
        {"user": "bob", "group": "bob", "account": "web"},
    ),
    Case(
        {"user-id": "2001", "group-id": "2002"},
        {"UserId": "alice(2001)", "GroupId": "bob(2002)"},
        {"user": "alice", "group": "bob"},
    ),
    Case({"group-id": "2002"}, {"GroupId": "bob(2002)"}, {"group": "bob"}),
]


@pytest.fixture
def reservation(actors: Actors) -> Iterator[None]:
    with reserved(actors.cluster, OURS):
        yield
        actors.clean_up()


@real
def test_jobs_have_the_fields_of_the_annotations(actors: Actors) -> None:
    have_what_is_asked_for(actors, [case for case in CASES if "reservation" not in case.asked])


@real
def test_a_job_gets_a_node_with_the_preferred_features(actors: Actors) -> None:
    """The test has few jobs. With many jobs at once, Slurm may ignore the preferred nodes."""
    assert place(actors, "prefers", {"prefer": "a100"}) in ("node-3", "node-4")
    assert place(actors, "hers", {"prefer": "a100"}, ALICE) in ("node-3", "node-4")


@real
@pytest.mark.usefixtures("reservation")
def test_a_job_has_the_reservation_that_its_pod_asks_for(actors: Actors) -> None:
    have_what_is_asked_for(actors, [case for case in CASES if "reservation" in case.asked])


def have_what_is_asked_for(actors: Actors, cases: Sequence[Case]) -> None:
    """Creates two Pods for each case: a Pod without a user, and a Pod of alice, for job/submit. Compares
    the jobs with the case."""
    pods = {
        f"{whose}-{number}": (case, joined(user, case.asked))
        for number, case in enumerate(cases)
        for whose, user in {"p": {}, "hers": ALICE}.items()
    }
    for name, (case, asked) in pods.items():
        actors.create(name, annotations=asked, **case.pod)
    nodes = {name: actors.bound(name) for name in pods}
    jobs, shown = actors.squeue(), shown_by_scontrol(actors)
    books = dict[int, Mapping[str, str]]()
    for name, (case, _) in pods.items():
        job = jobs[actors.job_name(name)]
        fields = shown[job.id]
        assert nodes[name] in case.nodes, (name, str(case))
        assert (job.node, job.comment) == (nodes[name], told_by(actors, name, case.asked)), str(case)
        for key, value in case.job.items():
            assert fields.get(key, "") in value.split(" or "), (name, str(case), key)
        books[job.id] = case.books
    eventually_not(lambda: differences(actors, books), "in the books")


def shown_by_scontrol(actors: Actors) -> dict[int, dict[str, str]]:
    """Returns the fields of each job, by job id."""
    lines = actors.cluster.run_slurm("scontrol", "show", "jobs", "--oneliner").stdout.splitlines()
    jobs = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
    return {int(job["JobId"]): job for job in jobs}


def differences(actors: Actors, expected: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Returns the differences between sacct and the expected values. slurmdbd gets changes a moment
    later."""
    fields = sorted({field for books in expected.values() for field in books})
    options = (f"--jobs={','.join(map(str, expected))}", f"--format=jobid,{','.join(fields)}")
    shown = actors.cluster.run_slurm("sacct", "-nPX", "--delimiter=;", *options).stdout
    parts = (line.split(";") for line in shown.splitlines())
    seen = {int(job_id): dict(zip(fields, values, strict=True)) for job_id, *values in parts}
    return [
        f"{job_id}: {field} is not {value}: {seen.get(job_id)}"
        for job_id, books in expected.items()
        for field, value in books.items()
        if seen.get(job_id, {}).get(field) != value
    ]


def told_by(actors: Actors, name: str, asked: Annotations) -> str:
    """Returns the comment of a Pod's job: the author's comment, or the name of the Pod."""
    return asked.get("comment", f"Kubernetes Pod default/{actors.full(name)}; scancel evicts it")


@real
def test_pod_and_job_name_each_other(actors: Actors) -> None:
    place(actors, "p", {"comment": "for Ada's paper: ü"})
    job = actors.job_of("p")
    assert job is not None
    labelled = {"labelSelector": f"slurm-extender.io/job-id={job.id}"}
    found = actors.api.get("/pods", params=labelled).raise_for_status().json()["items"]
    assert [pod["metadata"]["name"] for pod in found] == [actors.full("p")]
    actors.in_the_books(job.id, {"user": "root", "comment": ""})
    actors.delete("p")
    actors.in_the_books(job.id, {"comment": "for Ada's paper: ü; Pod deleted"})


# Sharing of Nodes


@dataclass(frozen=True)
class Form:
    """A value of `exclusive`, and scontrol's fields: OverSubscribe, and in 26.05 also Exclusive. If
    `alone` is True, the job has all CPUs and GPUs of the node."""

    value: str | None
    words: Mapping[str, tuple[str, str]]
    alone: bool = False

    @property
    def asked(self) -> Annotations:
        return {} if self.value is None else {"exclusive": self.value}


NODE = {"26.05": ("NO", "NODE"), "24.11": ("NO", "")}
SHARED = {"26.05": ("YES", "NO"), "24.11": ("YES", "")}
FORMS = [
    Form(None, {"26.05": ("NO", "NO"), "24.11": ("OK", "")}),
    Form("none", NODE, alone=True),
    Form("true", NODE, alone=True),
    Form("ok", SHARED),
    Form("false", SHARED),
    Form("user", {"26.05": ("NO", "USER"), "24.11": ("USER", "")}),
    Form("mcs", {"26.05": ("NO", "MCS"), "24.11": ("MCS", "")}),
    Form("topo", {"26.05": ("NO", "TOPO"), "24.11": ("TOPO", "")}),
]


@real
def test_exclusive_values_become_fields_of_the_job(actors: Actors) -> None:
    for number, form in enumerate(FORMS):
        pods = {f"p-{number}": {}, f"hers-{number}": ALICE}
        for name, whose in pods.items():
            actors.create(name, annotations=joined(whose, form.asked))
        for name in pods:
            actors.bound(name)
            shown = actors.scontrol(name)
            is_told = (shown["OverSubscribe"], shown.get("Exclusive", ""))
            assert is_told == form.words[actors.cluster.spec.release], form.value
            alone = ("gres/gpu=4" in shown["AllocTRES"], shown["NumCPUs"] == str(CPUS))
            assert alone == (form.alone, form.alone), form.value
        for name in pods:
            actors.delete(name)


@real
@pytest.mark.parametrize("asked", [{}, {"exclusive": "ok"}], ids=str)
@pytest.mark.one_release(
    "Who shares a node follows from the form of `exclusive`, which is tested on each release"
)
def test_partition_of_whole_nodes_overrides_exclusive(actors: Actors, asked: Annotations) -> None:
    place(actors, "p", asked, {"partition": "whole"})
    assert actors.scontrol("p")["NumCPUs"] == str(CPUS)


MCS = {"exclusive": "mcs"}


@real
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, joined(BOB, on("node-1"))),
        ({"exclusive": "ok"}, joined(BOB, on("node-1"))),
        ({"exclusive": "user"}, joined(ALICE, on("node-1"))),
        (MCS, joined(ALICE, MCS, on("node-1"))),
        ({"exclusive": "topo"}, on("node-3")),
    ],
    ids=str,
)
@pytest.mark.one_release(
    "Who shares a node follows from the form of `exclusive`, which is tested on each release"
)
def test_a_node_is_shared(actors: Actors, first: Annotations, second: Annotations) -> None:
    place(actors, "first", ALICE, on("node-1"), first)
    place(actors, "second", second)


@real
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"exclusive": "none"}, on("node-1")),
        ({"exclusive": "true"}, joined(ALICE, on("node-1"))),
        ({"exclusive": "user"}, joined(BOB, on("node-1"))),
        ({}, joined(BOB, on("node-1"), {"exclusive": "user"})),
        (MCS, joined(BOB, MCS, on("node-1"))),
        (MCS, joined(ALICE, MCS, {"account": "lab"}, on("node-1"))),
        (MCS, joined(ALICE, on("node-1"))),  # of the same account, but without mcs
        ({"exclusive": "topo"}, on("node-2")),  # the other node of the block
    ],
    ids=str,
)
@pytest.mark.one_release(
    "Who shares a node follows from the form of `exclusive`, which is tested on each release"
)
def test_a_node_is_not_shared(actors: Actors, first: Annotations, second: Annotations) -> None:
    place(actors, "first", ALICE, on("node-1"), first)
    actors.create("second", annotations=second)
    waits(actors, "second", "Resources")
    actors.delete("first")
    actors.bound("second")


# Choice of Nodes


@real
@pytest.mark.one_release(
    "The choice of nodes follows from the job's fields, which are tested on each release"
)
def test_job_gets_an_open_node_of_the_required_nodes(actors: Actors) -> None:
    """Kubernetes closes required nodes before the creation of the Pod, or while the Pod waits."""
    actors.cluster.kubectl("cordon", "node-2")
    try:
        assert place(actors, "p", on("node-[2-3]")) == "node-3"
        place(actors, "fourth", on("node-4"), {"exclusive": "none"})
        actors.create("q", annotations=joined(on("node-[3-4]"), {"exclusive": "none"}))
        actors.queued("q")
        actors.cluster.kubectl("cordon", "node-3")
        eventually(lambda: actors.scontrol("q")["ExcNodeList"] == "node-[2-3]", "told")
        actors.delete("p")
        actors.delete("fourth")
        assert actors.bound("q") == "node-4"
    finally:
        actors.cluster.kubectl("uncordon", "node-2", "node-3")


@real
@pytest.mark.usefixtures("reservation")
@pytest.mark.one_release(
    "The choice of nodes follows from the job's fields, which are tested on each release"
)
def test_job_without_a_reservation_avoids_reserved_nodes(actors: Actors) -> None:
    actors.create("p", annotations=joined(ALICE, on("node-3")))
    assert "May be reserved for other job" in waits(actors, "p", "ReqNodeNotAvail")
    assert place(actors, "q", ALICE, on("node-[3-4]")) == "node-4"


@real
@pytest.mark.one_release(
    "The choice of nodes follows from the job's fields, which are tested on each release"
)
def test_pod_does_not_wait_for_a_busy_preferred_node(actors: Actors) -> None:
    for node in ("node-3", "node-4"):
        place(actors, node, on(node), {"exclusive": "none"})
    assert place(actors, "p", {"prefer": "a100"}) in ("node-1", "node-2")


@real
@pytest.mark.one_release(
    "The choice of nodes follows from the job's fields, which are tested on each release"
)
def test_preferred_features_override_the_required_features(
    actors: Actors,
) -> None:
    """As in sbatch(1), --prefer overrides --constraint if possible."""
    assert place(actors, "p", {"prefer": "a100", "constraints": "h100"}) in ("node-3", "node-4")
    assert place(actors, "q", {"prefer": "h100&ib", "constraints": "h100"}) == "node-1"


@real
@pytest.mark.one_release(
    "The choice of nodes follows from the job's fields, which are tested on each release"
)
def test_waiting_pod_of_higher_priority_is_placed_first(actors: Actors) -> None:
    whole = joined(on("node-1"), {"exclusive": "none"})
    place(actors, "first", whole)
    for name, priority in {"low": "10", "high": "1000"}.items():
        actors.create(name, annotations=joined(whole, {"priority": priority}))
        actors.queued(name)
    actors.delete("first")
    actors.bound("high")
    assert actors.queued("low")


# Rejections by Slurm


@real
def test_too_large_request_is_reported_with_the_maximum_of_a_node(actors: Actors) -> None:
    """Slurm 26.05 accepts a job with more CPUs than the partition has, and lets the job wait for
    ever."""
    actors.create("p", cpu="1000", memory="1Gi")
    if actors.cluster.spec.release == "26.05":
        end = r"\. Slurm job \d+ has waited in partition main since .* UTC \(PartitionConfig\)\."
    else:
        end = r"; the extender asks Slurm again .* \(Slurm error \d+, HTTP \d+\)"
    told = waits(actors, "p", "TooLarge")
    cause = f"no node of partition main has more than {CPUS} CPUs; the Pod requests 1000"
    assert re.fullmatch(cause + end, told)
    actors.create("gpus", gpus=5)
    told = waits(actors, "gpus", "TooLarge")
    assert told.startswith(
        "no node of partition main has more than 4 GPUs; the Pod requests 5; the extender asks"
    )


@real
@pytest.mark.parametrize("name", ["constraints", "prefer"])
@pytest.mark.one_release(
    "The extender adds the features to Slurm's error; the errors are tested on each release"
)
def test_unknown_feature_is_reported_with_the_known_features(actors: Actors, name: str) -> None:
    actors.create("p", annotations={name: "h200"})
    told = waits(actors, "p", "Invalid")
    there = "the nodes of partition main have the features a100, h100, ib"
    assert f'annotation {PREFIX}{name}: "h200"; {there};' in told


REFUSED: Sequence[tuple[Annotations, str]] = (
    (joined(ALICE, {"account": "web"}), 'alice has no account "web"; accounts of alice: '),
    ({"account": "web"}, 'root has no account "web"; accounts of root: '),
    (
        joined(BOB, {"account": "nowhere"}),
        'bob has no account "nowhere"; accounts of bob: web; annotation',
    ),
    ({"user-id": "2005"}, "slurmctld does not know user 2005 (is sssd running on its host?)"),
    (joined(ALICE, {"qos": "bobs"}), 'alice has no QOS "bobs"; QOS of alice in account ml: '),
    ({"qos": "nowhere"}, 'root has no QOS "nowhere"; QOS of root in account root: '),
    (
        joined(BOB, {"reservation": "ours"}),
        'bob may not use reservation "ours"; bob has no reservation',
    ),
    ({"reservation": "nowhere"}, 'Slurm has no reservation "nowhere"; reservations of root: ours'),
    (joined({"reservation": "ours"}, on("node-1")), "Requested node configuration is not available"),
    ({"constraints": "h200"}, "Invalid feature specification"),
    ({"constraints": "h100&a100"}, "Requested node configuration is not available"),
    ({"prefer": "h200"}, "Invalid preferred feature"),
    (on("node-5"), "Invalid node name"),
    ({"excluded-nodes": "node-5"}, "Invalid node name"),
)


@real
@pytest.mark.usefixtures("reservation")
def test_slurm_rejects_unknown_and_forbidden_values_at_once(actors: Actors) -> None:
    pods = {f"p-{number}": refused for number, refused in enumerate(REFUSED)}
    for name, (asked, _) in pods.items():
        actors.create(name, annotations=asked)
    for name, (asked, words) in pods.items():
        told = waits(actors, name, "Invalid")
        assert words in told
        if "Requested node configuration" not in words and "slurmctld" not in words:
            annotation, value = list(asked.items())[-1]
            assert f'annotation {PREFIX}{annotation}: "{value}"' in told
        assert words in actors.event(name, "Invalid")
    assert actors.squeue() == {}


@real
@pytest.mark.one_release("The annotation decides when the extender asks again")
def test_pod_with_a_new_account_is_placed_after_an_annotation_change(
    actors: Actors, cluster: Cluster
) -> None:
    """Any annotation is enough. Other Pods with the same request are placed, too."""
    for name in ("p", "alike"):
        actors.create(name, annotations=joined(BOB, {"account": "later"}))
        assert "asks Slurm again after a change of the annotations, or at" in waits(
            actors, name, "Invalid"
        )
    declare(cluster, Account("later"), User("bob", ("later",), ("normal", "bobs")))
    cluster.kubectl("annotate", "pod", actors.full("p"), "example.com/mended=yes")
    for name in ("p", "alike"):
        actors.bound(name)


@real
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"qos": "one-runs"}, "QOSMaxJobsPerUserLimit"),
        ({"account": "narrow"}, "AssocMaxJobsLimit"),
        ({"qos": "one-submitted"}, "SlurmBusy"),
    ],
    ids=str,
)
@pytest.mark.one_release("Both releases give these reasons the same names")
def test_pod_over_a_slurm_limit_waits_and_shows_the_reason(
    actors: Actors, asked: Annotations, reason: str
) -> None:
    place(actors, "first", ALICE, asked)
    actors.create("second", annotations=joined(ALICE, asked))
    waits(actors, "second", reason)
    place(actors, "bobs", BOB)
    actors.delete("first")
    actors.bound("second", within=40)


@real
@pytest.mark.parametrize(
    ("asked", "reason", "change"),
    [
        ({"partition": "short", "timeout": "600"}, "PartitionTimeLimit", "update JobId={} TimeLimit=5"),
        ({"priority": "0"}, "JobHeldUser", "release {}"),
    ],
    ids=str,
)
@pytest.mark.one_release("Both releases give these reasons the same names")
def test_job_that_cannot_start_waits_for_an_administrator(
    actors: Actors, asked: Annotations, reason: str, change: str
) -> None:
    actors.create("p", annotations=asked)
    waits(actors, "p", reason)
    actors.cluster.run_slurm("scontrol", *change.format(actors.queued("p").id).split())
    actors.bound("p")


# Completeness of the cases


def test_every_annotation_has_a_case() -> None:
    asked = {name for case in CASES for name in case.asked}
    assert asked | {"exclusive"} == {row.name for row in JOB_ANNOTATIONS}


def test_every_form_of_exclusive_has_a_case() -> None:
    (row,) = (row for row in JOB_ANNOTATIONS if row.name == "exclusive")
    words = row.kind.allowed.removeprefix("one of ").split(", ")
    assert {form.value for form in FORMS} == {None, *words}
