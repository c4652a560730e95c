"""Test of the eviction limit with many jobs that end at once. The extender delays and reports the
evictions over the limit, and loses no eviction."""

from __future__ import annotations

import pytest

from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually

pytestmark = pytest.mark.real

NAMES = [f"p-{number}" for number in range(4)]


def held_back(actors: Actors) -> list[str]:
    told = [name for name in NAMES if actors.condition(name).get("reason") == "EvictionThrottled"]
    return told if len(told) == 2 else []


def test_evictions_over_the_limit_are_delayed_and_reported(quiet: Actors) -> None:
    actors, cluster = quiet, quiet.cluster
    cluster.start("extender", env={"SLURM_EXTENDER_EVICTIONS_PER_MINUTE": "2"})
    for name in NAMES:
        actors.create(name, cpu="8")
    for name in NAMES:
        actors.bound(name)
    cluster.run_slurm("scancel", "--state=running", "--user=root")
    held = eventually(lambda: held_back(actors), "two told that they are held back")
    eventually(lambda: set(actors.pods()) == {actors.full(name) for name in held}, "two deleted")
    status, report = actors.ready()
    assert status == 200  # the extender still serves
    assert report["problems"] == ["eviction limiter"]
    problem = actors.problem("eviction limiter")
    assert problem.startswith("the eviction limit is reached")
    assert "SlurmJobCancelled)" in problem
    log = (cluster.logs / "extender.log").read_text()
    for name in held:
        assert f'"pod":"{actors.namespace}/{actors.full(name)}"' in log
    metrics = fetch(f"http://127.0.0.1:{cluster.ports['extender-metrics']}/metrics").text
    assert "slurm_extender_evictions_throttled 2.0" in metrics
    assert "was cancelled" in actors.event(held[0], "EvictionThrottled")
    # An administrator sets another limit to allow the evictions.
    cluster.stop("extender")
    cluster.start("extender")
    eventually(lambda: not actors.pods(), "all gone")
    assert actors.ready()[1]["problems"] == []
