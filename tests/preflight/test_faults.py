"""Tests of `slurm-extender preflight` on a real cluster: preflight passes if the cluster is healthy, and
reports each fault that a test makes."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.kubernetes.config import kubeconfig_of, scheduler_configuration
from deploy.local.layout import Layout
from extender.commands import preflight as command
from extender.explain.wording import NO_DRA
from extender.node_view.view_updater import MEMORY
from service.command_line import Output
from tests.cluster_fixture import deleted
from tests.eventually import eventually
from tests.preflight.test_idle import problems
from wellknown.conditions import timestamp
from wellknown.names import DEVICE_PROBLEM, NODE_NAME_LABEL

pytestmark = pytest.mark.real

Found = dict[str, dict[str, Any]]
Preflight = Callable[..., tuple[int, Found]]
MEMORY_CHECK = "select-type-parameters"
TOLD_SINCE_45 = "26.05"
"""Release of Slurm in which slurmrestd reports slurm.conf (API v0.0.45)."""


@pytest.fixture
def preflight(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Preflight:
    """Runs preflight with the administrator's rights. Keyword arguments are settings to change."""
    monkeypatch.setattr(command, "configure_logging", lambda _level: None)  # affects the whole process
    administrator = {"SLURM_EXTENDER_KUBECONFIG": str(cluster.kubeconfig)}

    def run(scheduler_config: Path | None = None, **changed: str) -> tuple[int, Found]:
        settings = {f"SLURM_EXTENDER_{name}": value for name, value in changed.items()}
        with monkeypatch.context() as patch:
            for name, value in {**cluster.extender_environment, **administrator, **settings}.items():
                patch.setenv(name, value)
            status = command.run(Output.JSON, command.Places(scheduler_config=scheduler_config))
        printed = capsys.readouterr().out
        results = json.loads(printed)["results"] if printed else []
        return status, {each["check"]: each for each in results}

    return run


def failing(found: Found) -> set[str]:
    return {name for name, each in found.items() if each["verdict"] == "FAIL"}


def words(found: Found, check: str, verdict: str = "FAIL") -> str:
    """Returns what a check has found. The result must have this verdict and a fix."""
    result = found[check]
    assert result["verdict"] == verdict, result
    assert result["fix"]
    return str(result["found"])


def tells(cluster: Cluster) -> bool:
    return cluster.spec.release == TOLD_SINCE_45


def test_a_healthy_cluster_passes(preflight: Preflight, cluster: Cluster) -> None:
    status, found = preflight()
    assert (status, failing(found)) == (0, set())
    passed = {name for name, each in found.items() if each["verdict"] == "PASS"}
    both = {"kubernetes-release", "rights", "webhooks", "policies", "scheduler", "preemption", "token"}
    both |= {"token-rights", "partitions", "node-names", "gres", "cpus", "memory"}
    both |= {"settings", "webhook-answers"}
    assert passed >= both
    if tells(cluster):
        assert passed >= {"slurm-api", "job-ids", "kill-wait", "preempt-type", "timeouts", "hooks"}
        assert passed >= {
            "select-type-parameters",
            "max-job-count",
            "backfill",
            "accounting-store-flags",
        }


# -- faults of the settings


def test_rejected_tokens_fail_the_check(preflight: Preflight, cluster: Cluster, tmp_path: Path) -> None:
    forged = jwt.encode({"exp": int(time.time()) + 3600, "sun": "root"}, "not Slurm's key" * 4, "HS256")
    for text, told in (
        (forged, "slurmctld rejects the token of root"),
        (cluster.mint_token("root", -60), "the token of root expired at"),
        ("nonsense", f"the token in {tmp_path / 'token'} is not a JWT"),
        ("", "is empty"),
    ):
        file = tmp_path / "token"
        file.write_text(text)
        status, found = preflight(SLURM_TOKEN_FILE=str(file))
        assert (status, failing(found)) == (1, {"token"})
        assert told in words(found, "token")
        assert found["partitions"]["verdict"] == "SKIPPED"


