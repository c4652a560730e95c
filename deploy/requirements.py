"""Selects the part of requirements.lock for a program.

`python3 requirements.py PROGRAM < requirements.lock` prints this part. The builds of images run this
program before any package is installed, so the program imports only the standard library.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Final

_BOTH: Final = frozenset(
    {
        "httptools",
        "httpx",
        "kubernetes",
        "orjson",
        "prometheus-client",
        "pydantic",
        "pydantic-settings",
        "pyyaml",
        "rich",
        "starlette",
        "structlog",
        "typer",
        "uvicorn",
    }
)
IMPORTED: Final[Mapping[str, frozenset[str]]] = {
    "extender": _BOTH | {"cryptography", "fastapi", "prometheus-fastapi-instrumentator", "uvloop"},
    "slurm-cluster": _BOTH - {"rich"},
    "node-agent": _BOTH | {"grpclib", "nvidia-ml-py", "protobuf"},
    "wheel": frozenset({"hatchling"}),
}
"""Program -> the packages that its sources import. "wheel": packages for building the project's
wheel."""
_BLOCK: Final = re.compile(r"^(?P<name>[\w.-]+)==.*\n(?:[ \t].*\n?)*", re.MULTILINE)
_VIA: Final = re.compile(r"^\s+#\s+(?:via\s+)?(?P<name>[\w.-]+)", re.MULTILINE)


def locked(lock: str, imported: frozenset[str]) -> str:
    """Returns the part of a lock that has the packages `imported` and their dependencies. `lock` has the
    format of `uv pip compile`: below each package, comments with `via` name the packages that need it.
    Raises LookupError if the lock lacks a package of `imported`."""
    blocks = {match["name"]: match[0] for match in _BLOCK.finditer(lock)}
    needed = set(imported)
    while more := {name for name, block in blocks.items() if needed & set(_needed_by(block))} - needed:
        needed |= more
    if unknown := imported - blocks.keys():
        raise LookupError(f"not in the lock: {', '.join(sorted(unknown))}")
    return "".join(block for name, block in blocks.items() if name in needed)


def _needed_by(block: str) -> Iterator[str]:
    return (match["name"] for match in _VIA.finditer(block))


if __name__ == "__main__":
    sys.stdout.write(locked(sys.stdin.read(), IMPORTED[sys.argv[1]]))
