"""The Python packages that the node agent needs, as requirements.lock has them, for the guest."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.local.cache import build_once, cache_folder, recipe_hash
from deploy.local.debian import run
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report

OURS: Final = ("kubernetes_client", "node_agent", "service", "slurm_client", "wellknown")
"""The packages of this checkout that the node agent is made of."""
IMPORTED: Final = frozenset(
    {
        "aiohttp",
        "grpclib",
        "httptools",
        "kubernetes",
        "nvidia-ml-py",
        "orjson",
        "prometheus-client",
        "protobuf",
        "pydantic",
        "pydantic-settings",
        "pyyaml",
        "rich",
        "starlette",
        "structlog",
        "uvicorn",
    }
)
"""What those import. A package that is missing here is seen when the agent starts in the guest."""
_BLOCK: Final = re.compile(r"^(?P<name>[\w.-]+)==.*\n(?:[ \t].*\n?)*", re.MULTILINE)
_VIA: Final = re.compile(r"^\s+#\s+(?:via\s+)?(?P<name>[\w.-]+)", re.MULTILINE)


def agent_packages(python: str, report: Report) -> Path:
    """The folder with the packages, for this version of Python. Raises ClusterError."""
    wanted = locked((CHECKOUT / "requirements.lock").read_text())

    def build(place: Path) -> None:
        report("installing the node agent's locked packages for the guest")
        place.mkdir()
        requirements = place / "requirements.txt"
        requirements.write_text(wanted)
        uv = str(Path(sys.executable).with_name("uv"))
        # --no-deps: the list is complete, and what is not on it has no hash.
        options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
        target = ("--target", str(place), "--python-version", python)
        run([uv, "pip", "install", *options, *target, "--requirements", str(requirements)])

    recipe = recipe_hash(wanted.encode(), Path(__file__).read_bytes())
    return build_once(cache_folder() / f"guest-python-{python}-{recipe}", build, report)


def locked(lock: str) -> str:
    """Returns that part of a lock, as `uv pip compile` writes it, which the node agent needs: what is
    imported, and what that needs in turn by the comments `via`."""
    blocks = {match["name"]: match[0] for match in _BLOCK.finditer(lock)}
    needed = set(IMPORTED)
    while more := {name for name, block in blocks.items() if needed & set(_needed_by(block))} - needed:
        needed |= more
    if unknown := IMPORTED - blocks.keys():
        raise LookupError(f"not in the lock: {', '.join(sorted(unknown))}")
    return "".join(block for name, block in blocks.items() if name in needed)


def _needed_by(block: str) -> Iterator[str]:
    return (match["name"] for match in _VIA.finditer(block))
