"""Images of containers, made without a registry: of a static busybox, in the form of docker save."""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PAUSE: Final = "local.test/pause:1"
"""What holds a Pod's namespaces, as the kubelet wants it."""
BOX: Final = "local.test/box:1"
"""busybox: a shell, and what it has. Without a command it sleeps."""

_FOLDERS: Final = ("bin", "dev", "etc", "proc", "run", "sys", "tmp")


def write_images(archive: Path, busybox: Path, applets: Sequence[str]) -> None:
    """Writes an archive of both images, for `ctr images import`."""
    layer = _layer(busybox.read_bytes(), applets)
    name = f"{hashlib.sha256(layer).hexdigest()}.tar"
    with tarfile.open(archive, "w") as images:
        _add(images, name, layer)
        manifest = []
        for image in (PAUSE, BOX):
            configuration = _configuration(image, layer)
            file = f"{hashlib.sha256(configuration).hexdigest()}.json"
            _add(images, file, configuration)
            manifest.append({"Config": file, "RepoTags": [image], "Layers": [name]})
        _add(images, "manifest.json", json.dumps(manifest).encode())


def _configuration(image: str, layer: bytes) -> bytes:
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        # The label makes them two: an image is known by its configuration's digest.
        "config": {
            "Cmd": ["/bin/sleep", "2147483647"],
            "Env": ["PATH=/bin"],
            "Labels": {"image": image},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    return json.dumps(configuration).encode()


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as files:
        for folder in _FOLDERS:
            _add(files, folder, mode=0o1777 if folder == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        _add(files, "bin/busybox", busybox, mode=0o755)
        for applet in applets:
            if applet != "busybox":
                _add(files, f"bin/{applet}", kind=tarfile.SYMTYPE, link="busybox")
        _add(files, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        _add(files, "etc/group", b"root:x:0:\n")
    return buffer.getvalue()


def _add(
    archive: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    """Adds a file of no time and of nobody but root: the same contents are the same bytes."""
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.linkname, entry.size = mode, kind, link, len(data)
    archive.addfile(entry, io.BytesIO(data))
