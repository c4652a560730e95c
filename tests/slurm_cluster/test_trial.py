"""Tests of trials, in which a temporary slurmctld of each release tries a configuration. No wrong
configuration passes.

docs/reference/slurm-configuration.md describes the trial.
"""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.local.spec import DEBIAN_SUITES
from slurm_cluster.configuration.configurer import Configurer, Places
from slurm_cluster.configuration.controller import Controller
from slurm_cluster.configuration.folders import File, write
from slurm_cluster.configure import print_plan
from tests.slurm_chart.rendering import files, rendered
from tests.slurm_programs import on_path, put_slurmctld, tree_of

pytestmark = pytest.mark.real

BASE = f"""\
ClusterName=c
SlurmctldHost={socket.gethostname()}
SlurmUser=slurm
AuthType=auth/slurm
AuthInfo=use_client_ids
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key
CredType=cred/slurm
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
GresTypes=gpu
SlurmctldParameters=enable_configless
MaxNodeCount=1000
KillWait=30
NodeSet=dynamic Feature=dynamic
NodeName=n[1-4] CPUs=4 RealMemory=1000 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES
"""
OTHERS = {"cgroup.conf": b"CgroupPlugin=disabled\n"}
FAIRSHARE = "PriorityType=priority/multifactor\nPriorityWeightFairshare=100\n"
INSTEAD_OF_KILL_WAIT = {
    "a key that there is not": ("KilWait=30", "KilWait"),
    "a number that is none": ("KillWait=soon", "KillWait"),
    "a line of no form": ("Kill Wait 30", "Kill"),
    "a plugin that there is not": ("PriorityType=priority/mine", "priority/mine"),
    "an option that there is not": ("PreemptMode=SOMETIMES", "PreemptMode"),
    "a scheduler's parameter": ("SchedulerParameters=bf_interval=often", "bf_interval"),
    "an included file that there is not": ("Include nodes.conf", "nodes.conf"),
    "no topology.conf": ("TopologyPlugin=topology/tree", "topology"),
    "a weight that needs slurmdbd": (FAIRSHARE, "can only be used with SlurmDBD"),
    "a script that there is not": ("PrologSlurmctld=/etc/slurm/prolog.sh", "/etc/slurm/prolog.sh"),
    "a number below nothing": ("KillWait=-30", "KillWait"),
    "no job_submit.lua": ("JobSubmitPlugins=lua", "job_submit.lua: No such file"),
    "a colon instead of =": ("AccountingStorageTRES: gres/gpu", "AccountingStorageTRES: gres/gpu"),
    "memory for a node and for a CPU": ("DefMemPerNode=100\nDefMemPerCPU=10", "mutually exclusive"),
}
"""Lines that replace KillWait=30 in BASE, each with a part of the reported problem."""
WRONG: dict[str, tuple[str, str, Mapping[str, bytes], str]] = {
    **{name: ("KillWait=30", line, {}, words) for name, (line, words) in INSTEAD_OF_KILL_WAIT.items()},
    "a node that there is not": ("Nodes=ALL", "Nodes=n1,gone", {}, "gone"),
    "a node set that there is not": ("Nodes=ALL", "Nodes=h100set", {}, "h100set"),
    "a topology.conf without switches": (
        "KillWait=30",
        "TopologyPlugin=topology/tree",
        {"topology.conf": b"# filled later\n"},
        "No switches configured",
    ),
    "a key of a partition": ("Default=YES", "Defalut=YES", {}, "Defalut"),
    "a value of a partition": ("Default=YES", "Default=YES State=BROKEN", {}, "BROKEN"),
    "a time of a partition": ("Default=YES", "Default=YES MaxTime=longish", {}, "MaxTime"),
    "a partition twice": (
        "PartitionName=main",
        "PartitionName=main Nodes=n1\nPartitionName=main",
        {},
        "main",
    ),
    "a node twice": ("NodeName=n[1-4]", "NodeName=n2 CPUs=1\nNodeName=n[1-4]", {}, "n2"),
    "a key of a node": ("CPUs=4", "CPU=4", {}, "CPU"),
    "a GRES without its type": ("GresTypes=gpu\n", "", {}, "gpu"),
    "a key of cgroup.conf": ("", "", {"cgroup.conf": b"CgroupPlugins=disabled\n"}, "CgroupPlugins"),
    "a node of topology.conf": (
        "MaxNodeCount=1000",  # replaced, because only MaxNodeCount lets unknown nodes join
        "TopologyPlugin=topology/tree",
        {"topology.conf": b"SwitchName=s Nodes=n[1-9]\n"},
        "n",
    ),
    "Lua that is none": (
        "KillWait=30",
        "JobSubmitPlugins=lua",
        {"job_submit.lua": b"function (\n"},
        "lua",
    ),
    "Lua without its functions": (
        "KillWait=30",
        "JobSubmitPlugins=lua",
        {"job_submit.lua": b"x = 1\n"},
        "lua",
    ),
    "keys that are none": ("", "", {"keys/slurm.jwks": b"{"}, "jwks"),
    "no key of JWT": ("jwt_hs256.key", "other.key", {}, "other.key"),
    "a key of gres.conf": ("", "", {"gres.conf": b"Nam=gpu File=/dev/nvidia0\n"}, "key Nam"),
    "a count of gres.conf": ("", "", {"gres.conf": b"Name=gpu Count=lots\n"}, "Count=lots"),
    "a line of gres.conf": ("", "", {"gres.conf": b"Name=gpu File /dev/nvidia0\n"}, "does not begin"),
    "a plugin of cgroup.conf": ("", "", {"cgroup.conf": b"CgroupPlugin=cgroup/v9\n"}, "cgroup/v9"),
    "a line of plugstack.conf": ("", "", {"plugstack.conf": b"require /usr/lib/pyxis.so\n"}, "require "),
}

