"""Tests of the mapping between Kubernetes Nodes and Slurm nodes. If several Nodes name the same Slurm
node, Pods that already run on these Nodes keep their jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.jobs.phase import Phase
from extender.jobs.tracked_job import TrackedJob
from extender.jobs.verdict import TAKEN
from extender.node_view.view import Wish
from extender.placement.recovery import recovered
from extender.placement.transitions.table import after_read
from extender.pod_request.constraints.node_constraints import ANYWHERE, Node
from extender.pod_request.pod import Pod
from extender.record.states import State
from slurm_client import hostlist
from slurm_client.model import Job, Partition
from tests.builders import changed, kube_node, moment, placeholder_job, placeholder_of, pod, view
from wellknown.allocation import Allocation
from wellknown.names import NODE_NAME_LABEL
from wellknown.node_mapping import NodeNames, is_kubelets, problem, slurm_name

NAMES = st.sampled_from(["a", "b", "c"])


def test_node_names_the_slurm_node_by_its_label_or_its_own_name() -> None:
    assert slurm_name("a", {"label": "gpu-01"}, "label") == "gpu-01"
    assert slurm_name("a", {"other": "gpu-01"}, "label") == "a"
    assert slurm_name("a", {"label": ""}, "label") == "a"


@given(st.dictionaries(NAMES, NAMES))
def test_one_node_represents_a_slurm_node_in_both_directions(named: dict[str, str]) -> None:
    names = NodeNames(named)
    for slurm_node in "abc":
        naming = {node for node, says in named.items() if says == slurm_node}
        assert set(names.naming(slurm_node)) == naming
        stands = names.standing_for(slurm_node)
        assert stands is None or stands in naming
        labelled = naming - {slurm_node} or naming
        assert {stands} == (labelled if len(labelled) == 1 else {None})
        assert names.contested.get(slurm_node, ()) == (
            tuple(sorted(naming)) if naming - {stands} else ()
        )


def test_nodes_that_name_the_same_slurm_node_are_reported() -> None:
    assert problem(NodeNames({"a": "a", "b": "x"}), "label") is None
    assert problem(NodeNames({"a": "x", "x": "x", "c": "y", "d": "y"}), "label") == (
        "Nodes a, x name Slurm's node x: a alone stands for it; "
        "Nodes c, d name Slurm's node y: none stands for it, and it gets no Pods; the label is label"
    )


def test_report_names_a_few_of_many_contested_nodes() -> None:
    told = problem(
        NodeNames({f"n{number}": f"s{number // 20}" for number in range(1000)}), NODE_NAME_LABEL
    )
    assert told is not None
    assert "and 15 more name" in told
    assert "and 45 more; the label is" in told


@pytest.mark.parametrize(
    ("label", "kubelets"),
    [
        (NODE_NAME_LABEL, False),
        ("node-restriction.kubernetes.io/slurm", False),
        ("example.com.node-restriction.kubernetes.io/slurm", False),
        ("slurm-extender.io/node", True),
        ("kubernetes.io/hostname", True),
        ("notnode-restriction.kubernetes.io/slurm", True),
        ("node-restriction.kubernetes.io", True),
    ],
)
def test_labels_that_a_kubelet_may_set_are_known(label: str, kubelets: bool) -> None:
    assert is_kubelets(label) is kubelets


# Contested: n1 and n2 both name the Slurm node gpu, and no Kubernetes Node has the name gpu

CONTESTED = (kube_node("n1", {"slurm": "gpu"}), kube_node("n2", {"slurm": "gpu"}), kube_node("n3"))


def bound_on(node: str) -> tuple[Pod, Job]:
    before = pod(gates=(), node=node)
    job = placeholder_job(before, node="gpu")
    return changed(before, job_id=job.id, allocation=Allocation(job.id, node)), job


def test_placeholder_excludes_a_contested_node() -> None:
    main = Partition("main", ("gpu", "n3"), default=True)
    seen = view(*CONTESTED, partitions=[main])
    assert seen.node_of("gpu") is None
    assert hostlist.names(seen.exclusion(Wish(ANYWHERE, "main")).nodes) == ("gpu",)


def test_label_of_a_node_overrides_the_own_name_of_another() -> None:
    """A kubelet can register a Node under any name, but cannot set the label. So the label wins."""
    labelled, namesake = kube_node("n1", {"slurm": "gpu"}), kube_node("gpu")
    seen = view(labelled, namesake)
    assert seen.node_of("gpu") is labelled
    assert {node.name for node in seen.naming("gpu")} == {"n1", "gpu"}
    assert view(*CONTESTED, namesake).node_of("gpu") is None


@pytest.mark.parametrize("others", [(), (kube_node("gpu"),)], ids=["by nobody", "by its namesake"])
def test_running_pod_keeps_its_job_after_its_node_becomes_contested(others: tuple[Node, ...]) -> None:
    """A new leader must recover the Pod's job, and must not doubt a job that runs on the Pod's Node."""
    at, (running, job) = moment(*CONTESTED, *others), bound_on("n1")
    record, unwanted = recovered((running,), (job,), at)
    assert record is not None
    assert (record.state, record.job.id, unwanted) == (State.BOUND, job.id, ())
    unverified = placeholder_of(
        running, State.BOUND, job=TrackedJob(id=job.id, phase=Phase.SUSPECT, verdict=TAKEN)
    )
    after = after_read(unverified, job, at)
    assert (after.state, after.job.unverified) == (State.BOUND, False)
