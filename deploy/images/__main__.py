"""`python -m deploy.images`: builds the container images on this machine."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deploy.images.builder import Choice, build_images, project_version
from deploy.images.image import image, names
from deploy.local.errors import ClusterError
from deploy.local.progress import Stopwatch
from deploy.local.spec import DEBIAN_SUITES, DEFAULT_RELEASE
from service.command_line import Output, OutputOption

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(highlight=False, soft_wrap=True, markup=False)


@app.command()
def build(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[IMAGE]...", help="Default: all.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option(help="The folder of the OCI archives.")] = Path("build/images"),
    version: Annotated[str, typer.Option(help="Tag. Default: the project's version.")] = "",
    slurm: Annotated[
        str, typer.Option(help=f"Slurm release: {' or '.join(DEBIAN_SUITES)}.")
    ] = DEFAULT_RELEASE,
    base: Annotated[str, typer.Option(help="Debian image to pull. Default: made here.")] = "",
    more: Annotated[str, typer.Option(help="Further Debian packages for slurmd and login.")] = "",
) -> None:
    """Build images, and write each image as an OCI archive NAME.tar."""
    arguments = {"MORE": more} if more else {}
    try:
        choice = Choice(
            version=version or project_version(), slurm=slurm, base=base, arguments=arguments
        )
        images = [image(name) for name in wanted or names()]
        made = build_images(images, choice, Stopwatch(console.print))
    except KeyError as unknown:
        console.print(f"error: no image {unknown}; images: {', '.join(names())}", style="red")
        raise typer.Exit(2) from None
    except ClusterError as error:
        console.print(f"error: {error}", style="red")
        raise typer.Exit(1) from None
    output.mkdir(parents=True, exist_ok=True)
    for each in made:
        shutil.copy(each.archive, output / f"{each.name}.tar")
        console.print(f"{each.reference}  {each.digest}  {each.size / 1e6:.0f} MB")


@app.command("list")
def list_images(output: OutputOption = Output.TABLE) -> None:
    """List the images."""
    if output is Output.JSON:
        console.print(json.dumps({"images": list(names())}, indent=2))
        return
    for name in names():
        console.print(name)


if __name__ == "__main__":
    app()
