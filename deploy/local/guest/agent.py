"""Installs the node agent's Python packages for the guest, in the versions of requirements.lock."""

import sys
from pathlib import Path
from typing import Final

from deploy.local.layout import CHECKOUT
from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.debian import run
from deploy.local.progress import Report
from deploy.requirements import IMPORTED, locked

OURS: Final = ("kubernetes_client", "node_agent", "service", "slurm_client", "wellknown")
"""Packages of this checkout that the node agent needs."""


def agent_packages(python: str, report: Report) -> Path:
    """Returns the folder with the packages, for this version of Python. Raises ClusterError."""
    wanted = locked((CHECKOUT / "requirements.lock").read_text(), IMPORTED["node-agent"])

    def build(place: Path) -> None:
        report("installing the node agent's locked packages for the guest")
        place.mkdir()
        requirements = place / "requirements.txt"
        requirements.write_text(wanted)
        uv = str(Path(sys.executable).with_name("uv"))
        # --no-deps: the list already has all dependencies, and a package outside of the list would have
        # no hash.
        options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
        target = ("--target", str(place), "--python-version", python)
        run([uv, "pip", "install", *options, *target, "--requirements", str(requirements)])

    recipe = recipe_hash(wanted.encode(), Path(__file__).read_bytes())
    return build_once(cache_folder() / f"guest-python-{python}-{recipe}", build, report)
