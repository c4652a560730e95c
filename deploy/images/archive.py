"""Reads the configuration and the files of an image from an OCI archive, without a container engine."""

import gzip
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from deploy.local.errors import ClusterError

_GZIP: Final = b"\x1f\x8b"
_SET_ID: Final = 0o6000
_CACHES: Final = ("var/cache/", "var/lib/apt/", "var/log/", "root/.cache/", "tmp/", "build/")
"""Folders with leftovers of a build."""


class Archive:
    """An archive with exactly one image. Raises ClusterError for any other archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        index = self._json("index.json")
        if len(index["manifests"]) != 1:
            raise ClusterError(f"{path} has {len(index['manifests'])} images instead of one")
        self.digest: str = index["manifests"][0]["digest"]
        """Digest of the image's manifest."""
        manifest = self._json(_blob(self.digest))
        self._layers = [layer["digest"] for layer in manifest["layers"]]
        self.config: Mapping[str, Any] = self._json(_blob(manifest["config"]["digest"]))
        """The configuration in the format of the OCI image specification."""
        self.size: int = sum(layer["size"] for layer in manifest["layers"])
        """Size of the layers in the archive: in bytes, compressed."""

    @property
    def user(self) -> str:
        """User of the image's program, for example "65532:65532". The empty text means root."""
        return str(self.config["config"].get("User", ""))

    def unpack(self, folder: Path) -> None:
        """Writes the image's files into an existing folder, with their owners. Needs root."""
        unpack = ["tar", "-x", "--preserve-permissions", "--numeric-owner", "-C", str(folder), "-f", "-"]
        for blob in self._blobs():
            packed = blob.read()
            layer = gzip.decompress(packed) if packed.startswith(_GZIP) else packed
            subprocess.run(unpack, input=layer, check=True)

    def problems(self, addresses: Sequence[str] = ()) -> list[str]:
        """Returns a line for each problem in the image: a program with set-user-ID, a leftover of the
        build, or a file that contains one of the addresses."""
        wanted = [address.encode() for address in addresses]
        return [line for layer in self._opened() for line in _problems(layer, wanted)]

    def _opened(self) -> Iterator[tarfile.TarFile]:
        for blob in self._blobs():
            with tarfile.open(fileobj=blob) as layer:
                yield layer

    def _blobs(self) -> Iterator[IO[bytes]]:
        with tarfile.open(self.path) as archive:
            for digest in self._layers:
                blob = archive.extractfile(_blob(digest))
                assert blob is not None
                yield blob

    def _json(self, name: str) -> Any:
        try:
            with tarfile.open(self.path) as archive:
                blob = archive.extractfile(name)
                assert blob is not None
                return json.load(blob)
        except (KeyError, tarfile.ReadError) as error:
            raise ClusterError(f"{self.path} is not an OCI archive: {error}") from error


def _problems(layer: tarfile.TarFile, addresses: Sequence[bytes]) -> Iterator[str]:
    for entry in layer:
        name = entry.name.removeprefix("./")
        if entry.mode & _SET_ID and (entry.isfile() or entry.isdir()):
            yield f"/{name}: its mode is {entry.mode:o}"
        if not entry.isdir() and name.startswith(_CACHES):
            yield f"/{name}: leftover of a build"
        if entry.isfile():
            found = _found(layer, entry, addresses)
            yield from (f"/{name}: has the address {address.decode()}" for address in found)


def _found(layer: tarfile.TarFile, entry: tarfile.TarInfo, addresses: Sequence[bytes]) -> list[bytes]:
    if not addresses:
        return []
    opened = layer.extractfile(entry)
    assert opened is not None
    text = opened.read()
    return [address for address in addresses if address in text]


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
