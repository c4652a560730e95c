"""`python -m loadtest.slurmrestd_stub`: serves until killed. The package's docstring describes the
stub."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import typer
import uvloop

from loadtest.slurmrestd_stub.delays import Delays
from loadtest.slurmrestd_stub.routes import serving
from slurm_client.in_memory import DEFAULTS, InMemorySlurm, node, partition

FEATURES: Final = ("h100", "ib")
CLOSED_PARTITION: Final = "native"
"""A partition that starts no jobs."""

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def main(
    *,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes: external-1, external-2 ...")] = 5000,
    cpus: Annotated[int, typer.Option(min=1, help="CPUs of each node.")] = 8,
    memory_mb: Annotated[int, typer.Option(min=1, help="MB of each node.")] = 16_000,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 4,
    slowness: Annotated[float, typer.Option(help="Factor for the measured delays. 0: none.")] = 1.0,
) -> None:
    names = [f"external-{number}" for number in range(1, nodes + 1)]
    sized = partial(node, cpus=cpus, memory_mb=memory_mb, gres=f"gpu:h100:{gpus}" if gpus else "")
    slurm = InMemorySlurm(
        # All nodes have the first feature. Every second node has both.
        [sized(name, features=FEATURES[: 1 + at % 2]) for at, name in enumerate(names)],
        [partition("main", names, default=True), partition(CLOSED_PARTITION, names[:1], up=False)],
        tick_s=0.5,
        configuration=replace(
            DEFAULTS, cluster_name="local", max_job_count=200_000, kill_wait_s=40, min_job_age_s=300
        ),
    )

    async def serve() -> None:
        async with serving(slurm, Delays(nodes, slowness), port=port) as url:
            typer.echo(f"slurmrestd's stub serves at {url}")
            await asyncio.Event().wait()

    uvloop.run(serve())


if __name__ == "__main__":
    app()
