"""Tests of two replicas on real components. Each replica is an extender with its kube-scheduler, and the
replicas' links to other components can fail."""

import json
from collections.abc import Iterator

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.processes.proxy import HEALTHY, REFUSE
from deploy.local.spec import ClusterSpec, SpecError
from tests.end_to_end.actors import pod
from tests.eventually import eventually


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=2, replicas=2, links=True)
    with Cluster.up(spec, tmp_path_factory.mktemp("pair")) as cluster:
        yield cluster


def create(cluster: Cluster, name: str) -> None:
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod(name)))


def gates(cluster: Cluster, name: str) -> str:
    path = "--output=jsonpath={.spec.schedulingGates[*].name}"
    return cluster.kubectl("get", "pod", name, path).stdout


def is_bound(cluster: Cluster, name: str) -> bool:
    return bool(cluster.kubectl("get", "pod", name, "--output=jsonpath={.spec.nodeName}").stdout)


def scheduling_leader(cluster: Cluster) -> str:
    """Returns the identity of the kube-scheduler that leads, which consists of the host and a uid."""
    path = "--output=jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease", "kube-scheduler", "--namespace=kube-system", path).stdout


@pytest.mark.real
def test_admission_goes_on_when_the_first_extender_is_killed(pair: Cluster) -> None:
    pair.kill("extender")
    try:
        for number in range(3):
            create(pair, f"admitted-{number}")
    finally:
        pair.start("extender")
    eventually(lambda: all(is_bound(pair, f"admitted-{number}") for number in range(3)), within_s=20)


@pytest.mark.real
def test_another_kube_scheduler_leads_when_the_leader_is_killed(pair: Cluster) -> None:
    before = scheduling_leader(pair)
    assert before
    killed = []
    for name in pair.spec.scheduler_names:  # one of the two is the leader
        pair.kill(name)
        killed.append(name)
        try:
            create(pair, f"after-{name}")
            eventually(lambda: is_bound(pair, f"after-{name}"), within_s=20)  # noqa: B023 - called at once
        finally:
            pair.start(name)
    assert scheduling_leader(pair) != before


@pytest.mark.real
def test_a_link_that_refuses_cuts_one_extender_off(pair: Cluster) -> None:
    def problems() -> str:
        port = pair.ports["extender-2-health"]
        return str(pair.kubectl("get", "--raw=/readyz", f"--server=http://127.0.0.1:{port}").stdout)

    pair.disturb("extender-2", "slurmrestd", REFUSE)
    try:
        # The problem takes up to 15 s to show, because a replica that does not lead reads only Slurm's
        # partitions, four times a minute.
        eventually(lambda: "Slurm" in problems(), within_s=40.0)
    finally:
        pair.disturb("extender-2", "slurmrestd", HEALTHY)
    eventually(lambda: "Slurm" not in problems(), within_s=40.0)
    with pytest.raises(ClusterError, match="extender-3-to-slurmrestd"):
        pair.disturb("extender-3", "slurmrestd", REFUSE)


def test_replicas_without_an_extender_are_refused() -> None:
    with pytest.raises(SpecError, match="replicas"):
        ClusterSpec(replicas=2, extender=False)
