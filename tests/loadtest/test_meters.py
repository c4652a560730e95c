"""Tests of the readers of figures, with real metrics of kube-apiserver and a real log of slurmctld."""

import pytest

from loadtest.harness.meters import Histogram, MeterReading, api_writes
from loadtest.harness.slurm import starts

_SOME = 'component="apiserver",dry_run="",group="",resource="pods",version="v1"'
API = f"""\
# HELP apiserver_request_total Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{{code="201",{_SOME},scope="resource",subresource="binding",verb="POST"}} 7
apiserver_request_total{{code="409",{_SOME},scope="resource",subresource="binding",verb="POST"}} 1
apiserver_request_total{{code="200",{_SOME},scope="resource",subresource="",verb="PATCH"}} 5
apiserver_request_total{{code="200",{_SOME},scope="cluster",subresource="",verb="LIST"}} 9
"""

LOG = """\
[2026-11-22T11:19:53.590] sched: _slurm_rpc_allocate_resources JobId=63688830 NodeList=external-3 usec=42
[2026-11-22T11:19:53.600] sched: _slurm_rpc_allocate_resources JobId=63688831 NodeList=(null) usec=42
[2026-11-22T11:19:54.250] sched: Allocate JobId=36452532 NodeList=node-1 #CPUs=8 Partition=main
[2026-11-22T11:19:55.125] sched/backfill: _start_job: Started JobId=36452533 in main on node-2
[2026-11-22T11:19:56.000] _slurm_rpc_update_job: complete JobId=36452533 uid=0 usec=58
"""


def test_writes_are_counted_by_verb_and_resource_for_each_result() -> None:
    assert api_writes(API) == {"POST pods/binding": 8.0, "PATCH pods": 5.0}


def test_earlier_counts_are_subtracted() -> None:
    before = MeterReading({"etcd": 1.0}, {"GET job": 2.0}, {"GET job": 50.0}, {}, Histogram({0.5: 1.0}))
    now = MeterReading(
        {"etcd": 1.5},
        {"GET job": 5.0, "DELETE job": 1.0},
        {"GET job": 90.0},
        {"PATCH pods": 4.0},
        Histogram({0.5: 3.0}),
    )
    assert now.since(before) == MeterReading(
        {"etcd": 0.5},
        {"GET job": 3.0, "DELETE job": 1.0},
        {"GET job": 40.0},
        {"PATCH pods": 4.0},
        Histogram({0.5: 2.0}),
    )


def test_start_of_a_job_is_the_time_of_its_allocation() -> None:
    found = starts(LOG)
    assert set(found) == {63688830, 36452532, 36452533}
    assert found[36452532] - found[63688830] == pytest.approx(0.66)
    assert found[36452533] - found[63688830] == pytest.approx(1.535)