def test_token_without_rights_fails_the_check(
    preflight: Preflight, cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(cluster.mint_token("alice"))
    status, found = preflight(SLURM_TOKEN_FILE=str(file))
    assert (status, failing(found)) == (1, {"token-rights"})
    assert "alice may neither choose" in words(found, "token-rights")
    file.write_text(cluster.mint_token("slurm"))
    assert failing(preflight(SLURM_TOKEN_FILE=str(file))[1]) == set()


@pytest.mark.one_release("The fault is in a setting")
def test_missing_slurmrestd_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    closed = cluster.ports["slurmctld"] if not tells(cluster) else 9
    status, found = preflight(SLURMRESTD_URL=f"http://127.0.0.1:{closed}", SLURM_TIMEOUT_S="2")
    assert (status, failing(found)) == (1, {"slurm-api"})
    assert found["kubernetes-release"]["verdict"] == "PASS"
    folded = {name for name, each in found.items() if each["because"] == "slurm-api"}
    assert folded >= {"token", "token-rights", "job-ids", "partitions", "gres", "cpus", "memory"}


@pytest.mark.one_release("The fault is in a setting")
def test_unknown_variable_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    status, found = preflight(SLURMRESTD_ULR=cluster.slurmrestd_url)
    assert (status, failing(found)) == (1, {"settings"})
    assert "SLURM_EXTENDER_SLURMRESTD_URL is probably meant" in words(found, "settings")


def test_unknown_partitions_fail_the_check(preflight: Preflight, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    rule = {"namespaces": ["*"], "default": {"user": 2001, "partition": "gone"}}
    policy.write_text(yaml.safe_dump({"rules": [{"name": "all", **rule}]}))
    status, found = preflight(DEFAULT_PARTITION="nowhere", POLICY_FILE=str(policy))
    assert (status, failing(found)) == (1, {"partitions"})
    told = words(found, "partitions")
    assert "SLURM_EXTENDER_DEFAULT_PARTITION names nowhere" in told
    assert "the policy's rule all names gone: Slurm has the partitions main" in told


def test_preemption_that_would_evict_fails_the_check(
    preflight: Preflight, cluster: Cluster, tmp_path: Path
) -> None:
    document = yaml.safe_load(
        scheduler_configuration("kube-scheduler", Layout(cluster.directory)).read_text()
    )
    for profile in document["profiles"]:
        profile.pop("plugins", None)
    del document["extenders"][0]["preemptVerb"]
    file = tmp_path / "kube-scheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    status, found = preflight(SCHEDULER_CONFIG_FILE=str(file))
    assert (status, failing(found)) == (1, {"preemption", "scheduler"})
    assert "has no preemptVerb: kube-scheduler would evict" in words(found, "preemption")


@pytest.mark.one_release("The fault is in Kubernetes")
def test_missing_access_to_kubernetes_fails_the_check(
    preflight: Preflight, tmp_path: Path, cluster: Cluster
) -> None:
    status, found = preflight(KUBECONFIG=str(tmp_path / "none"))
    assert (status, failing(found)) == (1, {"kubernetes-release"})
    assert "no access to kube-apiserver" in words(found, "kubernetes-release")
    scheduler = kubeconfig_of("system:kube-scheduler", Layout(cluster.directory))
    status, found = preflight(KUBECONFIG=str(scheduler))
    assert "system:kube-scheduler may not" in words(found, "rights", "WARN")
    assert "may not list" in words(found, "webhooks", "SKIPPED").replace("cannot", "may not")


@pytest.mark.one_release("The fault is in a setting")
def test_invalid_settings_and_files_end_preflight_with_status_2(
    preflight: Preflight, tmp_path: Path
) -> None:
    assert preflight(tmp_path / "none") == (2, {})
    assert preflight(POLICY_FILE=str(tmp_path / "none")) == (2, {})
    with pytest.raises(SystemExit) as end:
        preflight(KILL_WAIT_S="none")
    assert end.value.code == 2


@pytest.mark.one_release("The fault is in Kubernetes")
def test_file_of_kube_scheduler_may_be_elsewhere(
    preflight: Preflight, tmp_path: Path, cluster: Cluster
) -> None:
    status, found = preflight(SCHEDULER_CONFIG_FILE=str(tmp_path / "none"))
    assert status == 0
    assert "cannot be read" in words(found, "scheduler", "SKIPPED")
    file = scheduler_configuration("kube-scheduler", Layout(cluster.directory))
    _, found = preflight(file, SCHEDULER_CONFIG_FILE=str(tmp_path / "none"))
    assert found["scheduler"]["verdict"] == "PASS"


# -- faults of Kubernetes


@pytest.mark.one_release("The fault is in Kubernetes")
def test_missing_webhooks_fail_the_check(preflight: Preflight, cluster: Cluster) -> None:
    with deleted(cluster, "mutatingwebhookconfiguration", "slurm-extender"):
        status, found = preflight()
    assert (status, failing(found)) == (1, {"webhooks"})
    assert "without the extender's gate" in words(found, "webhooks")


CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


@contextmanager
def webhooks_left(cluster: Cluster, service: dict[str, Any]) -> Iterator[None]:
    """Creates the webhook configurations that a removed installation has left."""
    for kind in CONFIGURATIONS:
        left = json.loads(cluster.kubectl("get", kind, "slurm-extender", "-o", "json").stdout)
        left["metadata"] = {"name": "first", "labels": left["metadata"]["labels"]}
        for webhook in left["webhooks"]:
            del webhook["clientConfig"]["url"]
            webhook["clientConfig"]["service"] = service
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(left))
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", *(f"{kind}/first" for kind in CONFIGURATIONS))


@pytest.mark.one_release("The fault is in Kubernetes")
def test_webhooks_of_a_removed_installation_fail_the_check(
    preflight: Preflight, cluster: Cluster
) -> None:
    with webhooks_left(cluster, {"namespace": "gone", "name": "first", "path": "/mutate"}):
        for namespace in ("kube-system", "another"):  # with and without a second installation
            status, found = preflight(NAMESPACE=namespace)
            assert (status, failing(found)) == (1, {"webhook-answers"})
            assert "Service gone/first does not exist" in words(found, "webhook-answers")
        fix = found["webhook-answers"]["fix"].split("`")[1]
        cluster.kubectl(*fix.split()[1:])
        assert preflight()[0] == 0


@pytest.mark.one_release("The fault is in Kubernetes")
def test_webhooks_of_a_service_without_pods_fail_the_check(
    preflight: Preflight, cluster: Cluster
) -> None:
    cluster.kubectl("create", "service", "clusterip", "no-pod", "--tcp=443:8443")
    try:
        with webhooks_left(cluster, {"namespace": "default", "name": "no-pod", "path": "/mutate"}):
            status, found = preflight()
    finally:
        cluster.kubectl("delete", "service", "no-pod")
    assert (status, failing(found)) == (1, {"webhook-answers"})
    assert "no endpoints available" in words(found, "webhook-answers")


@pytest.mark.one_release("The fault is in Kubernetes")
def test_missing_annotation_policy_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    with deleted(cluster, "validatingadmissionpolicy", "slurm-extender-bookkeeping"):
        status, found = preflight()
    assert (status, failing(found)) == (1, {"policies"})
    assert "all accounts that may change a Pod" in words(found, "policies")


@pytest.mark.one_release("The fault is in Kubernetes")
def test_release_in_another_namespace_is_a_warning(preflight: Preflight, cluster: Cluster) -> None:
    with deleted(cluster, "mutatingwebhookconfiguration", "slurm-extender"):
        status, found = preflight(NAMESPACE="another")
    assert (status, failing(found)) == (0, set())
    release = words(found, "one-release", "WARN")
    assert "kube-system/slurm-extender (slurm-extender-bookkeeping), in another namespace" in release
    assert "nothing is installed yet" in words(found, "webhooks", "SKIPPED")
    assert found["install-rights"]["verdict"] == "PASS"


@contextmanager
def node(cluster: Cluster, capacity: dict[str, str]) -> Iterator[None]:
    """Changes the capacity of node-1 until the block ends."""
    kept = json.loads(cluster.kubectl("get", "node", "node-1", "-o", "json").stdout)["status"]
    before = {kind: {key: kept[kind][key] for key in capacity} for kind in ("capacity", "allocatable")}

    def patch(status: Any) -> None:
        told = json.dumps({"status": status})
        cluster.kubectl("patch", "node", "node-1", "--subresource=status", "-p", told)

    patch({"capacity": capacity, "allocatable": capacity})
    try:
        yield
    finally:
        patch(before)


def test_node_with_less_than_slurm_gives_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    with node(cluster, {"nvidia.com/gpu": "3", "memory": "15Gi", "cpu": "4"}):
        status, found = preflight()
    assert (status, failing(found)) == (1, {"gres", "cpus"})
    assert "Node node-1 has 3 nvidia.com/gpu, but Slurm node node-1 has 4 gpu" in words(found, "gres")
    assert "node-1: Slurm's 8 CPUs" in words(found, "cpus")
    assert "Slurm gives 16000 MiB of node node-1, but only 15360" in words(found, "memory", "WARN")


@pytest.mark.one_release("The fault is in Kubernetes")
def test_gpus_not_counted_by_the_kubelet_fail_the_check(preflight: Preflight, cluster: Cluster) -> None:
    """Such a Node may still offer its GPUs by Dynamic Resource Allocation, and preflight mentions
    this."""
    with node(cluster, {"nvidia.com/gpu": "0"}):
        status, found = preflight()
    assert (status, failing(found)) == (1, {"gres"})
    told = words(found, "gres")
    assert "Node node-1 has no allocatable nvidia.com/gpu, but Slurm node node-1 has 4 gpu" in told
    assert NO_DRA in told


@contextmanager
def device_plugin(cluster: Cluster) -> Iterator[None]:
    """Lets node-1 look like a Node with a node agent and with NVIDIA's device plugin. The names are
    those of the GPU Operator."""
    folder = {"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    container = {"name": "nvidia-device-plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}
    spec = {"nodeName": "node-1", "containers": [container], "volumes": [folder]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plugin"}, "spec": spec}

    def tell(condition: dict[str, str]) -> None:
        patch = json.dumps({"status": {"conditions": [{"type": DEVICE_PROBLEM} | condition]}})
        cluster.kubectl("patch", "node", "node-1", "--subresource=status", "-p", patch)

    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    tell({"status": "False", "lastHeartbeatTime": timestamp(datetime.now(UTC))})
    try:
        yield
    finally:
        tell({"$patch": "delete"})
        cluster.kubectl("delete", "pod", "plugin", "--grace-period=1")


@pytest.mark.one_release("The fault is in Kubernetes")
def test_device_plugin_beside_a_node_agent_fails_the_check(
    preflight: Preflight, cluster: Cluster
) -> None:
    with device_plugin(cluster):
        status, found = preflight()
    assert (status, failing(found)) == (1, {"device-plugins"})
    assert "default/plugin on Node node-1" in words(found, "device-plugins")
    assert "nvidia.com/gpu.deploy.device-plugin=false" in found["device-plugins"]["fix"]


def test_node_with_an_unknown_slurm_name_is_a_warning(preflight: Preflight, cluster: Cluster) -> None:
    cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}=elsewhere")
    try:
        status, found = preflight()
        told = words(found, "node-names", "WARN")
        assert "Nodes that Slurm does not know: node-1" in told
        assert "Slurm nodes without a Node: node-1" in told
        cluster.kubectl("label", "--overwrite", "node", "node-1", f"{NODE_NAME_LABEL}=node-2")
        status, found = preflight()
        assert status == 0  # node-2 has this name, and keeps its Slurm node
        assert "name Slurm's node node-2" in words(found, "node-names", "WARN")
    finally:
        cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}-")


