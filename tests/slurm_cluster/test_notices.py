"""Tests of the Event on slurmctld's Pod: the configurer reports each outcome for a configuration
once."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from deploy.local.cluster import Cluster
from kubernetes_client.rest import KubernetesRest
from slurm_cluster.configuration.configurer import Outcome, Verdict
from slurm_cluster.configuration.notices import Notices, PodName, event, make_event

NOW = datetime(2026, 11, 27, 12, 1, tzinfo=UTC)
REFUSED = Outcome(Verdict.REFUSED, "Parsing error at unrecognized key: KilWait")
POD = PodName("default", "slurmctld-0", "6f3a")


def test_the_same_outcome_is_reported_once() -> None:
    registry = CollectorRegistry()
    notices = Notices(registry)
    other = Outcome(Verdict.REFUSED, "another")
    current = Outcome(Verdict.CURRENT)
    told = [notices.outcome(each) for each in (REFUSED, REFUSED, other, current, REFUSED)]
    assert told == [True, False, True, False, True]
    count = registry.get_sample_value("slurm_cluster_configurations_total", {"verdict": "Refused"})
    assert (count, registry.get_sample_value("slurm_cluster_configuration_current")) == (3.0, 0.0)


def test_a_repetition_within_half_an_hour_is_the_same_event() -> None:
    times = (NOW + timedelta(minutes=minutes) for minutes in (0, 9, 40))
    names = [event(POD, REFUSED, time)["metadata"]["name"] for time in times]
    assert names[0] == names[1] != names[2]
    assert event(POD, REFUSED, NOW)["type"] == "Warning"
    assert event(POD, Outcome(Verdict.APPLIED, "x" * 5000), NOW)["message"] == "x" * 1000


@pytest.fixture
async def kubernetes(shared_cluster_if_needed: Callable[[], Cluster]) -> AsyncIterator[KubernetesRest]:
    client = await KubernetesRest.connect(shared_cluster_if_needed().kubeconfig)
    yield client
    await client.aclose()


@pytest.mark.real
async def test_kube_apiserver_takes_the_event(
    kubernetes: KubernetesRest, shared_cluster: Cluster
) -> None:
    await make_event(kubernetes, POD, REFUSED)
    await make_event(kubernetes, POD, REFUSED)
    shown = shared_cluster.kubectl(
        "get", "events", "--field-selector=involvedObject.name=slurmctld-0", "--output=json"
    )
    (made,) = json.loads(shown.stdout)["items"]
    told = made["reason"], made["message"], made["type"]
    assert told == ("ConfigurationRefused", REFUSED.words, "Warning")
    shared_cluster.kubectl("delete", "event", made["metadata"]["name"])
