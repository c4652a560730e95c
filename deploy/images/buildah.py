"""Builds images with buildah, which needs neither a daemon nor a container engine.

buildah keeps all data in one folder, and runs steps in a chroot. If mounts are impossible, buildah
copies files from layer to layer (vfs). So builds also work inside a container.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.images import network
from deploy.images.image import HERE, Image
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.programs.debian import install, run

TOOLS: Final = {"buildah": "buildah", "/etc/containers/policy.json": "golang-github-containers-common"}
_DRIVERS: Final = ("overlay", "vfs")


@dataclass(frozen=True, slots=True)
class Given:
    """Input of a build, besides the image's own sources."""

    base: str
    """Image in which the build starts."""
    version: str
    epoch: int = 0
    """SOURCE_DATE_EPOCH: the date of all files, in seconds."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """More build arguments."""
    contexts: Mapping[str, Path] = field(default_factory=dict)
    """Further folders from which the Dockerfile copies, by their names in the Dockerfile."""


class Buildah:
    """buildah with its own storage. A failure raises ClusterError with buildah's output."""

    def __init__(self, folder: Path) -> None:
        """`folder` must be empty. The caller removes the folder after the builds."""
        install(TOOLS)
        self._folder = folder
        (folder / "tmp").mkdir()
        self._secrets = network.secrets(folder)
        self._driver = next(filter(self._stores, _DRIVERS))

    def import_base(self, archive: Path, name: str) -> None:
        """Makes an image from a root file system."""
        container = self._buildah("from", "scratch").split()[-1]
        self._buildah("add", container, str(archive), "/")
        self._buildah("commit", "--quiet", "--rm", container, name)

    def has(self, name: str) -> bool:
        """Returns True if an image has this name."""
        return name in self._buildah("images", "--noheading", "--format", "{{.Name}}:{{.Tag}}").split()

    def build(self, image: Image, given: Given, reference: str) -> None:
        """Builds an image from the checkout, with the name `reference`."""
        arguments = {
            "BASE": given.base,
            "VERSION": given.version,
            "SOURCE_DATE_EPOCH": str(given.epoch),
            **network.proxies(os.environ),
            **given.arguments,
        }
        options = [
            *("--layers", "--quiet", "--format=oci", f"--timestamp={given.epoch}"),
            *(f"--secret=id={name},src={path}" for name, path in self._secrets.items()),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *(f"--build-context={name}={folder}" for name, folder in given.contexts.items()),
            *(f"--file={HERE / image.dockerfile}", f"--target={image.name}", f"--tag={reference}"),
        ]
        self._buildah("build", *options, str(CHECKOUT))

    def export(self, reference: str, archive: Path) -> None:
        """Writes an image as an OCI archive."""
        self._buildah("push", "--quiet", reference, f"oci-archive:{archive}:{reference}")

    def _stores(self, driver: str) -> bool:
        """Returns True if a storage driver works here. Raises ClusterError if the last driver does not
        work."""
        self._driver = driver
        try:
            self._buildah("info")
        except ClusterError:
            if driver == _DRIVERS[-1]:
                raise
            return False
        return True

    def _buildah(self, command: str, *arguments: str) -> str:
        places = [f"--root={self._folder / 'root'}", f"--runroot={self._folder / 'run'}"]
        environment = {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",
            "STORAGE_DRIVER": self._driver,
            "TMPDIR": str(self._folder / "tmp"),
        }
        return run(["buildah", *places, command, *arguments], env=environment)
