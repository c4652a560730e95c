"""Tests of topologies with a real slurmctld of each release. slurmctld accepts a topology from labels,
shows the same topology, and places jobs accordingly. slurmctld rejects the entries that the files leave
out."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from slurm_client.model import JobSpec
from slurm_client.rest.client import SlurmRest
from slurm_cluster.topology.build import build
from slurm_cluster.topology.model import Kind, Topology, Unit
from slurm_cluster.topology.places import Place
from slurm_cluster.topology.rules import Members, Rules
from tests.eventually import eventually
from tests.slurm_cluster.topology.labels import LEAF, TREE, places
from tests.slurm_cluster.topology.slurms import RealSlurm

pytestmark = pytest.mark.real

ODD = tuple(f"node-{index}" for index in range(1, 8, 2))
EVEN = tuple(f"node-{index}" for index in range(2, 9, 2))
IDS = count(40_000_000)
BLOCKS = Rules(Kind.BLOCK, (LEAF,), (4, 8))


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def slurm(request: pytest.FixtureRequest) -> Iterator[RealSlurm]:
    """A Slurm with eight nodes. Neighbouring nodes are in different racks, so a job gets the nodes of
    one rack only because of the topology."""
    spec = ClusterSpec(nodes=8, kubernetes=False, extender=False, release=str(request.param))
    with (
        tempfile.TemporaryDirectory(prefix="topology-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        yield RealSlurm(cluster)


def in_racks(*more: str, numbers: tuple[str, str] = ("rack-1", "rack-2")) -> list[Place]:
    racks = [*((node, numbers[0]) for node in ODD), *((node, numbers[1]) for node in EVEN)]
    return places(*(f"{node} spine {rack}" for node, rack in racks), *more)


def in_blocks(*more: str) -> list[Place]:
    return [Place(place.node, place.path[1:]) for place in in_racks()] + places(*more)


def test_slurm_shows_the_same_tree_and_a_job_is_in_one_rack(slurm: RealSlurm) -> None:
    tree = build(TREE, in_racks()).topology
    slurm.takes(slurm.text_of(tree))
    assert slurm.shown().by_name == tree.by_name
    assert slurm.nodes_for("--nodes=4") in (ODD, EVEN)
    assert slurm.nodes_for("--nodes=3", "--nodelist=node-6", "--switches=1") in (
        ("node-2", "node-4", "node-6"),
        ("node-2", "node-6", "node-8"),
        ("node-4", "node-6", "node-8"),
    )
    assert len(slurm.nodes_for("--nodes=8")) == 8


def test_slurm_shows_the_same_blocks_and_a_job_is_in_one_block(slurm: RealSlurm) -> None:
    blocks = build(BLOCKS, in_blocks()).topology
    slurm.takes(slurm.text_of(blocks), Kind.BLOCK)
    assert slurm.shown() == blocks
    assert slurm.nodes_for("--nodes=4") in (ODD, EVEN)
    assert len(slurm.nodes_for("--nodes=8")) == 8


@contextmanager
def busy(slurm: RealSlurm, *nodes: str) -> Iterator[None]:
    """Occupies these nodes with a job for each node."""
    for node in nodes:
        slurm.cluster.run_slurm("salloc", "--no-shell", "--exclusive", f"--nodelist={node}")
    try:
        yield
    finally:
        jobs = slurm.cluster.run_slurm("squeue", "--noheader", "--format=%i").stdout.split()
        slurm.cluster.run_slurm("scancel", *jobs)
        slurm.registered(slurm.cluster.spec.nodes)


def placed(slurm: RealSlurm, **asked: Any) -> tuple[str, ...]:
    """Submits a job on four nodes as the extender does, and cancels the job. Returns the nodes; empty if
    the job does not start within 8 s."""

    async def nodes() -> tuple[str, ...]:
        client, job_id = SlurmRest(slurm.cluster.slurmrestd_url, slurm.cluster.token_file), next(IDS)
        await client.connect()
        try:
            await client.submit(JobSpec("gang", 1, 10, nodes=4, **asked), job_id)
            for _ in range(80):
                job = await client.job(job_id)
                if job is not None and job.state.running:
                    return job.nodes
                await asyncio.sleep(0.1)
            return ()
        finally:
            await client.cancel(job_id)
            await client.aclose()

    return asyncio.run(nodes())


def test_job_with_one_switch_waits_for_nodes_of_one_rack(slurm: RealSlurm) -> None:
    slurm.takes(slurm.text_of(build(TREE, in_racks()).topology))
    with busy(slurm, ODD[0], EVEN[0]):
        assert len(placed(slurm)) == 4
        assert placed(slurm, switches=1) == ()
    assert placed(slurm, switches=1) in (ODD, EVEN)


def test_segments_of_a_job_may_be_in_different_blocks(slurm: RealSlurm) -> None:
    slurm.takes(slurm.text_of(build(BLOCKS, in_blocks()).topology), Kind.BLOCK)
    with busy(slurm, *ODD[:2], *EVEN[:2]):
        assert placed(slurm, segment=4) == ()
        assert set(placed(slurm, segment=2)) == {*ODD[2:], *EVEN[2:]}


def test_numeric_label_values_are_valid_switch_names(slurm: RealSlurm) -> None:
    tree = build(TREE, in_racks(numbers=("007", "12"))).topology
    slurm.takes(slurm.text_of(tree))
    assert slurm.shown().by_name == tree.by_name


def test_nodes_without_labels_run_jobs_with_all_other_nodes(slurm: RealSlurm) -> None:
    found = [place for place in in_racks() if place.node not in ("node-7", "node-8")]
    built = build(TREE, [*found, *places("node-7 - -", "node-8 spine -")])
    assert [problem.nodes for problem in built.problems] == [("node-7", "node-8")]
    slurm.takes(slurm.text_of(built.topology))
    assert slurm.nodes_for("--nodes=1", "--nodelist=node-8") == ("node-8",)
    assert len(slurm.nodes_for("--nodes=8")) == 8


def test_a_node_in_no_switch_is_in_no_job_of_several_nodes(slurm: RealSlurm) -> None:
    """For this reason, `build` puts Nodes without labels into a switch. 24.11 does not even start a job
    of one node on a node without a switch."""
    slurm.takes(slurm.text_of(Topology(Kind.TREE, (Unit("rack-1", ODD),))))
    assert slurm.nodes_for("--nodes=2", "--nodelist=node-2") == ()
    alone = slurm.nodes_for("--nodes=1", "--nodelist=node-2")
    assert alone == (("node-2",) if slurm.has_yaml else ())


def test_a_node_in_no_block_is_in_no_job(slurm: RealSlurm) -> None:
    slurm.takes(slurm.text_of(build(BLOCKS, in_blocks()[:4]).topology), Kind.BLOCK)
    assert slurm.nodes_for("--nodes=4") == ODD
    assert slurm.nodes_for("--nodes=5") == ()


def test_without_a_root_no_job_has_nodes_of_two_racks(slurm: RealSlurm) -> None:
    tree = build(Rules(Kind.TREE, (LEAF,), root=None), in_blocks()).topology
    slurm.takes(slurm.text_of(tree))
    assert len(slurm.nodes_for("--nodes=4")) == 4
    assert slurm.nodes_for("--nodes=5") == ()


def test_nodes_that_slurm_does_not_know_are_ignored(slurm: RealSlurm) -> None:
    slurm.takes(slurm.text_of(build(TREE, in_racks("gone spine rack-1")).topology))
    assert slurm.nodes_for("--nodes=4") in (ODD, EVEN)


@pytest.mark.parametrize(
    ("units", "says"),
    [
        ((Unit("root", children=("a", "b")), Unit("a", ODD)), "has invalid child"),
        ((Unit("a", ODD), Unit("a", EVEN)), "has already been defined"),
        ((Unit("r", children=("a" + "9" * 20,)), Unit("a" + "9" * 20, ODD)), "has invalid child"),
    ],
)
def test_slurm_ends_at_a_wrong_tree(slurm: RealSlurm, units: tuple[Unit, ...], says: str) -> None:
    tree = Topology(Kind.TREE, units)
    text = slurm.text_of(tree)
    if not slurm.has_yaml:  # topology.conf omits the missing child, so the test adds a missing child
        text = text.replace("Switches=a\n", "Switches=a,b\n")
    assert says in slurm.refusal_of(text)


def test_slurm_ends_at_wrong_block_sizes(slurm: RealSlurm) -> None:
    blocks = replace(build(BLOCKS, in_blocks()).topology, block_sizes=(4, 12))
    assert "Invalid BlockSizes" in slurm.refusal_of(slurm.text_of(blocks), Kind.BLOCK)


@pytest.mark.parametrize(
    ("conf", "kind", "says"),
    [
        (
            "SwitchName=r Switches=a,b\nSwitchName=a Nodes=node-[1-8]\nSwitchName=b\n",
            Kind.TREE,
            "neither",
        ),
        ("BlockName=a Nodes=node-[1-4]\nBlockName=b\nBlockSizes=4\n", Kind.BLOCK, "hasn't got nodes"),
        ("BlockName=a Nodes=node-[1-4]\nBlockName=b Nodes=node-5\nBlockSizes=4\n", Kind.BLOCK, "lower"),
        (f"SwitchName={'x' * 65} Nodes=node-[1-8]\n", Kind.TREE, "must be shorter"),
    ],
)
def test_24_11_ends_at_entries_that_topology_conf_omits(
    slurm: RealSlurm, conf: str, kind: Kind, says: str
) -> None:
    if slurm.has_yaml:
        pytest.skip("this release takes it, or reads topology.yaml")
    assert says in slurm.refusal_of(conf, kind)


def test_too_small_blocks_and_empty_switches_do_no_harm(slurm: RealSlurm) -> None:
    """26.05 accepts blocks with too few nodes, and switches without nodes. For 24.11, `files.to_conf`
    omits both from topology.conf."""
    before = build(BLOCKS, in_blocks("gone-1 rack-9")).topology
    small = build(BLOCKS, in_blocks()[:-1], before).topology
    slurm.takes(slurm.text_of(small), Kind.BLOCK)
    assert slurm.nodes_for("--nodes=4") == ODD
    tree = build(TREE, in_racks(), build(TREE, in_racks("gone-1 s9 rack-9")).topology).topology
    slurm.takes(slurm.text_of(tree))
    assert slurm.nodes_for("--nodes=4") in (ODD, EVEN)


def test_nodes_are_in_the_switch_that_slurmd_reports(tmp_path: Path) -> None:
    """In 26.05, topology.yaml has only the switches, and each slurmd reports the switch of its node
    (`slurmd -Z`). If the file lacks a switch that a node has reported, slurmctld does not start
    again."""
    spec = ClusterSpec(nodes=1, dynamic_nodes=4, kubernetes=False, extender=False)
    racks = [Place(f"dynamic-{index}", ("spine", f"rack-{index % 2}")) for index in range(1, 5)]
    reported = replace(TREE, members=Members.REPORTED)
    with Cluster.up(spec, tmp_path) as cluster:
        slurm = RealSlurm(cluster)
        tree = build(reported, [*racks, *places("node-1 - -")]).topology
        slurm.takes(slurm.text_of(tree))
        for place in racks:
            tells = f"Feature=dynamic CPUs=2 Topology=default:{place.path[-1]}"
            cluster.register(place.node, tells)
        slurm.registered(5)
        assert slurm.shown().by_name["rack-1"].nodes == ("dynamic-1", "dynamic-3")
        in_one_rack = ("dynamic-1", "dynamic-3"), ("dynamic-2", "dynamic-4")
        assert slurm.nodes_for("--partition=dynamic", "--nodes=2") in in_one_rack
        # An administrator moves a node to another rack.
        cluster.run_slurm("scontrol", "update", "NodeName=dynamic-3", "Topology=default:rack-0")
        assert slurm.shown().by_name["rack-0"].nodes == ("dynamic-2", "dynamic-3", "dynamic-4")
        # After a restart of slurmctld, the nodes keep the switches in Slurm. So the file keeps rack-1,
        # although no label names rack-1 any more.
        moved = [replace(place, path=("spine", "rack-0")) for place in racks]
        after = build(reported, [*moved, *places("node-1 - -")], tree).topology
        slurm.takes(slurm.text_of(after))
        assert slurm.shown().by_name["rack-1"].nodes == ("dynamic-1",)
        forgotten = build(reported, [*moved, *places("node-1 - -")]).topology
        assert "Invalid node topology" in slurm.refusal_of(slurm.text_of(forgotten))
        slurm.takes(slurm.text_of(after))


def test_a_node_that_names_an_unknown_switch_is_invalid_and_then_drained(tmp_path: Path) -> None:
    """Only 26.05. If the node reports only the switch's name, the switch must exist. If the node reports
    the path from the root, Slurm creates the switch."""
    spec = ClusterSpec(nodes=1, dynamic_nodes=3, kubernetes=False, extender=False)
    reported = replace(TREE, members=Members.REPORTED)
    with Cluster.up(spec, tmp_path) as cluster:
        slurm = RealSlurm(cluster)
        first = build(reported, places("node-1 - -")).topology
        slurm.takes(slurm.text_of(first))
        cluster.register("dynamic-1", "Feature=dynamic CPUs=2 Topology=default:rack-7")
        slurm.until_states(lambda states: states.get("dynamic-1") == "inval")
        for node in ("dynamic-2", "dynamic-3"):
            cluster.register(node, "Feature=dynamic CPUs=2 Topology=default:cluster:rack-8")
        slurm.registered(3)
        assert slurm.shown().by_name["rack-8"].nodes == ("dynamic-2", "dynamic-3")
        assert slurm.nodes_for("--partition=dynamic", "--nodes=2") == ("dynamic-2", "dynamic-3")
        # slurmctld works with a file that lacks the new nodes, and later with a file that has the new
        # nodes.
        slurm.restart()
        assert slurm.shown().by_name["rack-8"].nodes == ("dynamic-2", "dynamic-3")
        every = places("node-1 - -", "dynamic-1 s rack-7", "dynamic-2 s rack-8", "dynamic-3 s rack-8")
        slurm.file.write_text(slurm.text_of(build(reported, every, first).topology))
        cluster.run_slurm("scontrol", "reconfigure")
        slurm.until_states(lambda states: states.get("dynamic-1") == "drained")
        fix = ("NodeName=dynamic-1", "Topology=default:rack-7", "State=RESUME")
        cluster.run_slurm("scontrol", "update", *fix)
        slurm.registered(4)
        assert slurm.shown().by_name["rack-7"].nodes == ("dynamic-1",)
        assert slurm.shown().parents["rack-8"] == "s"


@pytest.mark.parametrize("release", list(DEBIAN_SUITES))
def test_listed_node_joins_its_block_after_a_reconfigure(tmp_path: Path, release: str) -> None:
    """In both releases, a node that joins Slurm is in no block before a reconfiguration, even if the
    file lists the node. For this reason, the file lists only nodes that Slurm already has, and changes
    when a node joins."""
    spec = ClusterSpec(
        nodes=1,
        dynamic_nodes=2,
        kubernetes=False,
        extender=False,
        release=release,
        slurm_conf=("PartitionName=all Nodes=ALL State=UP",),
    )
    joined = places("node-1 b1", "dynamic-1 b1", "dynamic-2 b1")
    one = Rules(Kind.BLOCK, (LEAF,), (1,))
    with Cluster.up(spec, tmp_path) as cluster:
        slurm = RealSlurm(cluster)
        slurm.takes(slurm.text_of(build(one, joined).topology), Kind.BLOCK)
        for index in (1, 2):
            cluster.register(f"dynamic-{index}", "Feature=dynamic CPUs=2")
        slurm.registered(3)
        assert slurm.nodes_for("--partition=all", "--nodes=2") == ()
        cluster.run_slurm("scontrol", "reconfigure")
        eventually(lambda: len(slurm.nodes_for("--partition=all", "--nodes=3")) == 3, within_s=30)
