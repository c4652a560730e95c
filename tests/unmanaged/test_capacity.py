"""Tests of the capacity that Slurm's jobs leave to unmanaged Pods."""

from dataclasses import replace
from decimal import Decimal

import pytest

from extender.pod_request.translation import TranslationConfig
from extender.unmanaged.capacity import (
    Amounts,
    Occupancy,
    UnschedulablePod,
    exempt,
    left_by_jobs,
    open_to_pods,
    requested,
    uncounted,
)
from slurm_client.in_memory import node
from slurm_client.job_state import JobState
from tests.builders import TRANSLATION, Manifest, pod_manifest, unmanaged
from wellknown.names import JOB_ID, NODE
from wellknown.resources import MEBIBYTE

GI = 1024 * MEBIBYTE
WHOLE = Amounts(8000, 16 * GI, {"gpu": 4})


def occupancy(**left: Amounts) -> Occupancy:
    seen = Occupancy()
    seen.slurm_seen(left)
    seen.take_those_with_room()
    return seen


def woken(seen: Occupancy) -> list[str]:
    """Returns the uids of the woken Pods."""
    return [pod.uid for pod in seen.take_those_with_room()]


def refused(
    uid: str = "u", asked: Amounts = WHOLE, priority: int = 0, at: float = 0.0
) -> UnschedulablePod:
    return UnschedulablePod(uid, "default", uid, priority, asked, at)


def test_requests_of_a_pod_are_millicpus_bytes_and_devices() -> None:
    asked = requested(unmanaged(cpu="1500m", memory="1Gi", gpus=2), TRANSLATION)
    assert asked == Amounts(1500, GI, {"gpu": 2})


def test_typed_device_counts_also_as_untyped_device() -> None:
    typed = TranslationConfig(gres={"nvidia.com/gpu": "gpu:h100"})
    assert requested(unmanaged(gpus=2), typed).gres == {"gpu": 2, "gpu:h100": 2}


def test_pod_without_requests_fits_everywhere_and_a_huge_request_nowhere() -> None:
    asked = requested(unmanaged(cpu=None, memory=None), TRANSLATION)
    assert asked.within(Amounts(-1000, -1, {"gpu": -1}))
    assert not requested(unmanaged(cpu="1" + "0" * 20), TRANSLATION).within(WHOLE)


def test_free_capacity_excludes_allocated_resources() -> None:
    one = node("n1", cpus=8, memory_mb=16_000, gres="gpu:h100:4(S:0-1)")
    used = replace(one, cpus_allocated=3, memory_allocated_mb=6000, gres_used="gpu:h100:3(IDX:0,2-3)")
    assert left_by_jobs(used, TRANSLATION) == Amounts(5000, 10_000 * MEBIBYTE, {"gpu": 1, "gpu:h100": 1})
    assert open_to_pods(used, TRANSLATION) == left_by_jobs(used, TRANSLATION)


@pytest.mark.parametrize(("unit", "left"), [("0.1", 500), ("1", 5000), ("2", 10_000)])
def test_free_cpus_are_counted_in_kubernetes_cpus(unit: str, left: int) -> None:
    used = replace(node("n1", cpus=8), cpus_allocated=3)
    assert left_by_jobs(used, TranslationConfig(cpu_unit=Decimal(unit))).cpu == left


def test_node_with_an_ending_job_has_no_free_capacity() -> None:
    """Slurm already shows the node as free, but processes of the job may remain."""
    ending = replace(node("n1"), states=frozenset({"IDLE", "COMPLETING"}))
    assert open_to_pods(ending, TRANSLATION) == Amounts()


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (WHOLE, True),
        (replace(WHOLE, cpu=8001), False),
        (replace(WHOLE, memory=16 * GI + 1), False),
        (replace(WHOLE, gres={"gpu": 5}), False),
        (Amounts(gres={"tpu": 1}), False),
        (Amounts(gres={"gpu": 4}), True),
    ],
)
def test_pod_fits_if_all_requested_resources_are_free(asked: Amounts, fits: bool) -> None:
    assert (occupancy(n1=WHOLE).closed(asked, ["n1"]) == []) is fits


def test_node_outside_slurm_is_open() -> None:
    assert occupancy(n1=Amounts()).closed(WHOLE, ["n1", "n2"]) == ["n1"]


