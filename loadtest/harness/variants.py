"""The variants that are compared. All variants have the same kube-scheduler, Nodes and Pods, but
different programs place the Pods."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEFAULT_RELEASE, EXTENDER_VERBS, ClusterSpec
from loadtest.harness.command import Broken

_NOOP: Final = Path(__file__).parents[1] / "noop"
_TIMES_TO_THE_MILLISECOND: Final = "LogTimeFormat=iso8601_ms,format_stderr"
"""Makes slurmctld's log contain the start time of each job."""


class Placer(StrEnum):
    """The program that places the Pods:

    * ALONE: kube-scheduler alone
    * NOOP: kube-scheduler with the no-op extender of loadtest/noop. kube-scheduler calls this extender
      only for `filter` and `bind`.
    * STUB: kube-scheduler with this checkout's extender and webhook, and the stub of slurmrestd
    * REAL: kube-scheduler with this checkout's extender and webhook, and Slurm
    * REST: no placer. The same jobs are created through slurmrestd, without Kubernetes.
    """

    ALONE = "alone"
    NOOP = "noop"
    STUB = "stub"
    REAL = "real"
    REST = "rest"


ROOMY: Final = ClusterSpec(cpus_per_node=16, memory_mb=32_000, gpus_per_node=8)
"""The shape of a cluster with much room. A thousand Pods of bursts.SIZES fill half of 200 such nodes, so
every Pod fits on several nodes, whatever the order of placement."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A placer of Pods, and a number of Nodes. `like` has all other properties of the cluster, including
    the properties of Slurm."""

    placer: Placer
    nodes: int
    like: ClusterSpec = ROOMY

    @property
    def has_jobs(self) -> bool:
        """True if each Pod has a job in Slurm, because this project's extender runs."""
        return self.placer in {Placer.STUB, Placer.REAL}

    def spec(self, *, noop: Path | None = None, stub_url: str | None = None) -> ClusterSpec:
        """Returns the spec of the cluster. Before 25.11, each Node has a slurmd, because State=EXTERNAL
        does not exist."""
        external = self.like.release == DEFAULT_RELEASE
        stubbed = (("SLURMRESTD_URL", stub_url),) if stub_url else ()
        return replace(
            self.like,
            nodes=0 if external else self.nodes,
            external_nodes=self.nodes if external else 0,
            kubernetes=self.placer is not Placer.REST,
            extender=self.placer not in {Placer.ALONE, Placer.REST},
            extender_argv=(str(noop),) if noop else (),
            extender_verbs=("filter", "bind") if noop else EXTENDER_VERBS,
            extender_settings=(*stubbed, *self.like.extender_settings),
            slurm_conf=(_TIMES_TO_THE_MILLISECOND, *self.like.slurm_conf),
        )

    @contextmanager
    def up(self, directory: Path) -> Iterator["Running"]:
        """Starts the cluster, and the stub if needed. Both run until the end of the block."""
        with (
            _noop() if self.placer is Placer.NOOP else nullcontext() as noop,
            _stub(self.nodes, self.like) if self.placer is Placer.STUB else nullcontext() as url,
            Cluster.up(self.spec(noop=noop, stub_url=url), directory) as cluster,
        ):
            yield Running(self, cluster, url or cluster.slurmrestd_url)


@dataclass(frozen=True, slots=True)
class Running:
    """A variant with a running cluster. `slurmrestd_url` may be the stub's."""

    variant: Variant
    cluster: Cluster
    slurmrestd_url: str


@contextmanager
def _stub(nodes: int, like: ClusterSpec) -> Iterator[str]:
    """Yields the URL of a stub of slurmrestd. The stub runs in a process of its own, like Slurm's
    daemons. Raises Broken if the stub does not serve."""
    size = f"--cpus={like.cpus_per_node} --memory-mb={like.memory_mb} --gpus={like.gpus_per_node}"
    given = f"--port=0 --nodes={nodes} {size}".split()
    command = (sys.executable, "-m", "loadtest.slurmrestd_stub", *given)
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            if not words:
                raise Broken("the stub of slurmrestd does not serve")
            yield words[-1]
        finally:
            process.kill()


@contextmanager
def _noop() -> Iterator[Path]:
    """Builds the no-op extender, and yields the path of its program. Go caches the build."""
    # GOTOOLCHAIN=local: uses the installed Go. Otherwise Go may download another version.
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    with TemporaryDirectory(prefix="noop-") as folder:
        program = Path(folder, "noop")
        build = ("go", "build", "-o", str(program), ".")
        try:
            subprocess.run(build, cwd=_NOOP, env=environment, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise MissingPrerequisitesError(["Go is needed to build the no-op extender."]) from None
        except subprocess.CalledProcessError as error:
            raise ClusterError(f"go build failed:\n{error.stderr[-2000:]}") from None
        yield program
