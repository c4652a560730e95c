"""Tests of the numbers that Slurm gives to devices, with slurmd's output for many configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from deploy.local.slurm.components import dynamic_components, slurm_components
from deploy.local.slurm.config import run_folder
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from node_agent.machine.slurmd_gres import WrongGres, parse, starts_placeholders
from node_agent.slurmd import manifest
from tests.eventually import eventually
from tests.node_agent.slurmd import slurmd_prints

_CONF = "GresTypes=fpga,shard,gpu,nic,mps\nNodeName=n1 CPUs=1 RealMemory=1 Gres="
# For each case: the GRES in slurm.conf, the lines of gres.conf, and the names of the devices' files in
# Slurm's order.
CONFIGURATIONS = {
    "in the order of the files": (
        "gpu:4",
        "Name=gpu File=/dev/d2,/dev/d0\nName=gpu File=/dev/d[3-4]\n",
        {"gpu": ["d2", "d0", "d3", "d4"]},
    ),
    "in the order of slurm.conf's types": (
        "gpu:a100:2,gpu:h100:1",
        "Name=gpu Type=h100 File=/dev/d0\nName=gpu Type=a100 File=/dev/d2,/dev/d1\n",
        {"gpu": ["d2", "d1", "d0"]},
    ),
    "no more than slurm.conf counts": (
        "gpu:h100:1",
        "Name=gpu Type=h100 File=/dev/d3\nName=gpu Type=h100 File=/dev/d1\n",
        {"gpu": ["d3"]},
    ),
    "several files each": (
        "gpu:1g:2,nic:3,fpga:1",
        """Name=gpu Type=1g MultipleFiles=/dev/d0,/dev/d1
           Name=gpu Type=1g MultipleFiles=/dev/d0,/dev/d2
           Name=nic Count=3
           Name=fpga File=/dev/d3
        """,
        {"gpu": ["d0 d1", "d0 d2"], "fpga": ["d3"]},
    ),
    "in parts": (
        "gpu:h100:2,shard:h100:8",
        "Name=gpu Type=h100 File=/dev/d1\nName=gpu Type=h100 File=/dev/d0\nName=shard Count=8\n",
        {"gpu": ["d1 shard:4", "d0 shard:4"]},
    ),
    "in parts, of some GPUs": (
        "shard:7,gpu:3",
        "Name=gpu File=/dev/d[0-2]\nName=shard Count=3 File=/dev/d2\nName=shard Count=4 File=/dev/d0\n",
        {"gpu": ["d0 mps:0 shard:4", "d1 mps:0 shard:0", "d2 mps:0 shard:3"]},
    ),
    "in parts, in the order of slurm.conf's types": (
        "gpu:a100:2,fpga:1,gpu:h100:1,shard:7",
        """Name=gpu Type=h100 File=/dev/d0
           Name=gpu Type=a100 File=/dev/d2,/dev/d1
           Name=fpga File=/dev/d4
        """,
        {"gpu": ["d2 shard:2", "d1 shard:2", "d0 shard:3"], "fpga": ["d4"]},
    ),
    "in parts of two kinds": (
        "gpu:2,mps:200,shard:8",
        "Name=gpu File=/dev/d[0-1]\n",
        {"gpu": ["d0 mps:100 shard:4", "d1 mps:100 shard:4"]},
    ),
    "parts of parts": (
        "gpu:1g:2,shard:4",
        """Name=gpu Type=1g MultipleFiles=/dev/d0,/dev/d1
           Name=gpu Type=1g MultipleFiles=/dev/d0,/dev/d2
        """,
        {"gpu": ["d0 d1 shard:2", "d0 d2 shard:2"]},
    ),
    "none": ("nic:2", "Name=nic Count=2\n", {}),
}


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_devices_are_in_slurms_order(name: str, release: str, tmp_path: Path) -> None:
    counted, conf, expected = CONFIGURATIONS[name]
    printed = slurmd_prints(release, tmp_path, _CONF + counted, gres=conf)
    found: dict[str, list[str]] = {}
    for device in parse(printed):
        files = (file.removeprefix("/dev/") for file in device.files)
        parts = (f"{name}:{count}" for name, count in sorted(device.shared.items()))
        found.setdefault(device.name, []).append(" ".join([*files, *parts]))
    assert found == expected, printed


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_a_configuration_that_slurmd_rejects_is_an_error(release: str, tmp_path: Path) -> None:
    conf = f"{_CONF}gpu:1"
    # slurmd also rejects a missing file, but only after waiting for the file for 19 s.
    printed = slurmd_prints(release, tmp_path, conf, gres="Name=gpu Count=2 File=/dev/d0\n")
    with pytest.raises(WrongGres, match=r"slurmd said fatal: .*gpu.*count"):
        parse(printed)


@pytest.mark.parametrize(
    "line",
    [
        "slurmd: fatal: Unable to determine this slurmd's NodeName",
        "slurmd: error: slurmd initialization failed",  # slurmd without a cgroup of its own
    ],
)
def test_output_of_a_slurmd_that_failed_to_start_is_an_error(line: str) -> None:
    with pytest.raises(WrongGres, match="slurmd said"):
        parse(f"slurmd: error: Node configuration differs from hardware\n{line}\n")


def test_types_and_files_are_read() -> None:
    printed = (
        "hwloc/linux: failed to find sysfs cpu topology directory, aborting linux discovery.\n"
        "slurmd: Gres Name=gpu Type=h100 Count=2 Index=0 File=/dev/nvidia[0-1] Links=(null) Flags=\n"
        "[2026-11-26T04:07:08] Gres Name=gpu Type=(null) Count=1 Index=0 ID=7 File=/dev/a,/dev/b\n"
    )
    found = [(device.name, device.type, device.files) for device in parse(printed)]
    assert found == [
        ("gpu", "h100", ("/dev/nvidia0",)),
        ("gpu", "h100", ("/dev/nvidia1",)),
        ("gpu", "", ("/dev/a", "/dev/b")),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Gres Name=gpu Type=x Count=2 File=/dev/a,/dev/b,/dev/c", "gpu: 2 devices of 3 files"),
        ("Gres Name=gpu Type=x Count=many File=/dev/a", "gpu: invalid literal"),
        ("Gres Name=gpu Type=x Count=9 File=/dev/a[0-8000]", "gpu: more node names than are taken"),
    ],
)
def test_malformed_device_line_is_an_error(line: str, words: str) -> None:
    with pytest.raises(WrongGres, match="gpu: ") as raised:
        parse(line)
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize("shards", ["/dev/d1", "/dev/d1,/dev/d0", "/dev/d0,/dev/d1,/dev/d2", "/dev/d0"])
def test_parts_that_do_not_match_the_gpus_in_order_are_an_error(shards: str) -> None:
    gpus = (f"Gres Name=gpu Type=h100 Count=1 File=/dev/d{number} Flags=HAS_FILE" for number in (0, 1))
    lines = (f"Gres Name=shard Type=h100 Count=4 File={file} Flags=SHARED" for file in shards.split(","))
    with pytest.raises(WrongGres, match="shard: its files are not those of gpu"):
        parse("\n".join([*gpus, *lines]))


@given(st.text(alphabet="Gres Name=Count1File/dev,[]-()\n", max_size=120))
def test_parse_of_any_text_returns_devices_or_an_error(text: str) -> None:
    try:
        parse(text)
    except WrongGres:
        return


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_a_reconfiguration_renumbers_devices_and_renews_the_list(tmp_path: Path, release: str) -> None:
    spec = ClusterSpec(nodes=1, gpus_per_node=4, kubernetes=False, extender=False, release=release)
    with Cluster.up(spec, tmp_path / "cluster") as cluster:
        layout, log = Layout(cluster.directory), cluster.logs / "slurmd-node-1.log"
        etc, run = layout.slurm / "etc", run_folder(layout, "node-1") / "slurm-extender"
        run.mkdir()
        (etc / "slurm.conf").write_text(f"{(etc / 'slurm.conf').read_text()}DebugFlags=gres\n")
        cluster.stop("slurmd-node-1")
        components = slurm_components(spec, dict(cluster.ports), layout)
        argv = next(each.argv for each in components if each.name == "slurmd-node-1")
        program = argv.index("/usr/sbin/slurmd")
        script = Path(manifest.__file__).with_name("start.sh").read_text()
        start = ("/bin/sh", "-c", script.replace("/var/spool/slurmd", "/run/spool"), "start")
        cluster.start("slurmd-node-1", argv=[*argv[:program], *start, *argv[program + 1 :]])

        def numbered(text: str) -> str:
            return "".join(device.files[0][-1] for device in parse(text))

        def slurmd_says() -> str:
            """Returns the numbers of the running slurmd, from slurmd's log."""
            return numbered([line for line in log.read_text().splitlines() if "Gres Name=" in line][-1])

        assert (slurmd_says(), numbered((run / "gres").read_text())) == ("0123", "0123")
        other = (etc / "gres.conf").read_text().replace("nvidia[0-3]", "nvidia[2-3,0-1]")
        (etc / "gres.conf").write_text(other)
        cluster.run_slurm("scontrol", "reconfigure")
        eventually(lambda: slurmd_says() == "2301", within_s=20)
        eventually(lambda: numbered((run / "gres").read_text()) == "2301", within_s=20)


