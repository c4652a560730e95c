"""Tests of slurm.conf as made for a ClusterSpec, including lines that the caller gives."""

import subprocess
from pathlib import Path

import pytest

from deploy.local.blueprint import port_names
from deploy.local.layout import Layout
from deploy.local.rendering import render
from deploy.local.slurm.config import replace_parameters, share_slurm
from deploy.local.spec import SIGNAL_RELAY, ClusterSpec


def slurm_conf(spec: ClusterSpec) -> list[str]:
    ports = {name: 20_000 + index for index, name in enumerate(port_names(spec))}
    return render("slurm.conf.j2", spec=spec, ports=ports).splitlines()


def starting(conf: list[str], prefix: str) -> list[str]:
    return [line for line in conf if line.startswith(prefix)]


def test_nodes_with_a_slurmd_make_the_default_partition() -> None:
    conf = slurm_conf(ClusterSpec(nodes=2, external_nodes=3))
    assert len(starting(conf, "NodeName=node-")) == 2
    (main,) = starting(conf, "PartitionName=main")
    assert "Nodes=node-[1-2] Default=YES" in main
    (ext,) = starting(conf, "PartitionName=ext")
    assert "Default=NO Nodes=external-[1-3]" in ext


def test_external_nodes_alone_form_the_default_partition_with_a_relay() -> None:
    conf = slurm_conf(ClusterSpec(nodes=0, external_nodes=3))
    (main,) = starting(conf, "PartitionName=")
    assert main.startswith("PartitionName=main Default=YES Nodes=external-[1-3]")
    assert len(starting(conf, f"NodeName={SIGNAL_RELAY}")) == 1


def test_nodes_without_gpus_have_no_gres() -> None:
    assert "Gres=" not in "".join(slurm_conf(ClusterSpec(gpus_per_node=0)))


def test_gpus_have_parts_if_shared_gres_are_given() -> None:
    conf = slurm_conf(ClusterSpec(nodes=1, gpus_per_node=2, shared_gres=(("shard", 8), ("mps", 200))))
    assert "GresTypes=gpu,shard,mps" in conf
    (node,) = starting(conf, "NodeName=")
    assert "Gres=gpu:h100:2,shard:8,mps:200 " in node
    assert "GresTypes=gpu" in slurm_conf(ClusterSpec())


@pytest.mark.parametrize(
    ("choices", "size"),
    [
        ({}, "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 "),
        ({"threads_per_core": 2}, "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 "),
        (
            {"threads_per_core": 2, "slurm_cpus_per_node": 4},
            "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 ",
        ),
        ({"slurm_cpus_per_node": 80}, "CPUs=80 Sockets=1 CoresPerSocket=80 ThreadsPerCore=1 "),
    ],
    ids=["cores", "threads", "cores of threads", "parts"],
)
def test_nodes_declare_their_cpus_as_cores_threads_or_parts(choices: dict[str, int], size: str) -> None:
    conf = slurm_conf(ClusterSpec(nodes=1, external_nodes=1, **choices))  # type: ignore[arg-type]
    assert all(size in line for line in starting(conf, "NodeName="))
    assert len(starting(conf, "NodeName=")) == 2


def test_accounting_is_configured_only_on_request() -> None:
    assert not starting(slurm_conf(ClusterSpec()), "Accounting")
    assert "slurmdbd" not in port_names(ClusterSpec())
    spec = ClusterSpec(accounting=True)
    conf = slurm_conf(spec)
    assert "AccountingStorageEnforce=associations,limits,qos" in conf
    port = 20_000 + port_names(spec).index("slurmdbd")
    assert f"AccountingStoragePort={port}" in conf


def test_job_submit_plugin_is_configured_only_with_a_script() -> None:
    assert not starting(slurm_conf(ClusterSpec()), "JobSubmitPlugins")
    conf = slurm_conf(ClusterSpec(job_submit_lua="function slurm_job_submit() end"))
    assert starting(conf, "JobSubmitPlugins") == ["JobSubmitPlugins=lua"]


def test_a_callers_line_replaces_the_parameter_of_the_same_name() -> None:
    conf = replace_parameters("KillWait=40\nMinJobAge=60\n", ("killwait=5", "Prolog=/p"))
    assert conf.splitlines() == ["MinJobAge=60", "killwait=5", "Prolog=/p"]


def test_partition_of_the_caller_is_added() -> None:
    conf = replace_parameters("PartitionName=main Nodes=ALL\n", ("PartitionName=low Nodes=ALL",))
    assert len(conf.splitlines()) == 2


def test_cluster_with_a_shared_slurm_adds_the_urls_of_its_extenders(
    tmp_path: Path,
) -> None:
    first, second = Layout(tmp_path / "first"), Layout(tmp_path / "second")
    configuration = first.slurm / "etc/slurm-extender-hook.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text('SLURM_EXTENDER_HOOKS_URLS="http://127.0.0.1:1"\n')
    second.directory.mkdir()
    spec = ClusterSpec(slurm_of=str(first.directory), replicas=2)
    share_slurm(spec, {"extender-hooks": 2, "extender-2-hooks": 3}, second)
    told = f'. "{configuration}"; echo $SLURM_EXTENDER_HOOKS_URLS'
    urls = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True).stdout
    assert urls.split() == [f"http://127.0.0.1:{port}" for port in (1, 2, 3)]
    first.hooks_token_file.write_text("secret")
    assert second.hooks_token_file.read_text() == "secret"
    assert (second.bin / "squeue").readlink() == first.bin / "squeue"


def test_cluster_with_a_shared_slurm_needs_no_slurm_ports() -> None:
    spec = ClusterSpec(nodes=2, kubernetes_nodes=("node-2",), slurm_of="/elsewhere", accounting=True)
    assert not [name for name in port_names(spec) if name.startswith("slurm")]
    assert spec.kubernetes_node_names == ["node-2"]


@pytest.mark.parametrize(
    "choices",
    [
        {"release": "1.0"},
        {"release": "24.11", "external_nodes": 1},
        {"nodes": 0},
        {"kubernetes": False, "extender": True},
        {"cpus_per_node": 7, "threads_per_core": 2},
        {"kubernetes_release": "1.30"},
        {"kubernetes_nodes": ("node-9",)},
        {"slurm_of": "/elsewhere", "extender": False},
    ],
)
def test_invalid_spec_is_refused(choices: dict[str, object]) -> None:
    with pytest.raises(
        ValueError,
        match=r"is unknown|no EXTERNAL|at least one|needs Kubernetes|not a multiple|cannot be built"
        r"|no node named node-9|needs an extender",
    ):
        ClusterSpec(**choices)  # type: ignore[arg-type]
