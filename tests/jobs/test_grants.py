"""Tests of the slot of a bound Pod. A slot is the part of a job's grant that one Pod gets. The tests
compare the slot in the Pod's annotations with the job's current slot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.jobs.grants import changed_slot, devices_taken
from extender.pod_request.pod import Pod
from tests.builders import kube_node, moment, placeholder_job, pod
from wellknown.allocation import Allocation
from wellknown.names import GRANTED, JOB_ID, NODE

AT = moment(*(replace(kube_node(name), has_agent=True) for name in ("n1", "n2")))
GPUS = "gpu:h100:2(IDX:0-1)"


def pod_with(gres: str = "", cores: str = "", memory_mb: int = 0, *, says: str = "n1") -> Pod:
    """Returns a Pod that is bound to n1. The annotations name the Node `says`."""
    allocation = Allocation(7, says, gres, cores, memory_mb)
    return pod(uid="u1", gates=(), node="n1", annotations=allocation.annotations())


@pytest.mark.parametrize(
    ("on_pod", "of_job", "words"),
    [
        (GPUS, GPUS, None),
        (GPUS, "gpu:2(IDX:0,1)", None),
        ("gpu:1(IDX:1)", "gpu:2(IDX:0-1)", None),
        ("", "gpu:2(IDX:0-1)", None),
        ("craynetwork(CNT:1)", "craynetwork(CNT:1)", None),
        (GPUS, "gpu:h100(CNT:2)", None),  # the report has no numbers
        ("devices?", GPUS, None),
        (GPUS, "shard:2((null))", None),
        (GPUS, "shard:2(0/4,2/4)", "no gpu now, and the Pod runs on gpu 0-1"),
        ("shard:2(IDX:1)", "shard:2(0/4,2/4)", None),  # Slurm 26.05 first reports IDX, later the shares
        (
            "shard:2(0/4,2/4)",
            "shard:2(2/4,0/4)",
            "shard of gpu 0 now, and the Pod runs on shard of gpu 1",
        ),
        (GPUS, "gpu:h100:2(IDX:2-3)", "gpu 2-3 now, and the Pod runs on gpu 0-1"),
        (GPUS, "gpu:h100:2(IDX:1-2)", "gpu 1-2 now, and the Pod runs on gpu 0-1"),
        (GPUS, "nic:1(IDX:0)", "no gpu now, and the Pod runs on gpu 0-1"),
        (
            "gpu:1(IDX:0),nic:1(IDX:1)",
            "gpu:1(IDX:3),nic:1(IDX:2)",
            "gpu 3 and nic 2 now, and the Pod runs on gpu 0 and nic 1",
        ),
        (
            "gpu:1(IDX:0),nic:1(IDX:1)",
            "gpu:1(IDX:3),nic:1(IDX:1)",
            "gpu 3 now, and the Pod runs on gpu 0",
        ),
    ],
)
def test_devices_taken_names_devices_that_the_job_lacks(
    on_pod: str, of_job: str, words: str | None
) -> None:
    of = pod_with(on_pod, "0")
    job = placeholder_job(of, node="n1", gres=(of_job,))
    told = devices_taken(of, job, AT.view)
    assert (told and sentence(told)) == (words and f"Slurm job {job.id} has {words}")


def test_pod_keeps_the_kubelets_devices_without_a_node_agent() -> None:
    of, job = pod_with(GPUS, "0"), placeholder_job(pod_with(GPUS), node="n1", gres=("gpu:1(IDX:7)",))
    assert devices_taken(of, job, moment(kube_node("n1")).view) is None
    assert devices_taken(of, job, moment().view) is None
    assert changed_slot(of, Allocation(7, "n1", "gpu:1(IDX:7)", "0")) is None


def test_requested_devices_without_a_report_count_as_present() -> None:
    of = pod_with(GPUS)
    untold = placeholder_job(of, node="n1", tres_per_node="gres/gpu:h100:2")
    assert devices_taken(of, untold, AT.view) is None
    asks_for_none = replace(untold, tres_per_node="")
    taken = devices_taken(of, asks_for_none, AT.view)
    assert taken is not None
    assert "no gpu now" in sentence(taken)


@pytest.mark.parametrize(
    "annotations", [{JOB_ID: "7", NODE: "n1"}, {JOB_ID: "7", NODE: "n1", GRANTED: "{}"}]
)
def test_pod_without_a_readable_allocation_is_left_alone(annotations: dict[str, str]) -> None:
    of = pod(uid="u1", gates=(), node="n1", annotations=annotations)
    job = placeholder_job(of, node="n1", gres=(GPUS,), cores=("0-3",))
    assert devices_taken(of, job, AT.view) is None
    assert changed_slot(of, Allocation(7, "n1", GPUS, "0-3")) is None


def test_allocation_that_names_another_node_is_ignored() -> None:
    of = pod_with(GPUS, says="n2")
    job = placeholder_job(of, node="n1", gres=("gpu:h100:2(IDX:2-3)",))
    assert devices_taken(of, job, AT.view) is None
    assert changed_slot(of, Allocation(7, "n1", "gpu:h100:2(IDX:2-3)", "4-7")) is None


@pytest.mark.parametrize(
    ("has", "now"),
    [
        (Allocation(7, "n1", GPUS, "0-3", 100), None),
        (Allocation(7, "n1", "gpu:2(IDX:0-1)", "0-3", 100), None),
        (Allocation(7, "n1"), None),  # Slurm does not report the slot
        (Allocation(7, "n1", "shard:2((null))", "0-3", 100), None),
        (Allocation(7, "n1", "shard:2(2/4)", "0-3", 100), None),
        (Allocation(7, "n1", GPUS, "4-7", 100), Allocation(7, "n1", GPUS, "4-7", 100)),
        (Allocation(7, "n1", GPUS, "0-3", 50), Allocation(7, "n1", GPUS, "0-3", 50)),
        (Allocation(7, "n1", "", "4-7"), Allocation(7, "n1", GPUS, "4-7", 100)),
        (Allocation(8, "n1", "gpu:3(IDX:0-2)"), Allocation(8, "n1", "gpu:3(IDX:0-2)", "0-3", 100)),
    ],
)
def test_changed_slot_returns_the_allocation_to_write(has: Allocation, now: Allocation | None) -> None:
    assert changed_slot(pod_with(GPUS, "0-3", 100), has) == now


def test_sockets_change_only_together_with_the_cores() -> None:
    of = pod(
        uid="u1", gates=(), node="n1", annotations=Allocation(7, "n1", GPUS, "0", 9, "8x1").annotations()
    )
    for has, sockets in (
        (Allocation(7, "n1", memory_mb=5), "8x1"),
        (Allocation(7, "n1", "", "1", 9, "1x4"), "1x4"),
    ):
        now = changed_slot(of, has)
        assert now is not None
        assert now.sockets == sockets
    assert changed_slot(of, Allocation(7, "n1", GPUS, "0", 9, "1x4")) is None
