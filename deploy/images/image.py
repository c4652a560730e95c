"""The list of images, and the sources of each image."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEBIAN_SUITES

REGISTRY: Final = "ghcr.io/slurm-extender"
"""Prefix of the images' names, as in the chart."""
HERE: Final = Path(__file__).parent
PACKAGES: Final = (
    *("extender", "kubernetes_client", "node_agent", "service"),
    *("slurm_client", "slurm_cluster", "wellknown"),
)
"""The folders of the project's wheel."""
_WHEEL: Final = (*PACKAGES, "LICENSE", "NOTICE", "README.md", "pyproject.toml", "requirements.lock")
_PROGRAM: Final = (*_WHEEL, "deploy/requirements.py", "deploy/slurm/slurm-extender-hook")
"""Sources of each target of python.Dockerfile."""
STABLE_SUITE: Final = "trixie"
"""The Debian suite of all programs except Slurm. sssd also comes from this suite, even the parts of sssd
in Slurm's images, because forky has no sssd (November 2026)."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image: a target of a Dockerfile."""

    name: str
    dockerfile: str
    sources: tuple[str, ...]
    """Sources in the checkout, besides deploy/images."""
    of_slurm: bool = False

    def suite(self, slurm: str) -> str:
        """Returns the Debian suite of the image's packages. `slurm` is a release of
        Slurm, for example "26.05"."""
        return DEBIAN_SUITES[slurm] if self.of_slurm else STABLE_SUITE

    def files(self) -> list[Path]:
        """Returns every source file of the image, in a fixed order."""
        ours = [HERE / name for name in (self.dockerfile, "debian-packages", *_SCRIPTS[self.dockerfile])]
        return [*ours, *(file for source in self.sources for file in _below(CHECKOUT / source))]


_SCRIPTS: Final = {
    "python.Dockerfile": ("python-program",),
    "slurm.Dockerfile": (),
    "database.Dockerfile": ("debian-files",),
    "scheduler.Dockerfile": (),
}
SCHEDULER: Final = Image("kube-scheduler", "scheduler.Dockerfile", ())
"""Image for the tests only. Users run Kubernetes' own image."""
_DATABASE: Final = tuple(
    f"deploy/images/{name}" for name in ("mariadb-start", "database-dump", "database-restore")
)
IMAGES: Final = (
    Image("extender", "python.Dockerfile", _PROGRAM),
    Image("node-agent", "python.Dockerfile", _PROGRAM),
    Image("slurmd", "slurm.Dockerfile", ("deploy/slurm/slurm-extender-gate",), of_slurm=True),
    Image("slurmctld", "slurm.Dockerfile", ("deploy/slurm/slurm-extender-hook",), of_slurm=True),
    Image("slurmrestd", "slurm.Dockerfile", (), of_slurm=True),
    Image("slurm-cluster", "python.Dockerfile", _PROGRAM, of_slurm=True),
    Image("login", "slurm.Dockerfile", ("deploy/login",), of_slurm=True),
    Image("sssd", "slurm.Dockerfile", ("deploy/login",)),
    Image("slurmdbd", "database.Dockerfile", (), of_slurm=True),
    Image("mariadb", "database.Dockerfile", _DATABASE, of_slurm=True),
)


def image(name: str) -> Image:
    """Returns the image of this name. Raises KeyError if no image has this name."""
    return {each.name: each for each in (*IMAGES, SCHEDULER)}[name]


def names() -> Sequence[str]:
    """Returns the names of the published images."""
    return [each.name for each in IMAGES]


def _below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
