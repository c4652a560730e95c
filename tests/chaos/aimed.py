"""`python -m tests.chaos.aimed --kills 50`: kills of the extender between a user's allocation and its
record, on both releases of Slurm; exit status 1 where a Pod had two jobs, or a job was left over.

At each of these points Slurm has a job under an id of its own choice, and but for the last of them
nothing in Kubernetes tells of it. Every other time round the Pod is deleted meanwhile, so that nobody
asks for the job any more.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import typer

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from deploy.local.users import JOB_USERS
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

POINTS = (
    "SlurmRest.allocate_as_owner:after",
    "SlurmRest.job:before",
    "SlurmRest.job:after",
    "KubernetesRest.patch_pod:before",
    "KubernetesRest.patch_pod:after",
)
_POLICY = f"rules:\n- name: all\n  namespaces: [default]\n  default: {{user: {JOB_USERS['alice']}}}\n"
_WITHIN_S = 30.0


def main(
    kills: Annotated[int, typer.Option(help="Of each release.")] = 50,
    report: Annotated[Path, typer.Option(help="Where the figures go.")] = CHECKOUT / "build/aimed.json",
) -> None:
    """Kill the extender where nothing but the job's name tells whose the job is."""
    found = {release: _attacked(release, kills) for release in DEBIAN_SUITES}
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))  # noqa: T201 - for whoever runs it
    if any(each["duplicates"] or each["leaks"] for each in found.values()):
        raise typer.Exit(1)


def _attacked(release: str, kills: int) -> Counter[str]:
    found = Counter(dict.fromkeys(("kills", "deleted meanwhile", "bound", "duplicates", "leaks"), 0))
    spec = ClusterSpec(nodes=2, release=release, policy=_POLICY)
    with (
        tempfile.TemporaryDirectory(prefix="aimed-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
        closing(Actors(cluster)) as actors,
    ):
        cluster.stop("extender")
        for number, point in enumerate(islice(cycle(POINTS), kills)):
            found.update(_one(actors, point, deletes=number // len(POINTS) % 2 == 1))
    return found


def _one(actors: Actors, point: str, *, deletes: bool) -> Counter[str]:
    """What became of one Pod, in whose allocation the extender was killed."""
    cluster, found = actors.cluster, Counter[str]()
    actors.begin()
    argv = [sys.executable, "-m", "tests.end_to_end.crashing_extender"]
    cluster.start("extender", argv=argv, env={"SLURM_EXTENDER_CRASH_AT": point})
    actors.create("p")
    assert cluster.wait_exit("extender", 20.0) == -signal.SIGKILL, point
    found["kills"] += 1
    if deletes:
        actors.delete("p")
        actors.gone("p")
        found["deleted meanwhile"] += 1
    cluster.start("extender")
    began, most = time.monotonic(), 0
    while time.monotonic() < began + _WITHIN_S:
        live = [job for job in actors.jobs() if job.state != "COMPLETING"]
        most = max(most, len(live))
        if (not live) if deletes else (actors.node_of("p") is not None and len(live) == 1):
            break
        time.sleep(0.1)
    else:
        found["leaks"] += 1
    found["duplicates"] += most > 1
    if not deletes:
        found["bound"] += actors.node_of("p") is not None
        actors.delete("p")
    eventually(lambda: not actors.jobs(), "no jobs left")
    cluster.stop("extender")
    return found


if __name__ == "__main__":
    typer.run(main)