def test_unmanaged_pods_use_free_capacity_until_they_are_gone() -> None:
    seen, half = occupancy(n1=WHOLE), replace(WHOLE, cpu=4500)
    seen.pod_seen("a", "n1", half)
    assert seen.closed(half, ["n1"]) == ["n1"]
    seen.pod_seen("a", "n1", replace(half, cpu=1000))  # resized in place
    assert seen.closed(replace(half, cpu=7000, gres={}, memory=0), ["n1"]) == []
    seen.pod_gone("a")
    seen.pod_gone("never seen")
    assert seen.closed(WHOLE, ["n1"]) == []
    before_slurm = Occupancy()
    before_slurm.pod_seen("a", "n1", WHOLE)
    before_slurm.slurm_seen({"n1": WHOLE})
    assert before_slurm.closed(Amounts(1), ["n1"]) == ["n1"]


def test_eviction_frees_only_the_resources_of_the_evicted_pods() -> None:
    seen = occupancy(n1=replace(WHOLE, cpu=6000))  # jobs have 2 CPUs of 8
    seen.pod_seen("a", "n1", Amounts(3000))
    seen.pod_seen("b", "n1", Amounts(2000))
    for gone, cpu in (((), 1000), (("a",), 4000), (("a", "b"), 6000), (("unknown",), 1000)):
        assert seen.fits_without(Amounts(cpu), "n1", gone)
        assert not seen.fits_without(Amounts(cpu + 1), "n1", gone)
    assert seen.fits_without(WHOLE, "not Slurm's", ())


def test_leaving_pods_use_capacity_except_for_the_preempting_pod() -> None:
    seen, half = occupancy(n1=WHOLE), replace(WHOLE, cpu=5000)
    seen.pod_seen("a", "n1", half)
    assert not seen.fits_without_leaving(WHOLE, "n1")
    seen.pod_seen("a", "n1", half, leaving=True)
    assert seen.fits_without_leaving(WHOLE, "n1")
    assert seen.closed(WHOLE, ["n1"]) == ["n1"]
    seen.pod_gone("a")
    seen.pod_seen("a", "n1", half)
    assert not seen.fits_without_leaving(WHOLE, "n1"), "nothing is remembered of it"


@pytest.mark.parametrize(
    ("state", "counts"),
    [("RUNNING", 0), ("RUNNING,COMPLETING", 1), ("CANCELLED,COMPLETING", 1), ("CANCELLED", 1)],
)
def test_managed_pod_uses_capacity_after_the_end_of_its_job(state: str, counts: int) -> None:
    ours = pod_manifest(annotations={JOB_ID: "7", NODE: "n1"})
    assert len(list(uncounted([ours], {7: JobState.parse(state)}, TRANSLATION))) == counts


def test_pods_without_a_running_job_use_capacity_despite_annotations() -> None:
    forged = unmanaged(annotations={JOB_ID: "7", NODE: "n1"})
    jobless, lost = pod_manifest(), pod_manifest(annotations={JOB_ID: "8", NODE: "n1"})
    running = {7: JobState("RUNNING")}
    assert len(list(uncounted([forged, jobless, lost], running, TRANSLATION))) == 3


def test_annotated_pod_of_another_scheduler_counts_as_unmanaged() -> None:
    wishes = {TRANSLATION.annotation_prefix + "partition": "main", JOB_ID: "7", NODE: "n1"}
    foreign = pod_manifest("f", gates=(), node="n1", annotations=wishes, schedulerName="volcano")
    takes = replace(TRANSLATION, take_schedulers=("volcano",))
    running = {7: JobState.parse("RUNNING")}
    for translation in (TRANSLATION, takes):
        assert len(list(uncounted([foreign], running, translation))) == 1


DAEMON_SET: Manifest = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent"}


@pytest.mark.parametrize(
    ("owners", "priority", "is_exempt"),
    [
        ([], 0, False),
        ([DAEMON_SET | {"controller": True}], 0, True),
        ([DAEMON_SET], 0, False),
        ([DAEMON_SET | {"controller": True, "apiVersion": "example.com/v1"}], 0, False),
        ([{"kind": "DaemonSet", "controller": True}], 0, False),
        ([{"kind": "ReplicaSet", "name": "web", "controller": True}], 0, False),
        ([], 2_000_000_000, True),
        ([], 1_000_000_000, False),
    ],
)
def test_daemonset_and_critical_pods_are_exempt(
    owners: list[Manifest], priority: int, is_exempt: bool
) -> None:
    manifest = unmanaged(priority=priority)
    manifest["metadata"]["ownerReferences"] = owners
    assert exempt(manifest) is is_exempt


