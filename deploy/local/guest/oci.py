"""Container images in the format of docker save, made without a registry."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PAUSE: Final = "local.test/pause:1"
"""The kubelet's image for the container with a Pod's namespaces."""
BOX: Final = "local.test/box:1"
"""busybox: a shell and its applets. Sleeps unless a command is given."""
SLURMD: Final = "local.test/slurmd:1"
"""Image with only empty folders, and links into /usr. A Pod mounts the Node's own folders over the empty
folders, and runs the Node's slurmd."""

_FOLDERS: Final = ("dev", "etc", "proc", "run", "sys", "tmp")


def write_images(archive: Path, busybox: Path, applets: Sequence[str]) -> None:
    """Writes an archive of all images, for `ctr images import`."""
    box = _box(busybox.read_bytes(), applets)
    manifest = []
    with tarfile.open(archive, "w") as images:
        for image, layer in ((PAUSE, box), (BOX, box), (SLURMD, _slurmd())):
            name = f"{hashlib.sha256(layer).hexdigest()}.tar"
            if name not in images.getnames():
                _add(images, name, layer)
            configuration = _configuration(image, layer)
            file = f"{hashlib.sha256(configuration).hexdigest()}.json"
            _add(images, file, configuration)
            manifest.append({"Config": file, "RepoTags": [image], "Layers": [name]})
        _add(images, "manifest.json", json.dumps(manifest).encode())


def _configuration(image: str, layer: bytes) -> bytes:
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        # PAUSE and BOX have the same layer. The label makes their configurations different, because the
        # digest of the configuration identifies an image.
        "config": {
            "Cmd": ["/bin/sleep", "2147483647"],
            "Env": ["PATH=/bin:/usr/bin:/sbin"],
            "Labels": {"image": image},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    return json.dumps(configuration).encode()


def _box(busybox: bytes, applets: Sequence[str]) -> bytes:
    links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    files = {
        "bin/busybox": busybox,
        "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n",
        "etc/group": b"root:x:0:\n",
    }
    return _layer((*_FOLDERS, "bin"), links, files)


def _slurmd() -> bytes:
    merged = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
    return _layer((*_FOLDERS, "etc/slurm", "home", "usr", "var", "var/spool"), merged, {})


def _layer(folders: Sequence[str], links: Mapping[str, str], files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in folders:
            _add(layer, folder, mode=0o1777 if folder == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        for name, data in files.items():
            _add(layer, name, data, mode=0o755 if name.startswith("bin/") else 0o644)
        for name, target in links.items():
            _add(layer, name, kind=tarfile.SYMTYPE, link=target)
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
    """Adds a file owned by root, without a time: the same contents always give the same bytes."""
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.linkname, entry.size = mode, kind, link, len(data)
    archive.addfile(entry, io.BytesIO(data))
