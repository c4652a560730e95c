"""Tests of the texts of the Dockerfiles. The tests build no image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.images.image import HERE, IMAGES, SCHEDULER, Image
from deploy.local.layout import CHECKOUT

FILES = sorted(HERE.glob("*.Dockerfile"))
AS_ROOT = ("login", "node-agent", "slurmd", "sssd")


def stage(image: Image) -> str:
    """Returns the text of the last stage of an image's Dockerfile."""
    text = (HERE / image.dockerfile).read_text()
    return text.partition(f"FROM scratch AS {image.name}\n")[2].partition("\nFROM ")[0]


@pytest.mark.parametrize("image", [*IMAGES, SCHEDULER], ids=lambda image: image.name)
def test_image_starts_empty_and_has_a_user(image: Image) -> None:
    lines = stage(image).splitlines()
    assert lines[0] == f"COPY --from={image.name}-files /image /"
    (user,) = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")]
    assert (user == "0:0") == (image.name in AS_ROOT)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_dockerfile_names_only_the_registry_of_the_base_images(file: Path) -> None:
    text = file.read_text()
    bases = re.findall(r"^ARG (?:SSSD_)?BASE=(\S+)$", text, re.MULTILINE)
    assert bases
    for base in bases:
        assert re.fullmatch(r"docker\.io/library/debian:\w+-slim", base)
        text = text.replace(base, "")
    assert re.findall(r"\b[\w-]+\.(?:io|org|com)/\S*", text) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_stages_that_use_a_registry_get_the_network_settings_as_secrets(file: Path) -> None:
    steps = re.findall(r"^RUN (.*(?:\\\n.*)*)", file.read_text(), re.MULTILINE)
    for step in steps:
        if "debian-packages install" in step or "debian-packages unpack" in step:
            assert "--mount=type=secret,id=apt.conf" in step
        if "pip install" in step or "python-program packages" in step:
            assert "--mount=type=secret,id=pip.conf" in step
            assert "--mount=type=secret,id=ca.crt" in step


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_hash_of_an_image_covers_exactly_the_copied_files(image: Image) -> None:
    text = (HERE / image.dockerfile).read_text()
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    copied = {CHECKOUT / name for line in copies for name in line.split()}
    made_of = {file for file in image.files() if file.suffix != ".Dockerfile"}
    if image.dockerfile == "python.Dockerfile":  # several images share this file
        assert {each for each in copied if each.is_file()} <= made_of
        assert all(any(file.is_relative_to(each) for file in made_of) for each in copied)
    assert made_of <= {
        file for each in copied for file in ([each] if each.is_file() else each.rglob("*"))
    }
