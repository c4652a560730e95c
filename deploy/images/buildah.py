"""Builds images with buildah, which needs neither a daemon nor a container engine.

All that it keeps is in one folder. Steps run in a chroot, and where nothing can be mounted files are
copied from layer to layer (vfs): so it works in a container, too.
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
    """What one build is given besides the image's own sources."""

    base: str
    """The image that it begins with."""
    version: str
    epoch: int = 0
    """SOURCE_DATE_EPOCH: the date of all files, in seconds."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """More build arguments."""
    contexts: Mapping[str, Path] = field(default_factory=dict)
    """More folders that the Dockerfile copies from, by the names that it has for them."""


class Buildah:
    """buildah with a storage of its own. Whatever fails raises ClusterError with what buildah said."""

    def __init__(self, folder: Path) -> None:
        """`folder` is empty, and the caller removes it."""
        install(TOOLS)
        self._folder = folder
        (folder / "tmp").mkdir()
        self._secrets = network.secrets(folder)
        self._driver = next(filter(self._stores, _DRIVERS))

    def import_base(self, archive: Path, name: str) -> None:
        """Makes an image of a root file system."""
        container = self._buildah("from", "scratch").split()[-1]
        self._buildah("add", container, str(archive), "/")
        self._buildah("commit", "--quiet", "--rm", container, name)

    def has(self, name: str) -> bool:
        """Whether there is an image of this name."""
        return name in self._buildah("images", "--noheading", "--format", "{{.Name}}:{{.Tag}}").split()

    def build(self, image: Image, given: Given, reference: str) -> None:
        """Builds an image from the checkout, and calls it `reference`."""
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
        """Whether a driver of storage works here. Raises ClusterError where the last one does not."""
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
