"""Tests of a problem in /readyz: kube-scheduler evicts, or would evict, Pods for a Pod without an
allocation.

As in test_no_preemption.py, Slurm grants a node whose CPUs belong to other Pods. Here DefaultPreemption
is on, and the tests run with and without calls of preemptVerb.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.kubernetes.config import scheduler_configuration
from deploy.local.layout import Layout
from deploy.local.spec import EXTENDER_VERBS, ClusterSpec
from tests.end_to_end.actors import Actors, fetch
from tests.end_to_end.test_no_preemption import (
    GIVEN_BACK_SOON,
    URGENT,
    fill,
    make_class,
    refused,
    staying,
)
from tests.eventually import eventually

pytestmark = pytest.mark.real

PART = "preemption"
SETTING = "SLURM_EXTENDER_SCHEDULER_CONFIG_FILE"


@pytest.fixture(scope="module", params=["asked", "not asked"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    verbs = tuple(verb for verb in EXTENDER_VERBS if request.param == "asked" or verb != "preempt")
    spec = ClusterSpec(nodes=2, kill_wait=30, default_preemption=True, extender_verbs=verbs)
    with (
        tempfile.TemporaryDirectory(prefix="unsafe-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        make_class(running)
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


def is_asked(actors: Actors) -> bool:
    return "preempt" in actors.cluster.spec.extender_verbs


def counted(actors: Actors) -> float:
    told = fetch(actors.cluster.probes["extender"][1]).text.splitlines()
    name = "slurm_extender_unasked_preemptions_total "
    return float(next(line for line in told if line.startswith(name)).removeprefix(name))


def degraded(actors: Actors) -> bool:
    metric = f'slurm_extender_component_degraded{{component="{PART}"}} 1.0'
    return metric in fetch(actors.cluster.probes["extender"][1]).text


def test_kube_scheduler_configuration_that_would_evict_is_a_problem(actors: Actors) -> None:
    if is_asked(actors):
        assert PART not in actors.ready()[1]["problems"]
        return
    words = eventually(lambda: actors.problem(PART), "told")
    assert "slurm-extender's entry has no preemptVerb" in words
    assert degraded(actors)
    file = scheduler_configuration("kube-scheduler", Layout(actors.cluster.directory))
    before = file.read_text()
    try:
        corrected(file, file)
        eventually(lambda: PART not in actors.ready()[1]["problems"], "corrected")
    finally:
        file.write_text(before)
    eventually(lambda: actors.problem(PART), "told again")


def corrected(file: Path, into: Path) -> None:
    """Writes a configuration with preemptVerb."""
    document = yaml.safe_load(file.read_text())
    document["extenders"][0]["preemptVerb"] = "preempt"
    into.write_text(yaml.safe_dump(document))


def test_eviction_for_a_pod_without_an_allocation_is_a_problem(actors: Actors, tmp_path: Path) -> None:
    """The extender reads a correct copy of the configuration, and not the file of kube-scheduler."""
    cluster = actors.cluster
    shown = tmp_path / "kube-scheduler.yaml"
    corrected(scheduler_configuration("kube-scheduler", Layout(cluster.directory)), shown)
    cluster.stop("extender")
    cluster.start("extender", env={SETTING: str(shown), **GIVEN_BACK_SOON})
    low = fill(actors)
    assert PART not in actors.ready()[1]["problems"]
    actors.create("ours", cpu="4", annotations={"partition": "main"}, **URGENT)
    try:
        if is_asked(actors):
            refused(actors, "ours")
            eventually(lambda: actors.attempt("ours") > 1, "another node asked for")
            assert staying(actors) == low | {actors.full("ours")}
            assert (PART in actors.ready()[1]["problems"], counted(actors)) == (False, 0)
        else:
            words = eventually(lambda: actors.problem(PART), "told")
            assert f"for default/{actors.full('ours')}, a Pod for Slurm to place" in words
            assert degraded(actors)
            # The extender looks for evicted Pods a second later.
            eventually(
                lambda: counted(actors) == len(low) - len(staying(actors) & low) > 0, "all are counted"
            )
    finally:
        cluster.restart("extender")
