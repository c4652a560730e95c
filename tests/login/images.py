"""Unpacks the images for containers, as a container runtime does."""

from __future__ import annotations

from pathlib import Path

from deploy.images.archive import Archive
from deploy.images.builder import Builder, Choice
from deploy.images.image import image
from deploy.local.programs.cache import build_once, trees_folder
from deploy.local.progress import silent

# Files that the kubelet mounts into each container, so mount points must exist.
_OF_KUBELET = ("etc/hosts", "etc/resolv.conf")


def files_of(name: str, release: str) -> Path:
    """Returns the folder with the unpacked files of an image. Images of Slurm have this release of
    Slurm. Tests must not write into the folder."""
    wanted = image(name)
    with Builder(silent) as builder:
        built = builder.built(wanted, Choice(slurm=release) if wanted.of_slurm else Choice())

    def unpack(place: Path) -> None:
        place.mkdir()
        Archive(built.archive).unpack(place)
        for path in _OF_KUBELET:
            (place / path).touch()

    digest = built.digest.removeprefix("sha256:")[:12]
    return build_once(trees_folder() / f"files-{name}-{release}-{digest}", unpack, silent)
