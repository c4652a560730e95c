"""`python -m loadtest.slurmrestd_stub`: serves until it is killed. See the package for what it is."""

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
"""The one that starts nothing."""

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def main(
    *,
    port: Annotated[int, typer.Option(help="On 127.0.0.1.")],
    nodes: Annotated[int, typer.Option(min=1, help="Called external-1, external-2 ...")] = 5000,
    cpus: Annotated[int, typer.Option(min=1, help="Of each node.")] = 8,
    memory_mb: Annotated[int, typer.Option(min=1, help="Of each node.")] = 16_000,
    gpus: Annotated[int, typer.Option(min=0, help="Of each node.")] = 4,
    slowness: Annotated[float, typer.Option(help="Times the measured latencies; 0: at once.")] = 1.0,
) -> None:
    names = [f"external-{number}" for number in range(1, nodes + 1)]
    sized = partial(node, cpus=cpus, memory_mb=memory_mb, gres=f"gpu:h100:{gpus}" if gpus else "")
    slurm = InMemorySlurm(
        # Node after node has one feature more, or one less; all have the first.
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
