"""slurmctld comes back without any state: Pods run on, and are in Slurm's books again."""

from __future__ import annotations

import pytest

from tests.end_to_end.actors import Actors, eventually
from tests.end_to_end.state_loss import lose_all_state, open_partition, waits_pinned
from tests.end_to_end.test_audit import audit, metrics

pytestmark = pytest.mark.real


def test_pods_run_on_and_get_their_nodes_back_before_native_jobs(closed: Actors) -> None:
    actors, cluster = closed, closed.cluster
    names = [f"big-{number}" for number in range(4)]
    for name in names:
        actors.create(name, cpu="8")
    nodes = {name: actors.bound(name) for name in names}
    actors.create("next", cpu="8")
    actors.queued("next")
    uids = {name: pod["metadata"]["uid"] for name, pod in actors.pods().items()}

    lose_all_state(actors)
    native = cluster.run_slurm(
        "sbatch", "-n8", "-N1", "--mem=100", "--parsable", "--wrap", "sleep 60", user="alice"
    ).stdout.strip()
    eventually(lambda: all(waits_pinned(actors, n, nodes[n]) for n in names), "asked for again", 60)
    cluster.kill("extender")
    cluster.start("extender")
    eventually(lambda: "slurm_extender_pods_without_job 4.0" in metrics(actors), "counted anew", 40)
    told = [(kind, pod) for kind, pod, _ in audit(actors, "--settle", "1")[1]]
    assert sorted(told) == [("JobWaits", f"default/{actors.full(name)}") for name in names]
    open_partition(actors)

    def runs_where_its_pod_is(name: str) -> bool:
        job = actors.job_of(name)
        return job is not None and (job.state, job.node) == ("RUNNING", nodes[name])

    eventually(lambda: all(map(runs_where_its_pod_is, names)), "all in Slurm's books", 60)
    actors.queued("next")
    assert cluster.run_slurm("squeue", "-h", "-j", native, "-o", "%T").stdout.strip() == "PENDING"
    assert {name: pod["metadata"]["uid"] for name, pod in actors.pods().items()} == uids
    cluster.run_slurm("scancel", native)
    actors.scancel(names[0])  # and they are watched as before
    actors.gone(names[0], 60)
    actors.bound("next", 60)
