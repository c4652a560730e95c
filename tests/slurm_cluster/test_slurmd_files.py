"""Tests of contradictions between slurm.conf and slurmd's files, such as gres.conf. The tests also run
each release's slurmd with contradicting files."""

from pathlib import Path

import pytest

from deploy.local.spec import DEBIAN_SUITES
from slurm_cluster.configuration.folders import File
from slurm_cluster.configuration.slurm_conf import parse
from slurm_cluster.configuration.slurmd_files import wrong
from tests.node_agent.slurmd import slurmd_prints

GPUS = (
    "GresTypes=gpu\nNodeName=n1 CPUs=1 RealMemory=1 Gres=gpu:h100:2\nNodeName=n2 CPUs=1 RealMemory=1\n"
)
H100 = "NodeName=n1 Name=gpu Type=h100 File=/dev/d[0-1]\n"
NONE = f"on n1: 0 gpu:h100 {(FEW := 'by gres.conf, and 2 by slurm.conf: slurmctld sets a node')}"
FEWER = {
    "another type": (H100.replace("h100", "l4"), NONE),
    "no type": (H100.replace("Type=h100 ", ""), NONE),
    "another node": (H100.replace("n1", "gpu-a"), NONE),
    "fewer files": (H100.replace("[0-1]", "0"), f"on n1: 1 gpu:h100 {FEW}"),
}
"""Contents of gres.conf that contradict the slurm.conf GPUS, each with the reported problem."""
ALL_NODES = "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"
SWAPPED = GPUS.replace("n2", "n[3-4]").replace("n1", "n2").replace("n[3-4]", "n[1,3]")
"""The slurm.conf GPUS with other nodes: n2 has the GPUs, and n1 and n3 have no GPUs."""
ENDS = "on n[1,3]: slurm.conf has no gpu there, and slurmd ends without /dev/nvidia[0-1]"


def problems(conf: str, gres: str, *scripts: str) -> list[str]:
    files = {"gres.conf": File(gres.encode()), **{name: File(b"#!/bin/sh\n") for name in scripts}}
    return wrong(files, parse(conf, str))


@pytest.mark.parametrize(
    ("conf", "gres", "words"),
    [
        *((GPUS, *each) for each in FEWER.values()),
        (SWAPPED, ALL_NODES, ENDS),
        (GPUS.replace("GresTypes=gpu\n", ""), H100, "Name=gpu is not in GresTypes"),
    ],
    ids=[*FEWER, "nodes without GPUs", "no GresTypes"],
)
def test_a_contradiction_with_slurm_conf_is_reported(conf: str, gres: str, words: str) -> None:
    (problem,) = problems(conf, gres)
    assert problem.startswith(f"gres.conf: {words}")


@pytest.mark.parametrize(
    ("before", "after", "gres"),
    [
        ("", "", H100),
        ("gpu:h100:2", "gpu:2(S:0)", H100),
        ("gpu:h100:2", "gpu:h100:1", H100),
        ("gpu:h100:2", "gpu:h100:2,gpu:l4:1", f"{H100}NodeName=n1 Name=gpu Type=L4 File=/dev/d2\n"),
        ("gpu:h100:2", "gpu:h100:2", f"AutoDetect=nvidia\n{H100.replace('h100', 'l4')}"),
        ("gpu:h100:2", "gpu:h100:2", "NodeName=n1 Name=gpu Type=h100 MultipleFiles=/dev/d0,/dev/d1\n"),
        ("gpu:h100:2", "gpu:h100:2", "Name=gpu Type=h100 Count=2\n"),
        ("=gpu:h100:2", "=gpu:h100:2,gpu:8", ""),
        (
            "GresTypes=gpu\nNodeName=n1 CPUs=1 RealMemory=1 Gres=gpu:h100:2",
            "GresTypes=gpu,shard\nNodeName=n1 CPUs=1 RealMemory=1 Gres=gpu:h100:2,shard:8",
            f"AutoDetect=off\n{H100}NodeName=n1 Name=shard Count=8 File=/dev/d0\n",
        ),
    ],
)
def test_files_without_a_contradiction_have_no_problems(before: str, after: str, gres: str) -> None:
    assert before in GPUS
    assert problems(GPUS.replace(before, after) if before else GPUS, gres) == []


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("Epilog=epilog.sh", ""),
        ("Epilog=other.sh", "Epilog=other.sh"),
        ("Prolog=epilog.sh\nPROLOG=other.sh", "PROLOG=other.sh"),
        ("Epilog=/etc/slurm/scripts/other.sh", ""),  # no problem: slurmd's image may contain the file
        ('PrologSlurmctld=other.sh\nEpilog=""', ""),
    ],
)
def test_a_script_without_a_path_must_be_one_of_the_files(line: str, missing: str) -> None:
    words = "slurm.conf: {} is not in the files: Slurm drains each node at its first job"
    assert problems(f"{line}\n", "", "epilog.sh") == ([words.format(missing)] if missing else [])


@pytest.mark.real
@pytest.mark.parametrize("release", list(DEBIAN_SUITES))
@pytest.mark.parametrize("name", list(FEWER))
def test_slurmd_has_fewer_devices_than_slurm_conf(name: str, release: str, tmp_path: Path) -> None:
    printed = slurmd_prints(release, tmp_path, GPUS, gres=FEWER[name][0])
    assert "Ignoring file-less GPU gpu:h100" in printed


@pytest.mark.real
def test_slurmd_ends_if_device_files_of_other_nodes_are_missing(tmp_path: Path) -> None:
    """This test takes 19 s, because slurmd waits this long for a missing file."""
    printed = slurmd_prints(next(iter(DEBIAN_SUITES)), tmp_path, SWAPPED, gres=ALL_NODES)
    assert "fatal: can't stat gres.conf file /dev/nvidia0" in printed
