"""Gives the guest GPUs of NVIDIA, as far as the guest's programs can see. The guest gets the files of
the driver, a library for NVML's loader (tests/node_agent/nvml.c), and the kernel's description of the
PCI bus.

Two GPUs are whole, and the third GPU is in two parts (MIG). The fourth GPU has a file, but Slurm does
not count this GPU.
"""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from deploy.local.spec import GUEST_GPUS
from tests.eventually import eventually
from tests.node import nvidia_driver
from tests.node.real_node import REFUSED, STARTS_WITHIN_S, RealNode
from tests.node_agent.machines import NVML, Gpus, build_nvml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.end_to_end.actors import Actors

WHOLE, PART = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
TYPES: Final = {WHOLE: "nvidia_h100_80gb_hbm3", PART: "nvidia_a100_1g.5gb"}
RESOURCES: Final = tuple((resource, f"gpu:{kind}") for resource, kind in TYPES.items())
UUIDS: Final = ("GPU-0", "GPU-1", "MIG-a", "MIG-b")
"""UUIDs, in the order of Slurm's numbers."""
FILES: Final = (
    ("nvidia0",),
    ("nvidia1",),
    ("nvidia2", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"),
    ("nvidia2", "nvidia-caps/nvidia-cap84", "nvidia-caps/nvidia-cap85"),
)
"""Files below /dev, in the order of Slurm's numbers."""
NOT_COUNTED: Final = "nvidia3"
ALL: Final = sorted({NOT_COUNTED, *(file for files in FILES for file in files)})

_MIG_MINORS: Final = ("gi7/access 66", "gi7/ci0/access 67", "gi9/access 84", "gi9/ci0/access 85")
_DEVICES: Final = (
    *(f"nvidia{number}:195:{number}" for number in range(4)),
    "nvidiactl:195:255",
    *(f"nvidia-cap{line.rpartition(' ')[2]}::" for line in _MIG_MINORS),
)
_STATE: Final = "/run/nvml"
_LIBRARY: Final = f"/usr/lib/x86_64-linux-gnu/{NVML}"
_DRIVER: Final = "/run/nvidia_driver.py"
_FIND: Final = f"""python3 -c 'import ctypes; ctypes.CDLL("{NVML}")' && modprobe cuse"""
_MACHINE: Final = f"""set -e
mount --bind /run/pci /sys/bus/pci/devices
mount -t tmpfs nvidia /proc/driver
mkdir /proc/driver/nvidia-caps
printf 'gpu2/%s\\n' {shlex.join(_MIG_MINORS)} > /proc/driver/nvidia-caps/mig-minors
mkdir /dev/nvidia-caps
mv /dev/nvidia-cap[0-9]* /dev/nvidia-caps"""
_OPEN_EACH: Final = f"for file in {shlex.join(ALL)}; do ( : < %s/$file ) && echo opened $file; done 2>&1"
_BEFORE: Final = f"Gres=gpu:h100:{GUEST_GPUS}"
_OPENED: Final = re.compile(r"^opened (\S+)$", re.MULTILINE)


def open_each(folder: str) -> str:
    """Returns a script of sh that opens each file of the driver below a folder."""
    return _OPEN_EACH % folder


def opened(said: str) -> set[str]:
    """Returns the files that a script of `open_each` opened. Asserts that each other file was refused,
    and did not fail for another reason."""
    found = {*_OPENED.findall(said)}
    assert said.count(REFUSED) == len(ALL) - len(found), said
    return found


class NvidiaNode(RealNode):
    """A Node that starts without GPUs of NVIDIA. `with_gpus` adds the GPUs."""

    gpu = WHOLE
    counted = dict.fromkeys(TYPES, 2)

    def __init__(self, actors: Actors, folder: Path) -> None:
        """`folder` is an empty directory."""
        super().__init__(actors)
        self._folder = folder
        self._is_sound = True

    @contextmanager
    def with_gpus(self) -> Iterator[NvidiaNode]:
        """Adds the GPUs. When the context begins, Slurm, the kubelet and the agent count the GPUs."""
        library = self._folder / NVML
        build_nvml(library)
        self.guest.put(library, _LIBRARY)
        self.guest.run(_FIND)  # fails with the loader's message if the guest's C library is too old
        self.guest.put(Path(nvidia_driver.__file__), _DRIVER)
        with self.guest.start(("python3", _DRIVER, *_DEVICES)) as driver:
            assert next(driver.messages()) == {"output": "ready\n"}
            self._tell(self._gpus())
            self.guest.put(self._gpus().pci, "/run/pci")
            self.guest.run(_MACHINE)
            self._have_slurm_count()
            self.start_agent_anew()
            yield self

    def _have_slurm_count(self) -> None:
        """Configures Slurm with the lines from the agent's command `gres-conf`."""
        conf, own = (self.cluster.directory / of for of in ("slurm/etc", "guest/slurmd/etc/slurm"))
        self.cluster.stop("slurmd-guest")
        self.cluster.stop("slurmctld")
        (own / "gres.conf").write_text(self.node_agent("gres-conf"))
        counted = ",".join(f"gpu:{kind}:2" for kind in TYPES.values())
        for file in (conf / "slurm.conf", own / "slurm.conf"):
            text = file.read_text()
            assert _BEFORE in text
            file.write_text(text.replace(_BEFORE, f"Gres={counted}"))
        for name in ("slurmctld", "slurmd-guest"):
            self.cluster.start(name)

    def start_agent_anew(self) -> None:
        self.restart_agent()
        self.counts()

    def restart_agent(self) -> None:
        """Restarts the agent. While the driver hangs, the kubelet then counts no GPU."""
        self.cluster.stop("node-agent")
        self.cluster.start("node-agent")

    def clean_up(self) -> None:
        if not self._is_sound:
            self.repair()
        super().clean_up()

    # Reports of NVML

    def fail(self, number: int | None = None, *more: str, **fields: int) -> None:
        """Changes the fields of a whole GPU, by Slurm's number, and adds lines to the reports of NVML
        (nvml.c)."""
        self._is_sound = False
        gpus = self._gpus({} if number is None else {number: fields})
        gpus.lines += more
        self._tell(gpus)

    def repair(self, *, anew: bool = True) -> None:
        """Repairs all GPUs, and restarts the agent if `anew`: some failures last until a restart.
        Returns after the Node's condition has changed."""
        self._tell(self._gpus())
        if anew:
            self.start_agent_anew()
        what = "the condition over"
        eventually(lambda: self.device_problem().get("status") == "False", what, STARTS_WITHIN_S)
        self._is_sound = True

    def _gpus(self, failing: Mapping[int, Mapping[str, int]] = MappingProxyType({})) -> Gpus:
        gpus = Gpus(self._folder, self._folder)
        for number in range(self.counted[WHOLE]):
            gpus.add(cpus="0-3", **{"failed": 0, "pending": 0, **failing.get(number, {})})
        gpus.add(cpus="0-3", mig=1, name="NVIDIA_A100-SXM4-40GB")
        for instance, uuid in ((7, "MIG-a"), (9, "MIG-b")):
            name = "NVIDIA_A100-SXM4-40GB_MIG_1g.5gb"
            gpus.say("mig", gpu=2, gi=instance, ci=0, uuid=uuid, name=name)
        return gpus

    def _tell(self, gpus: Gpus) -> None:
        self.guest.run(f"printf %s {shlex.quote(gpus.told)} > {_STATE}.new; mv {_STATE}.new {_STATE}")
