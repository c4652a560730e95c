"""Tests of each example on a fully equipped cluster: the script prints PASS, and leaves nothing
behind."""

from __future__ import annotations

import pytest

from deploy.local.spec import DEFAULT_RELEASE
from tests.eventually import eventually_not
from tests.examples.reader import NAMES, PATIENT, Reader, Running

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

OUTAGE, ROLL_OUT = "21-an-outage", "22-a-roll-out"
"""Examples with their own tests. During `OUTAGE` (tested below), a component of the cluster is stopped.
`ROLL_OUT` needs slurmd Pods (tests/slurmd_pods)."""
ENVIRONMENT = {
    "14-a-user": {"USER_ID": "2001"},
    "15-an-account": {"ACCOUNT": "root"},
    "19-adoption": {"ADOPTS": "yes"},
}
"""By example: variables that a reader has to set."""
OF_KUBERNETES = {
    *(
        "05-refused-at-once",
        "11-an-init-container",
        "12-a-stateful-set",
        "13-a-cron-job",
        "23-mpi",
        "24-a-gang",
    ),
}
"""Examples for the default release of Slurm only."""
AWAY = {"26.05": "extender", "24.11": "slurmrestd"}
"""By release of Slurm: the component that is stopped during the outage."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (PATIENT, OUTAGE, ROLL_OUT)])
def test_example_passes_and_leaves_nothing(reader: Reader, name: str) -> None:
    if reader.cluster.spec.release != DEFAULT_RELEASE and name in OF_KUBERNETES:
        pytest.skip("it asks no more of Slurm than others do")
    before = reader.what_there_is()
    told = reader.runs(name, **ENVIRONMENT.get(name, {}))
    assert told.verdict == "PASS", told
    assert reader.what_there_is() == before


def test_example_of_an_outage_passes(reader: Reader) -> None:
    away = AWAY[reader.cluster.spec.release]
    before = reader.what_there_is()
    begins, ends = (reader.on_the_component(does, away) for does in ("stop", "restart"))
    told = reader.runs(OUTAGE, OUTAGE_BEGINS=begins, OUTAGE_ENDS=ends)
    assert told.verdict == "PASS", told
    assert reader.what_there_is() == before


def test_example_of_a_time_limit_passes(patient: Running, reader: Reader) -> None:
    told = patient.told()
    assert told.verdict == "PASS", told
    eventually_not(lambda: reader.cluster.kubectl("get", "pods", "-o", "name").stdout, "no Pod is left")
