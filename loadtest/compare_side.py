"""One side of `loadtest.compare`: run by its path, among the packages of another checkout. So it uses no
more of them than it must: what it uses has to be alike in both.

Says a line of JSON when its cluster is up, and one of what each burst came to; each line that it reads
is how many Pods the next one has. Ends with its input.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from threading import Event, Thread
from time import thread_time

from deploy.local.cluster import Cluster
from loadtest.arms import Arm, ours
from loadtest.measurement import Bench

_WARM_UP_PODS = 50
_BETWEEN_S = 0.05


def main(nodes: int) -> None:
    directory = Path(tempfile.mkdtemp(prefix="compare-"))
    arm = ours(nodes)
    with Cluster.up(arm.spec, directory) as cluster:
        asyncio.run(_work(arm, cluster))
    shutil.rmtree(directory)


async def _work(arm: Arm, cluster: Cluster) -> None:
    async with Bench.of(arm, cluster) as bench:
        await bench.burst(_WARM_UP_PODS)
        _say(up=1)
        while line := await asyncio.to_thread(sys.stdin.readline):
            with _measured_beside() as paces:
                burst = await bench.burst(int(line))
            _say(
                yardstick_ms=fmean(paces) * 1000,
                pods_per_s=burst.pods_per_s,
                bound_ms_p50=median(burst.bound_ms),
                extender_cpu_ms_per_pod=burst.extender_cpu_ms_per_pod,
                cpu_ms_per_pod=burst.cpu_ms_per_pod,
            )


@contextmanager
def _measured_beside() -> Iterator[list[float]]:
    """Gives how much CPU time, in seconds, the same small work has taken again and again meanwhile: on a
    machine that is shared the same work takes half as long, or twice, a minute later."""
    paces: list[float] = []
    over = Event()

    def measure() -> None:
        while not over.wait(_BETWEEN_S):
            began = thread_time()
            _some_work()
            paces.append(thread_time() - began)

    thread = Thread(target=measure)
    thread.start()
    try:
        yield paces
    finally:
        over.set()
        thread.join()


def _some_work() -> None:
    """About a millisecond of what Python programs do: texts, maps, and memory for them."""
    texts = {f"name-{number}": [number] for number in range(1500)}
    json.loads(json.dumps(texts))


def _say(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
