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
from pathlib import Path
from statistics import median

from deploy.local.cluster import Cluster
from loadtest.arms import Arm, ours
from loadtest.measurement import Bench

_WARM_UP_PODS = 50


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
            burst = await bench.burst(int(line))
            _say(
                pods_per_s=burst.pods_per_s,
                bound_ms_p50=median(burst.bound_ms),
                extender_cpu_ms_per_pod=burst.extender_cpu_ms_per_pod,
                cpu_ms_per_pod=burst.cpu_ms_per_pod,
            )


def _say(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
