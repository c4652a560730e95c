"""Tests of `node-agent gres-conf`: lines of gres.conf for a machine's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner, Result

from node_agent.command_line import app
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Device, DriverUnavailable
from node_agent.machine.gres_conf import gres_conf
from node_agent.machine.vendors.amd import AMD
from node_agent.machine.vendors.nvidia import NVIDIA

if TYPE_CHECKING:
    import pytest

CPUS = Cpus(((0, 4), (2, 6), (1, 5), (3, 7)))


def test_lines_have_type_files_cores_and_links() -> None:
    near, far = (1, 3, 5, 7), (0, 2, 4, 6)
    devices = (
        Device("gpu", "h100", ("/dev/nvidia1",), cpus=near, links=(-1, 4)),
        Device("gpu", "h100", ("/dev/nvidia0",), cpus=far, links=(4, -1)),
        Device("gpu", "a100_1g.5gb", ("/dev/nvidia2", "/dev/nvidia-caps/nvidia-cap7")),
        Device("gpu", "", ("/dev/dri/renderD128",)),
    )
    assert gres_conf(devices, CPUS).splitlines() == [
        "Name=gpu Type=h100 File=/dev/nvidia1 Cores=2-3 Links=-1,4",
        "Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-1 Links=4,-1",
        "Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap7",
        "Name=gpu File=/dev/dri/renderD128",
    ]


def run(monkeypatch: pytest.MonkeyPatch, *found: Device) -> Result:
    monkeypatch.setattr(NVIDIA, "read", lambda: found)
    monkeypatch.setattr(AMD, "read", lambda: ())
    return CliRunner().invoke(app, ["gres-conf"])


def test_failed_gpu_keeps_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Device("gpu", "h100", (file,), uuid=file[-4:]) for file in ("/dev/null", "/dev/zero")]
    broken = Device("gpu", "h100", ("/dev/full",), uuid="full", problem="it is to be replaced")
    told = run(monkeypatch, gpus[0], broken, gpus[1])
    assert told.exit_code == 0
    files = [line.split()[-1] for line in told.stdout.splitlines()]
    assert files == ["File=/dev/null", "File=/dev/full", "File=/dev/zero"]
    assert told.stderr == "gpu full: it is to be replaced\n"


def test_no_line_is_printed_if_a_gpu_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Device("gpu", "h100", ("/dev/none",), uuid="GPU-1")
    told = run(monkeypatch, Device("gpu", "h100", ("/dev/null",)), gone)
    assert told.exit_code == 1
    assert (told.stdout, told.stderr) == ("", "gpu GPU-1: /dev/none: no such device\n")


def test_unreadable_machine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> tuple[Device, ...]:
        raise DriverUnavailable("Driver Not Loaded")

    monkeypatch.setattr(NVIDIA, "read", fails)
    told = CliRunner().invoke(app, ["gres-conf"])
    assert told.exit_code == 2
    assert told.stderr == "the machine could not be read: Driver Not Loaded\n"