_STARTS_SLURMD = '    slurmd "$@" $boot &\n'
_WAITS = "    until [ -e /run/slurm-extender/starts ]; do sleep 0.1; done\n"
_FETCHES = ' || list_devices "$@"; then'


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_list_follows_the_files_that_slurmd_has_fetched(tmp_path: Path, release: str) -> None:
    """slurmctld reconfigures before slurmd starts, and while slurmd runs. In the test, the script does
    not read files that `slurmd -G` fetches, so the list must follow the files that slurmd has
    fetched."""
    spec = ClusterSpec(
        nodes=1, gpus_per_node=4, dynamic_nodes=1, kubernetes=False, extender=False, release=release
    )
    with Cluster.up(spec, tmp_path / "cluster") as cluster:
        layout = Layout(cluster.directory)
        gres, run = layout.slurm / "etc/gres.conf", run_folder(layout, "dynamic-1") / "slurm-extender"
        run.mkdir()
        before = gres.read_text()

        def reconfigure(numbers: str) -> None:
            gres.write_text(before.replace("nvidia[0-3]", f"nvidia[{numbers}]"))
            cluster.run_slurm("scontrol", "reconfigure")

        def listed() -> str:
            if not (run / "gres").exists():
                return ""
            return "".join(device.files[0][-1] for device in parse((run / "gres").read_text()))

        components = dynamic_components(spec, dict(cluster.ports), layout)
        argv = next(each.argv for each in components if each.name == "slurmd-dynamic-1")
        program = argv.index("/usr/sbin/slurmd")
        script = Path(manifest.__file__).with_name("start.sh").read_text()
        assert _STARTS_SLURMD in script
        assert _FETCHES in script
        script = script.replace(_STARTS_SLURMD, _WAITS + _STARTS_SLURMD).replace(_FETCHES, "; then")
        start = ("/bin/sh", "-c", script.replace("/var/spool/slurmd", "/run/spool"), "start")
        conf = f"Port={cluster.ports['slurmd-dynamic-1']} Gres=gpu:h100:4 Feature=dynamic"
        options = (*argv[program + 1 :], "--conf", conf)
        cluster.start("slurmd-dynamic-1", argv=[*argv[:program], *start, *options], wait=False)
        eventually(lambda: listed() == "0123", within_s=20)
        reconfigure("2-3,0-1")
        (run / "starts").touch()
        eventually(lambda: listed() == "2301", within_s=20)
        eventually(lambda: "idle" in cluster.run_slurm("sinfo", "-hn", "dynamic-1", "-o%T").stdout)
        reconfigure("1,0,2-3")
        eventually(lambda: listed() == "1023", within_s=20)


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_version_shows_whether_slurmd_starts_placeholders(tmp_path: Path, release: str) -> None:
    conf = "NodeName=n1 CPUs=1 RealMemory=1\n"
    assert starts_placeholders(slurmd_prints(release, tmp_path, conf, "-V")) is (release == "24.11")
    assert not starts_placeholders(slurmd_prints(release, tmp_path, conf))


@pytest.mark.parametrize(
    ("said", "starts"), [("slurm 24.11.0\n", True), ("slurm 25.05.3\n", False), ("slurm\n", False)]
)
def test_placeholders_are_external_jobs_since_25_05(said: str, starts: bool) -> None:
    assert starts_placeholders(said) is starts