def test_exempt_pods_use_capacity_and_are_no_uncounted_pods() -> None:
    seen = occupancy(n1=WHOLE)
    seen.pod_seen("agent", "n1", Amounts(500), exempt=True)
    assert seen.closed(Amounts(8000), ["n1"]) == ["n1"]
    assert not seen.has_uncounted_pods("n1")
    seen.pod_seen("u", "n1", Amounts(500))
    assert seen.has_uncounted_pods("n1")


def test_refused_pod_is_woken_once_when_a_job_frees_capacity() -> None:
    seen = occupancy(n1=Amounts(), n2=Amounts())
    seen.remember(refused())
    seen.slurm_seen({"n1": Amounts(), "n2": replace(WHOLE, cpu=7999)})
    assert woken(seen) == []
    seen.slurm_seen({"n1": Amounts(), "n2": WHOLE})
    assert woken(seen) == ["u"]
    assert woken(seen) == []


def test_refused_pod_is_woken_when_an_unmanaged_pod_frees_capacity() -> None:
    seen = occupancy(n1=WHOLE)
    seen.pod_seen("a", "n1", Amounts(1))
    seen.remember(refused())
    assert woken(seen) == []
    seen.pod_gone("a")
    assert woken(seen) == ["u"]


def test_unchanged_free_capacity_wakes_no_pod() -> None:
    """The free capacity is enough for the Pod, so kube-scheduler has rejected the Pod for another
    reason. If unchanged capacity woke the Pod, the extender would wake the Pod for ever."""
    seen = occupancy(n1=WHOLE, n2=Amounts())
    seen.remember(refused())
    seen.slurm_seen({"n1": WHOLE, "n2": Amounts(1)})
    assert woken(seen) == []


def test_reading_of_a_single_node_updates_only_this_node() -> None:
    seen = occupancy(n1=WHOLE, n2=Amounts())
    seen.pod_seen("a", "n1", Amounts(cpu=1000))
    seen.remember(refused(asked=Amounts(cpu=4000)))
    seen.node_seen("n1", Amounts(cpu=4000))
    assert seen.closed(Amounts(cpu=4000), ["n1", "n2"]) == ["n1", "n2"], "3 are left"
    assert woken(seen) == []
    seen.node_seen("n1", Amounts(cpu=5000))
    assert seen.closed(Amounts(cpu=4000), ["n1", "n2"]) == ["n2"]
    assert woken(seen) == ["u"]


def test_single_node_can_be_read_before_all_nodes() -> None:
    seen = Occupancy()
    seen.node_seen("n1", Amounts())
    assert seen.closed(WHOLE, ["n1", "n2"]) == ["n1"]


def test_pods_are_woken_after_an_outage_or_with_an_empty_request() -> None:
    seen = occupancy(n1=WHOLE)
    seen.remember(refused())
    seen.slurm_seen({"n1": WHOLE}, after_outage=True)
    assert woken(seen) == ["u"]
    seen = Occupancy()
    seen.remember(refused(asked=Amounts()))
    assert woken(seen) == ["u"]


def test_pods_of_higher_priority_are_woken_first() -> None:
    seen = occupancy(n1=Amounts())
    for uid, priority in (("a", 0), ("b", 5), ("c", 0)):
        seen.remember(refused(uid, priority=priority))
    seen.slurm_seen({"n1": WHOLE})
    assert woken(seen) == ["b", "a", "c"]


def test_bound_pods_and_old_refusals_are_forgotten() -> None:
    seen = occupancy(n1=Amounts())
    for uid, at in (("old", 1.0), ("bound", 9.0), ("new", 9.0)):
        seen.remember(refused(uid, at=at))
    seen.forget("bound")
    assert seen.forget_before(5.0)
    seen.slurm_seen({"n1": WHOLE})
    assert woken(seen) == ["new"]
    assert not seen.forget_before(5.0)


def test_number_of_remembered_pods_is_limited() -> None:
    seen = Occupancy(remembered=2)
    for uid in "abc":
        seen.remember(refused(uid))
    seen.slurm_seen({"n1": WHOLE})
    assert woken(seen) == ["a", "b"]