TREE = (
    "- topology: default\n  cluster_default: true\n  tree:\n    switches:\n"
    "    - {switch: root, children: s1}\n    - {switch: s1, nodes: 'n[1-4]'}\n"
)
TOPOLOGIES = {
    "empty list": ("[]\n", "topology.yaml has no topology: SIGSEGV ended slurmctld"),
    "empty map": ("{}\n", "Failed to initialize topology plugin"),
    "empty file": ("", "topology.yaml"),
    "tabs": (TREE.replace("    - ", "\t- "), "topology.yaml"),
    "no switches": (f"{TREE.partition('    switches:')[0]}    switches: []\n", "No switches configured"),
    "child without a switch": (TREE.replace("children: s1", "children: 's1,s9'"), "invalid child (s9)"),
    "two defaults": (TREE + TREE.replace("topology: default", "topology: second"), ""),
    "no default": (TREE.replace("  cluster_default: true\n", ""), ""),
}
"""Contents of topology.yaml, each with a part of 26.05's error message; "" if slurmctld 26.05 accepts
the file."""
DIFFERENT = {
    "a root without switches": (
        ("KillWait=30", "TopologyPlugin=topology/tree"),
        {"topology.conf": b"SwitchName=root\n"},
        {"24.11": "neither child switches nor nodes", "26.05": ""},
    ),
    "topology/flat": (
        ("KillWait=30", "TopologyPlugin=topology/flat"),
        {},
        {"24.11": "topology/flat", "26.05": ""},
    ),
    "a partition's topology that there is not": (
        ("Default=YES", "Default=YES Topology=blocks"),
        {"topology.yaml": TREE.encode()},
        {"24.11": "unrecognized key: Topology", "26.05": "Invalid partition topology"},
    ),
    "a partition's topology in an empty list": (
        ("Default=YES", "Default=YES Topology=default"),
        {"topology.yaml": b"[]\n"},
        {"24.11": "unrecognized key: Topology", "26.05": "topology.yaml has no topology"},
    ),
    **{
        f"topology.yaml: {name}": (
            ("", ""),
            {"topology.yaml": text.encode()},
            {"24.11": "", "26.05": words},
        )
        for name, (text, words) in TOPOLOGIES.items()
    },
}
"""Configurations that one release accepts and another rejects. For example, 24.11 does not read
topology.yaml."""


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def release(request: pytest.FixtureRequest) -> str:
    named: str = request.param
    return named


