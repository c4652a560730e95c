"""Tests that a right to write, read or call one thing gives no right to another thing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local.chart import Rendered, Values, template
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import DEBIAN_SUITES
from tests.slurm_chart.matrix import TREE, merged
from tests.slurm_chart.pods import Machine, Pod, machine
from tests.slurm_chart.rendering import rendered
from tests.slurm_chart.slurm import Slurm, tree

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EXTENDER = {"app.kubernetes.io/name": "slurm-extender"}
ALICE = 2001
"""uid of a user in the files of the image."""


@pytest.fixture(params=DEBIAN_SUITES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def where(release: str, tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path, tree(release)) as made:
        yield made


def slurmctlds_pod(values: Values) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(values).find("StatefulSet", "slurmctld")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(("release", "file"), [("24.11", "topology.conf"), ("26.05", "topology.yaml")])
def test_the_topology_config_map_provides_no_other_file_of_slurm(release: str, file: str) -> None:
    """Whoever may write this ConfigMap would otherwise also control slurm.conf: the key slurm.conf would
    replace the chart's file."""
    volumes = slurmctlds_pod({**TREE, "slurmRelease": release})["volumes"]
    (wanted,) = [each["projected"]["sources"] for each in volumes if each["name"] == "wanted"]
    assert [each["configMap"]["name"] for each in wanted] == ["slurm-config", "slurm-topology"]
    assert wanted[1]["configMap"]["items"] == [{"key": file, "path": file}]


def test_a_release_contains_no_key_token_or_password() -> None:
    """Helm stores each release in a Secret, and GitOps tools keep the manifests in Git. Readers of both
    must not learn a key, a token or a password."""
    chart = rendered({"slurmd": {"namespaces": ["slurm-nodes"]}})
    secrets = [each for each in chart.manifests if each["kind"] == "Secret"]
    assert {each["metadata"]["name"] for each in secrets} == {"slurm-token", "slurmd"}
    for each in secrets:
        assert "data" not in each
        assert set(each.get("stringData", {})) <= {"slurm-extender-hook.conf"}


def test_keys_are_written_to_no_disk() -> None:
    """The container `configure`, which tries each configuration with the keys, writes the keys only to
    volumes in memory."""
    spec = slurmctlds_pod({})
    (configure,) = [each for each in spec["initContainers"] if each["name"] == "configure"]
    mounted = {each["mountPath"]: each["name"] for each in configure["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    for place in ("/etc/slurm", "/tmp"):
        assert volumes[mounted[place]]["emptyDir"]["medium"] == "Memory"


def test_only_slurm_extender_the_check_and_named_peers_may_call_slurmrestd() -> None:
    """Sessions in login Pods are not in the list, so they may not call slurmrestd."""
    peers: list[dict[str, Any]] = [{"namespaceSelector": {}}]
    for given in ([], peers):
        values = {
            "networkPolicy": {"slurmrestd": {"from": given}},
            "slurmExtender": {"namespace": "extenders"},
        }
        (rule,) = rendered(values).find("NetworkPolicy", "slurmrestd")["spec"]["ingress"]
        *named, extender, check = rule["from"]
        assert named == given
        namespace = extender["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        assert (namespace, extender["podSelector"]["matchLabels"]) == ("extenders", EXTENDER)
        assert check["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "check"


def test_slurm_extender_pods_have_the_label_that_slurmrestd_admits() -> None:
    least = {"slurm": {"restUrl": "http://slurmrestd:6820", "tokenSecret": {"name": "slurm-token"}}}
    chart = Rendered.parsed(template(helm(silent), least))
    pod = chart.find("Deployment", "slurm-extender")["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= EXTENDER.items()


@pytest.mark.parametrize(
    ("password", "taken"),
    [("p'w$(id);%s=&", True), ("a#b", False), ("a b", False), ("a\\b", False), ('a"b', False)],
)
def test_a_password_that_slurmdbd_conf_cannot_contain_is_rejected(
    tmp_path: Path, password: str, taken: bool
) -> None:
    spec = rendered({}).find("Deployment", "slurmdbd")["spec"]["template"]["spec"]
    *shell, script = spec["initContainers"][0]["command"]
    for folder in ("slurm-wanted", "slurm-database", "slurm"):
        (tmp_path / folder).mkdir()
    (tmp_path / "slurm-wanted/slurmdbd.conf").write_text("DbdHost=slurmdbd\n")
    (tmp_path / "slurm-database/password").write_text(password)
    script = script.replace("/etc/", f"{tmp_path}/")
    done = subprocess.run([*shell, script], capture_output=True, text=True, check=False)
    made = tmp_path / "slurm/slurmdbd.conf"
    if taken:
        assert made.read_text() == f"DbdHost=slurmdbd\nStoragePass={password}\n"
        assert made.stat().st_mode & 0o777 == 0o600
    else:
        assert (done.returncode, made.exists()) == (1, False)
        assert "slurmdbd.conf cannot have" in done.stderr
        assert password not in done.stderr


@pytest.mark.parametrize(("seconds", "granted"), [(600, {600: True, 601: False}), (0, {60: False})])
def test_the_values_limit_the_lifetime_of_user_tokens(
    release: str, where: Machine, seconds: int, granted: dict[int, bool]
) -> None:
    values = {"accounting": {"enabled": False}, "slurmRelease": release}
    slurm = Slurm(where, rendered(merged(values, {"keys": {"userTokenSeconds": seconds}})))
    slurm.start()
    for lifespan, is_granted in granted.items():
        assert (make_token(slurm, lifespan) != "") == is_granted, lifespan
    assert make_token(slurm, "infinite") == ""
    assert slurm.token().count(".") == 2  # the token of SlurmUser, for slurm-extender


def make_token(slurm: Slurm, lifespan: int | str) -> str:
    """Makes a token for alice by a call of alice herself. Returns the token; "" if Slurm rejects the
    request."""
    first = slurm.controllers[0]
    user = {**first.spec["securityContext"], "runAsUser": ALICE}
    hers: Pod = replace(first, spec={**first.spec, "securityContext": user})
    try:
        return hers.run("slurmctld", "scontrol", "token", f"lifespan={lifespan}")
    except AssertionError:
        return ""
