"""Tests of docs/tasks/slurm-operator.md: with the values on the page, SchedMD's chart makes a Slurm that
the extender can use."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.chart_matrix import with_needed
from tests.preflight.test_faults import Preflight, failing, preflight
from tests.slurm_operator.chart import Manifest, one, rendered, slurm_conf, values

__all__ = ["preflight"]

pytestmark = pytest.mark.real  # the first test builds Helm


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slurm-operator")


@pytest.fixture(scope="module")
def objects(work: Path) -> list[Manifest]:
    """The objects that the chart makes with the values on the page."""
    return rendered(work, values()[0])


@pytest.fixture(scope="module")
def cluster(objects: list[Manifest]) -> Iterator[Cluster]:
    """A cluster with Slurm 26.05. Its slurm.conf has the lines that the operator's chart adds."""
    with (
        tempfile.TemporaryDirectory(prefix="operator-") as directory,
        Cluster.up(ClusterSpec(nodes=2), Path(directory)) as running,
    ):
        takes(running, slurm_conf(objects))
        yield running


def takes(running: Cluster, lines: list[str]) -> None:
    """Puts these lines into slurm.conf, in place of the lines with the same settings, and restarts
    slurmctld. The slurmds keep their configuration, because they have no cgroups of their own here."""
    conf = running.directory / "slurm" / "etc" / "slurm.conf"
    own = {line.partition("=")[0].lower() for line in lines} - {"partitionname"}
    there = [each for each in conf.read_text().splitlines() if "PartitionName=all" not in each]
    kept = [line for line in there if line.partition("=")[0].lower() not in own]
    conf.write_text("\n".join([*kept, *(line.replace("Default=YES", "") for line in lines), ""]))
    running.stop("slurmctld")
    running.start("slurmctld")


def test_slurmd_runs_once_on_each_node_and_reserves_no_resources(
    objects: list[Manifest],
) -> None:
    spec = one(objects, "NodeSet")["spec"]
    assert spec["scalingMode"] == "DaemonSet"
    assert spec["taintKubeNodes"] is False
    assert not spec["slurmd"]["resources"]
    assert not spec["template"]["spec"]["resources"]


def test_quoted_numbers_of_the_page_stay_integers(objects: list[Manifest]) -> None:
    assert {"MaxJobId=33554432", "KillWait=40"} <= {*slurm_conf(objects)}


def test_a_number_without_quotes_becomes_a_float(work: Path) -> None:
    """For this reason, the page writes the number in quotes."""
    given = {"controller": {"extraConfMap": {"MaxJobId": 33554432}}}
    assert "MaxJobId=3.3554432e+07" in slurm_conf(rendered(work, given))


def test_the_token_is_signed_with_the_charts_key(objects: list[Manifest]) -> None:
    token = values()[1]
    assert token["spec"]["jwtKeyRef"] == one(objects, "Controller")["spec"]["jwtKeyRef"]
    assert token["spec"]["username"] == "slurm"


def test_slurm_extenders_values_name_the_operators_service_and_the_token(
    objects: list[Manifest], tmp_path: Path
) -> None:
    token, own = values()[1:3]
    assert own["slurm"]["tokenSecret"]["name"] == token["spec"]["secretRef"]["name"]
    service = f"{one(objects, 'RestApi')['metadata']['name']}-restapi"
    assert own["slurm"]["restUrl"] == f"http://{service}.slurm:6820"
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(with_needed(dict(own))))
    chart = CHECKOUT / "deploy" / "charts" / "slurm-extender"
    command = [str(helm(silent)), "template", "x", str(chart), "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_preflight_passes_on_a_slurmctld_with_the_charts_lines(preflight: Preflight) -> None:
    status, found = preflight()
    assert (status, failing(found)) == (0, set())
    passed = {name for name, each in found.items() if each["verdict"] == "PASS"}
    assert passed >= {"token", "token-rights", "job-ids", "kill-wait", "partitions"}


def test_preflight_warns_on_a_slurmctld_without_the_charts_lines(
    preflight: Preflight, cluster: Cluster, work: Path
) -> None:
    """The chart's default values set neither MaxJobId nor KillWait, and neither does the slurm.conf of
    the operator."""
    lines = slurm_conf(rendered(work, {}))
    assert not [line for line in lines if line.startswith(("MaxJobId", "KillWait"))]
    takes(cluster, [*lines, "MaxJobId=67043328", "KillWait=30"])  # the defaults of slurm.conf(5)
    _, found = preflight()
    assert found["job-ids"]["verdict"] == "WARN"
    takes(cluster, slurm_conf(rendered(work, values()[0])))
