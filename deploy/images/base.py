"""Makes a Debian root file system in which builds of images run. Builds use this file system if no
Debian image is pulled."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.local.programs import debian
from deploy.local.programs.cache import build_once, recipe_hash, trees_folder
from deploy.local.progress import Report, heartbeat


def base_archive(suite: str, report: Report) -> Path:
    """Returns a tar archive of a minimal Debian of this suite, with apt. Builds only run in this Debian,
    and no file of the archive becomes part of an image. Raises ClusterError."""

    def build(place: Path) -> None:
        report(f"installing a minimal Debian {suite} to build images with (about half a minute)")
        with heartbeat(report, lambda: "still installing"), TemporaryDirectory() as scratch:
            archive = Path(scratch) / "base.tar"
            options = [f"--aptopt={option}" for option in debian.APT_OPTIONS]
            command = ["mmdebstrap", "--mode=root", "--variant=apt", f"--keyring={debian.KEYRING}"]
            command += [*options, suite, str(archive), *debian.sources(suite)]
            debian.run(command, env={**os.environ, "TMPDIR": scratch})
            debian.run(["cp", str(archive), str(place)])

    debian.install(debian.TOOLS)
    key = recipe_hash(*(Path(module).read_bytes() for module in (__file__, debian.__file__)))
    return build_once(trees_folder() / f"image-base-{suite}-{key}.tar", build, report)
