"""The guest as a Node with GPUs of NVIDIA's, as far as its programs can tell: files of their driver, a
library that NVML's loader finds (tests/node_agent/nvml.c), and what the kernel says of the PCI bus.

Two GPUs are whole, the third is in two parts (MIG), and of a fourth there is a file that Slurm does not
count.
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
"""By Slurm's numbers."""
FILES: Final = (
    ("nvidia0",),
    ("nvidia1",),
    ("nvidia2", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"),
    ("nvidia2", "nvidia-caps/nvidia-cap84", "nvidia-caps/nvidia-cap85"),
)
"""By Slurm's numbers, below /dev."""
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
    """A script of sh that opens each file of the driver's, as it is found below a folder."""
    return _OPEN_EACH % folder


def opened(said: str) -> set[str]:
    """Which files such a script opened. Each other one was refused, and not for another reason."""
    found = {*_OPENED.findall(said)}
    assert said.count(REFUSED) == len(ALL) - len(found), said
    return found


class NvidiaNode(RealNode):
    """It begins as any other one, and is given its GPUs then."""

    gpu = WHOLE
    counted = dict.fromkeys(TYPES, 2)

    def __init__(self, actors: Actors, folder: Path) -> None:
        """`folder` is empty."""
        super().__init__(actors)
        self._folder = folder
        self._is_sound = True

    @contextmanager
    def with_gpus(self) -> Iterator[NvidiaNode]:
        """Slurm, the kubelet and the agent count them, once this has begun."""
        library = self._folder / NVML
        build_nvml(library)
        self.guest.put(library, _LIBRARY)
        self.guest.run(_FIND)  # with the loader's words where the guest's C library is too old
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
        """By the lines that the agent's own command prints."""
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
        self.cluster.stop("node-agent")
        self.cluster.start("node-agent")
        self.counts()

    def clean_up(self) -> None:
        if not self._is_sound:
            self.repair()
        super().clean_up()

    # What NVML says

    def fail(self, number: int | None = None, *more: str, **fields: int) -> None:
        """From now on a whole GPU, by Slurm's number, has these fields, and there are more lines
        (nvml.c)."""
        self._is_sound = False
        gpus = self._gpus({} if number is None else {number: fields})
        gpus.lines += more
        self._tell(gpus)

    def repair(self, *, anew: bool = True) -> None:
        """All is well again, and the agent is started `anew` where that is what it waits for. Returns
        once the Node says so."""
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
