"""Builds images as files. The cache keeps an image until the sources of the image change."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from deploy.images.archive import Archive
from deploy.images.base import base_archive
from deploy.images.buildah import Buildah, Given
from deploy.images.image import REGISTRY, SCHEDULER, STABLE_SUITE, Image
from deploy.local.layout import CHECKOUT
from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.kubernetes_binaries import kubernetes_binaries
from deploy.local.progress import Report, heartbeat
from deploy.local.spec import DEFAULT_RELEASE, KUBERNETES_RELEASES


def project_version() -> str:
    """Returns the version in pyproject.toml."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Options of a build, chosen by the caller."""

    version: str = field(default_factory=project_version)
    """Tag of the images, and version of the programs inside."""
    slurm: str = DEFAULT_RELEASE
    base: str = ""
    """Base image that buildah pulls. If blank, this machine makes the base (base.py)."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Further build arguments: MORE, SNAPSHOT."""


@dataclass(frozen=True, slots=True)
class Built:
    """An image as a file."""

    name: str
    reference: str
    """Registry, name and tag."""
    archive: Path
    digest: str
    """Digest of the manifest: sha256:..."""
    size: int
    """Size of the layers, in bytes, compressed."""


class Builder:
    """Builds images. Parts that several images share are built once. The builder is a context manager
    with a separate temporary folder."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open = ExitStack()
        self._buildah: Buildah | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def built(self, image: Image, choice: Choice) -> Built:
        """Returns an image from the cache, or builds the image. Raises ClusterError."""
        place = cache_folder() / f"image-{image.name}-{choice.version}-{self.recipe(image, choice)}"

        def build(unfinished: Path) -> None:
            self._build_into(unfinished, image, choice)

        build_once(place, build, self._report)
        fields = json.loads((place / "image.json").read_text())
        return Built(**{**fields, "archive": place / fields["archive"]})

    def build(self, image: Image, choice: Choice, archive: Path) -> Built:
        """Builds an image into a new file, without the cache. Raises ClusterError."""
        reference = f"{REGISTRY}/{image.name}:{choice.version}"
        buildah = self._start()
        self._report(f"building the image {image.name} (about a minute)")
        with heartbeat(self._report, lambda: f"still building {image.name}"):
            buildah.build(image, self._given(image, choice, buildah), reference)
            buildah.export(reference, archive)
        made = Archive(archive)
        return Built(image.name, reference, archive, made.digest, made.size)

    def recipe(self, image: Image, choice: Choice) -> str:
        """Returns a hash of everything from which an image is built, except the current versions of
        Debian's packages."""
        chosen = json.dumps({**asdict(choice), "suite": image.suite(choice.slurm)})
        program = str(self._program(image)).encode()
        ours = [Path(__file__).with_name(name).read_bytes() for name in ("base.py", "buildah.py")]
        parts = ((str(file.relative_to(CHECKOUT)).encode(), file.read_bytes()) for file in image.files())
        return recipe_hash(chosen.encode(), program, *ours, *(each for part in parts for each in part))

    def _build_into(self, place: Path, image: Image, choice: Choice) -> None:
        place.mkdir()
        made = asdict(self.build(image, choice, place / f"{image.name}.tar"))
        (place / "image.json").write_text(json.dumps({**made, "archive": made["archive"].name}))

    def _start(self) -> Buildah:
        if self._buildah is None:
            folder = self._open.enter_context(TemporaryDirectory(prefix="slurm-extender-images-"))
            self._buildah = Buildah(Path(folder))
        return self._buildah

    def _given(self, image: Image, choice: Choice, buildah: Buildah) -> Given:
        base = choice.base or self._made_base(image.suite(choice.slurm), buildah)
        arguments, contexts = dict(choice.arguments), {}
        if (program := self._program(image)) is not None:
            arguments["PROGRAM"], contexts["programs"] = program.name, program.parent
        if image.dockerfile == "slurm.Dockerfile" and not choice.base:
            arguments["SSSD_BASE"] = self._made_base(STABLE_SUITE, buildah)
        return Given(base, choice.version, arguments=arguments, contexts=contexts)

    def _made_base(self, suite: str, buildah: Buildah) -> str:
        name = f"localhost/debian:{suite}"
        if not buildah.has(name):
            buildah.import_base(base_archive(suite, self._report), name)
        return name

    def _program(self, image: Image) -> Path | None:
        """Returns the program that deploy/local builds for the image, or None if the image needs no
        program of deploy/local."""
        if image is not SCHEDULER:
            return None
        binaries = kubernetes_binaries(KUBERNETES_RELEASES[0], self._report)
        return Path(binaries["kube-scheduler"]).resolve()


def build_images(images: Sequence[Image], choice: Choice, report: Report) -> list[Built]:
    """Returns the images, from the cache or newly built. Raises ClusterError."""
    with Builder(report) as builder:
        return [builder.built(image, choice) for image in images]
