"""Tests of the reader of OCI archives, and of the search for forbidden contents in an image."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.images.archive import Archive
from deploy.local.errors import ClusterError


def tar(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (mode, data) in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def oci(folder: Path, files: Mapping[str, tuple[int, bytes]], **config: Any) -> Path:
    """Creates the archive of an image with a single layer, and returns the archive's path."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    configuration = blob(json.dumps({"config": config}).encode())
    manifest = blob(json.dumps({"config": configuration, "layers": [blob(tar(files))]}).encode())
    index = json.dumps({"manifests": [manifest]}).encode()
    path = folder / "image.tar"
    path.write_bytes(tar({name: (0o644, data) for name, data in {**blobs, "index.json": index}.items()}))
    return path


def test_forbidden_contents_of_an_image_are_listed(tmp_path: Path) -> None:
    files = {
        "usr/bin/su": (0o4755, b""),
        "usr/bin/python3": (0o755, b""),
        "var/lib/apt/lists/packages": (0o644, b""),
        "etc/pip.conf": (0o644, b"index-url = https://registry.example.com/simple"),
    }
    archive = Archive(oci(tmp_path, files, User="65532:65532"))
    assert archive.user == "65532:65532"
    assert archive.problems(["registry.example.com", "other.example.com"]) == [
        "/usr/bin/su: its mode is 4755",
        "/var/lib/apt/lists/packages: leftover of a build",
        "/etc/pip.conf: has the address registry.example.com",
    ]


def test_image_is_unpacked_with_contents_and_modes(tmp_path: Path) -> None:
    archive = Archive(oci(tmp_path, {"etc/hello": (0o640, b"there")}))
    (tmp_path / "root").mkdir()
    archive.unpack(tmp_path / "root")
    unpacked = tmp_path / "root/etc/hello"
    assert (unpacked.read_bytes(), unpacked.stat().st_mode & 0o7777) == (b"there", 0o640)
    assert archive.size >= len(b"there")


def test_file_that_is_no_oci_archive_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "other.tar").write_bytes(tar({"manifest.json": (0o644, b"[]")}))
    with pytest.raises(ClusterError, match=r"other\.tar"):
        Archive(tmp_path / "other.tar")