# -- faults of Slurm


@contextmanager
def slurm_conf(cluster: Cluster, **changed: str) -> Iterator[None]:
    """Changes slurm.conf until the block ends."""
    conf = Layout(cluster.directory).slurm / "etc/slurm.conf"
    before = conf.read_text()
    kept = [line for line in before.splitlines() if line.partition("=")[0] not in changed]
    conf.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in changed.items()), ""]))
    try:
        cluster.restart("slurmctld")
        yield
    finally:
        conf.write_text(before)
        cluster.restart("slurmctld")


def test_unsuitable_slurm_conf_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    if not tells(cluster):
        status, found = preflight(KILL_WAIT_S="12", DEFAULT_GRACE="refuse")
        assert (status, failing(found)) == (1, {"kill-wait"})
        assert "SLURM_EXTENDER_KILL_WAIT_S is 12 s" in words(found, "kill-wait")
        return
    changed = {"KillWait": "12", "MaxJobId": "67043328", "MessageTimeout": "20"}
    with slurm_conf(cluster, **changed, SchedulerParameters="defer"):
        status, found = preflight(DEFAULT_GRACE="refuse")
        assert (status, failing(found)) == (1, {"kill-wait"})
        assert "KillWait is 12 s: a Pod's grace may be 6 s" in words(found, "kill-wait")
        assert "MaxJobId is 67043328" in words(found, "job-ids", "WARN")
        assert "MessageTimeout is 20 s" in words(found, "timeouts", "WARN")
        assert "defer" in words(found, "scheduler-parameters", "WARN")


def test_slurm_without_counted_memory_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    if not tells(cluster):
        status, found = preflight(SELECT_TYPE_PARAMETERS="CR_Core")
        assert (status, failing(found)) == (1, {MEMORY_CHECK})
        assert "SelectTypeParameters is CR_Core, without memory" in words(found, MEMORY_CHECK)
        return
    with slurm_conf(cluster, SelectTypeParameters="CR_Core"):
        status, found = preflight()
        assert (status, failing(found)) == (1, {MEMORY_CHECK})
        assert "SelectTypeParameters is CR_CORE, without memory" in words(found, MEMORY_CHECK)
        eventually(lambda: problems(cluster) == [MEMORY], "the problem is reported")
    eventually(lambda: problems(cluster) == [], "the problem is over")


def test_silent_slurmctld_fails_the_check(preflight: Preflight, cluster: Cluster) -> None:
    cluster.stop("slurmctld")
    try:
        status, found = preflight()
    finally:
        cluster.start("slurmctld")
    assert (status, failing(found)) == (1, {"slurm-api"})
    assert "slurmctld does not answer" in words(found, "slurm-api")