@pytest.fixture(scope="module")
def programs(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("programs")
    put_slurmctld(folder, tree_of(release))
    with on_path(folder):
        yield folder


def configurer(tmp_path: Path, conf: str, others: Mapping[str, bytes]) -> Configurer:
    """Returns a configurer that has these files and has not looked at them yet."""
    files = {
        "wanted/slurm.conf": conf.encode(),
        "keys/slurm.key": b"k" * 64,
        "keys/jwt_hs256.key": b"j" * 64,
        **{
            name if "/" in name else f"wanted/{name}": text
            for name, text in {**OTHERS, **others}.items()
        },
    }
    write(tmp_path, {name: File(content) for name, content in files.items()})
    return Configurer(places_of(tmp_path), Controller(1.0))


def places_of(tmp_path: Path) -> Places:
    wanted, kept, state = (tmp_path / name for name in ("wanted", "kept", "state"))
    return Places(wanted, Path("/etc/slurm"), kept, (tmp_path / "keys",), state)


def problems(tmp_path: Path, conf: str, others: Mapping[str, bytes] = {}) -> list[str]:
    return configurer(tmp_path, conf, others).plan()[1]


def test_a_valid_configuration_has_no_problems(programs: Path, tmp_path: Path) -> None:
    assert problems(tmp_path, BASE) == []
    lines = ["slurmctld would start with the wanted configuration"]
    assert print_plan(places_of(tmp_path)) == (lines, 0)


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_configuration_is_refused_by_slurmctld(programs: Path, tmp_path: Path, name: str) -> None:
    before, after, others, words = WRONG[name]
    assert before in BASE
    found = problems(tmp_path, BASE.replace(before, after, 1) if before else BASE, others)
    assert any(words.lower() in problem.lower() for problem in found), found


@pytest.mark.parametrize("name", list(DIFFERENT))
def test_each_release_reports_its_own_problems(
    programs: Path, release: str, tmp_path: Path, name: str
) -> None:
    (before, after), others, words = DIFFERENT[name]
    assert before in BASE
    found = problems(tmp_path, BASE.replace(before, after, 1), others)
    assert words[release] in "; ".join(found), found
    assert bool(found) == bool(words[release])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "PartitionName=main",
            "NodeSet=h100 Feature=h100\nPartitionName=later Nodes=h100\nPartitionName=main",
        ),
        ("KillWait=30", "Epilog=/etc/slurm/scripts/epilog.sh"),
        ("NodeName=n[1-4] CPUs=4 RealMemory=1000 Gres=gpu:2\n", ""),
        (" Default=YES", ""),
        (
            "KillWait=30",
            f"{FAIRSHARE}AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageEnforce=qos",
        ),
        (
            "KillWait=30",
            "SuspendTime=60\nSuspendProgram=/usr/bin/suspend\nResumeProgram=/usr/bin/resume",
        ),
        ("KillWait=30", "ReconfigFlags=KeepPartInfo"),
        ("KillWait=30", "PrologSlurmctld=/usr/bin/true\nMailProg=/usr/bin/mail"),
        ("KillWait=30", "SlurmctldLogFile=/var/log/slurm/slurmctld.log\nSlurmctldDebug=debug3"),
        ("NodeName=n[1-4]", "NodeName=n[1-4] NodeAddr=10.255.0.[1-4] NodeHostname=h[1-4] Port=6818"),
    ],
)
def test_valid_configurations_pass(programs: Path, tmp_path: Path, before: str, after: str) -> None:
    assert before in BASE
    assert problems(tmp_path, BASE.replace(before, after, 1)) == []


def test_configuration_of_the_chart_passes_without_any_state(programs: Path, tmp_path: Path) -> None:
    """The chart's configuration uses slurmdbd. Before the first start of a slurmctld, a trial works
    without slurmdbd."""
    made = {name: text.encode() for name, text in files(rendered({})).items()}
    conf = made.pop("slurm.conf").decode()
    conf = conf.replace("slurmctld-0(slurmctld-0.slurm.svc)", socket.gethostname())
    assert problems(tmp_path, conf, made) == []


def test_valid_files_of_slurmd_have_no_problems(programs: Path, tmp_path: Path) -> None:
    files = {
        "gres.conf": b"# GPUs\nAutoDetect=nvidia\nNodeName=n[1-4] Name=gpu \\\n  File=/dev/n0\n"
        b"Name=shard Count=16 Flags=CountOnly\nInclude more-gres.conf\n",
        "more-gres.conf": b"Name=gpu Cores=0-3 Links=-1,16 MultipleFiles=/dev/a,/dev/b\n",
        "plugstack.conf": b"# none\n\noptional  /usr/lib/a.so x=1\n",
        "cgroup.conf": b"CgroupPlugin=cgroup/v2\nConstrainCores=yes\n",
    }
    conf = BASE.replace("GresTypes=gpu", "GresTypes=gpu,shard")
    assert problems(tmp_path, conf, files) == []


def test_a_topology_may_name_dynamic_nodes(programs: Path, tmp_path: Path) -> None:
    """Both files have the same topology. Since 25.05, slurmctld reads topology.yaml, and then ignores
    topology.conf."""
    files = {
        "topology.yaml": b"- topology: t\n  cluster_default: true\n  tree:\n    switches:\n"
        b"    - {switch: root, children: 's[1-2]'}\n"
        b"    - {switch: s1, nodes: 'n[1-4],gpu-[1-8]'}\n    - {switch: s2, nodes: 'gpu-9'}\n",
        "topology.conf": b"SwitchName=root Switches=s[1-2]\nSwitchName=s1 Nodes=n[1-4],gpu-[1-8]\n"
        b"SwitchName=s2 Nodes=gpu-9\n",
    }
    conf = BASE.replace("KillWait=30", "TopologyPlugin=topology/tree")
    assert problems(tmp_path, conf, files) == []


def test_a_trial_leaves_no_files_and_no_processes(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    assert problems(tmp_path, BASE) == []
    assert not list(tmp_path.glob("slurm-trial-*"))
    assert running(os.fspath(tmp_path)) == ""


def running(argument: str) -> str:
    """Returns the command lines of slurmctld processes that have this text in their arguments."""
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return "".join(
        line for line in shown.stdout.splitlines() if argument in line and "slurmctld" in line
    )


def test_a_configuration_without_slurm_conf_is_refused(tmp_path: Path) -> None:
    looks = configurer(tmp_path, BASE, {})
    (tmp_path / "wanted/slurm.conf").unlink()
    assert looks.plan()[1] == [f"{tmp_path}/wanted has no slurm.conf"]
