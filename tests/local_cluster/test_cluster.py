"""Tests that local clusters of real components serve, and leave no processes or files behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import AlreadyRunningError, ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.spec import ClusterSpec
from tests.end_to_end import actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

SLURM_ALONE = ClusterSpec(nodes=1, kubernetes=False, extender=False)


def pod(name: str, **annotations: str) -> str:
    prefixed = {f"local.slurm-extender.io/{key}": value for key, value in annotations.items()}
    return json.dumps(actors.pod(name, gpus=1, own_annotations=prefixed, scheduler="default-scheduler"))


def pods(cluster: Cluster) -> dict[str, dict[str, Any]]:
    listed = json.loads(cluster.kubectl("get", "pods", "--output=json").stdout)
    return {each["metadata"]["name"]: each for each in listed["items"]}


def processes_in(namespace: str) -> set[int]:
    """Returns the ids of all processes in a PID namespace."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/pid"):
        try:
            if str(link.readlink()) == namespace:
                found.add(int(link.parts[2]))
        except OSError:  # the process has ended, or is a zombie
            continue
    return found


def namespace_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_pods_run_end_and_are_deleted(shared_cluster: Cluster) -> None:
    manifests = [
        pod("stays", **{"stop-after": "2"}),
        pod("succeeds", **{"run-for": "1"}),
        pod("fails", **{"run-for": "1", "exit-code": "3"}),
    ]
    for manifest in manifests:
        shared_cluster.kubectl("create", "--filename=-", stdin=manifest)
    wanted = {"stays": "Running", "succeeds": "Succeeded", "fails": "Failed"}

    def phases() -> dict[str, str]:
        return {name: each["status"]["phase"] for name, each in pods(shared_cluster).items()}

    eventually(lambda: phases() == wanted, within_s=20)
    names = [f"node-{number}" for number in range(1, 5)]
    assert all(each["spec"]["nodeName"] in names for each in pods(shared_cluster).values())

    shared_cluster.kubectl("delete", "pod", "--wait=false", *wanted)
    assert pods(shared_cluster)["stays"]["metadata"]["deletionTimestamp"]
    eventually(lambda: not pods(shared_cluster), within_s=20)


def test_a_pods_conditions_outlive_its_start(shared_cluster: Cluster) -> None:
    """The simulated kubelet must keep the conditions that other programs have written."""
    shared_cluster.kubectl("create", "--filename=-", stdin=pod("kept"))

    def conditions() -> set[str]:
        said = pods(shared_cluster)["kept"]["status"].get("conditions", ())
        return {each["type"] for each in said if each["status"] == "True"}

    eventually(lambda: conditions() >= {"PodScheduled", "Ready"}, within_s=20)
    shared_cluster.kubectl("delete", "pod", "kept")


def test_native_job_runs_as_its_user_with_the_requested_gpus(shared_cluster: Cluster) -> None:
    script = "#!/bin/bash\nid -un; pwd; echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l\n"
    shared_cluster.run_slurm("sbatch", "--gres=gpu:2", "--output=native.out", user="alice", stdin=script)
    output = shared_cluster.directory / "home/alice/native.out"
    eventually(lambda: output.exists() and output.read_text() == "alice\n/home/alice\n2\n", within_s=20)


def test_slurmrestd_serves_on_tcp_and_on_a_socket(shared_cluster: Cluster) -> None:
    token = shared_cluster.mint_token("alice", lifetime_s=60)
    headers = {"X-SLURM-USER-TOKEN": token}
    socket = httpx.HTTPTransport(uds=str(shared_cluster.slurmrestd_socket))
    path = "/slurm/v0.0.45/partition/main"
    for transport in (None, socket):
        with httpx.Client(base_url=shared_cluster.slurmrestd_url, transport=transport) as client:
            assert client.get(path, headers=headers).is_success
            assert not client.get(path, headers={"X-SLURM-USER-TOKEN": "x"}).is_success


def test_keys_and_tokens_are_for_root_only(shared_cluster: Cluster) -> None:
    assert shared_cluster.directory.stat().st_mode & 0o077 == 0
    for name in ("slurm.key", "jwt_hs256.key"):
        assert (shared_cluster.directory / "slurm/etc" / name).stat().st_mode & 0o077 == 0


def test_up_on_a_running_cluster_is_an_error(shared_cluster: Cluster) -> None:
    with pytest.raises(AlreadyRunningError, match="already running"):
        Cluster.up(SLURM_ALONE, shared_cluster.directory)
    assert shared_cluster.is_running("slurmctld")


def test_a_killed_component_can_be_started_again(tmp_path: Path) -> None:
    with Cluster.up(SLURM_ALONE, tmp_path) as cluster:
        first = cluster.pid("slurmctld")
        cluster.kill("slurmctld")
        assert not cluster.is_running("slurmctld")
        assert cluster.start("slurmctld") != first
        assert "UP" in cluster.run_slurm("scontrol", "ping").stdout
        assert cluster.stop("slurmctld") == 0


def test_error_quotes_a_component_that_dies_at_its_start(tmp_path: Path) -> None:
    with Cluster.up(SLURM_ALONE, tmp_path) as cluster:
        cluster.kill("slurmrestd")
        with pytest.raises(ClusterError, match=r"(?s)slurmrestd ended \(3\):.*no such luck"):
            cluster.start(
                "slurmrestd",
                argv=["sh", "-c", "echo $LAST_WORDS; exit 3"],
                env={"LAST_WORDS": "no such luck"},
            )


def test_a_paused_component_keeps_its_port_and_answers_nothing(tmp_path: Path) -> None:
    with Cluster.up(SLURM_ALONE, tmp_path) as cluster:
        cluster.pause("slurmrestd")
        with pytest.raises(httpx.TimeoutException):
            httpx.get(cluster.slurmrestd_url, timeout=0.3)
        cluster.resume("slurmrestd")
        assert httpx.get(cluster.slurmrestd_url).status_code == 401


def test_a_second_cluster_beside_the_first_shares_nothing(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    with Cluster.up(SLURM_ALONE, tmp_path) as second:
        assert not set(second.ports.values()) & set(shared_cluster.ports.values())
        nodes = second.run_slurm("sinfo", "--noheader", "--format=%D").stdout
        assert nodes.strip() == "1"
        namespace = namespace_of(second.pid("slurmctld"))
    assert not processes_in(namespace)
    assert (second.logs / "slurmctld.log").exists()
    assert shared_cluster.run_slurm("sinfo", "--noheader", "--format=%D").stdout.strip() == "4"


def test_kill_9_of_the_owner_leaves_no_process(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", dedent(_OWNER), str(tmp_path)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout as said:
        slurmctld = int(said.readline())
    namespace = namespace_of(slurmctld)

    def runs(command: str) -> bool:
        return any(command in command_line(pid) for pid in processes_in(namespace))

    eventually(lambda: runs("sleep 1234") and runs("slurmstepd"), within_s=20)

    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    eventually(lambda: not processes_in(namespace), within_s=5.0)
    eventually(lambda: not Cluster.attach(tmp_path).is_up(), within_s=5.0)
    with Cluster.up(SLURM_ALONE, tmp_path) as again:
        assert again.is_running("slurmctld")


_OWNER = """
    import sys, time
    from deploy.local.cluster import Cluster
    from deploy.local.spec import ClusterSpec

    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False)
    cluster = Cluster.up(spec, sys.argv[1])
    # It would survive everything but SIGKILL.
    script = "#!/bin/sh\\ntrap '' TERM INT HUP\\nsleep 1234\\n"
    cluster.run_slurm("sbatch", user="bob", stdin=script)
    print(cluster.pid("slurmctld"), flush=True)
    time.sleep(60)
"""


def deploy_local(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.local", *arguments, f"--directory={directory}"]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


def test_up_leaves_a_cluster_running_until_down(tmp_path: Path) -> None:
    up = deploy_local(tmp_path, "up", "--nodes=1", "--no-kubernetes")
    assert up.returncode == 0
    assert "the cluster is up" in up.stdout
    assert deploy_local(tmp_path, "up", "--nodes=1", "--no-kubernetes").returncode == 1
    status = deploy_local(tmp_path, "status")
    assert status.returncode == 0
    assert "slurmd-node-1" in status.stdout
    squeue = subprocess.run([tmp_path / "bin/squeue"], capture_output=True, text=True, check=False)
    assert "JOBID" in squeue.stdout
    assert deploy_local(tmp_path, "down").returncode == 0
    assert "not running" in deploy_local(tmp_path, "status").stdout
    squeue = subprocess.run([tmp_path / "bin/squeue"], capture_output=True, text=True, check=False)
    assert "is not running" in squeue.stderr


def test_command_line_shows_probes_and_restarts_a_component(tmp_path: Path) -> None:
    up = deploy_local(tmp_path, "up", "--nodes=1")
    try:
        assert up.returncode == 0, up.stdout
        probes = re.findall(r"http://127\.0\.0\.1:\d+/(?:readyz|metrics)", up.stdout)
        assert len(probes) == 2
        assert all(httpx.get(url).is_success for url in probes)
        assert all(url in deploy_local(tmp_path, "status").stdout for url in probes)
        before = Cluster.attach(tmp_path).pid("extender")
        assert deploy_local(tmp_path, "restart", "extender").returncode == 0
        assert Cluster.attach(tmp_path).pid("extender") != before
        unknown = deploy_local(tmp_path, "restart", "slurm")
        assert unknown.returncode == 1
        assert "no component slurm; the cluster has etcd," in unknown.stdout
        audit = subprocess.run(
            [tmp_path / "bin/slurm-extender", "audit", "--settle=1"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert audit.returncode == 0, audit.stderr
    finally:
        deploy_local(tmp_path, "down")


def test_alice_and_bob_have_an_account_with_accounting(tmp_path: Path) -> None:
    up = deploy_local(tmp_path, "up", "--nodes=1", "--no-kubernetes", "--accounting")
    try:
        assert up.returncode == 0, up.stdout
        cluster = Cluster.attach(tmp_path)
        for user in ("alice", "bob"):
            job = cluster.run_slurm("sbatch", "--parsable", "--wrap=true", user=user).stdout.strip()
            shown = cluster.run_slurm("squeue", "-h", f"--jobs={job}", "--states=all", "--format=%u %a")
            assert shown.stdout.split() == [user, "lab"]
    finally:
        deploy_local(tmp_path, "down")


def owner(kind: str, **spec: Any) -> str:
    """Returns the JSON of an object, such as a Deployment, whose controller creates Pods."""
    group = "batch/v1" if kind == "CronJob" else "apps/v1"
    return json.dumps({"apiVersion": group, "kind": kind, "metadata": {"name": "made"}, "spec": spec})


def test_workload_controllers_create_pods(shared_cluster: Cluster) -> None:
    container = json.loads(pod("unnamed"))["spec"]["containers"][0]
    container["resources"] = {}
    spec = {"containers": [container]}
    of_apps: dict[str, dict[str, Any]] = {
        kind: {
            "selector": {"matchLabels": {"of": kind}},
            "template": {"metadata": {"labels": {"of": kind}}, "spec": spec},
        }
        for kind in ("StatefulSet", "DaemonSet")
    }
    job = {"spec": {**spec, "restartPolicy": "Never"}, "metadata": {"labels": {"of": "CronJob"}}}
    of_batch = {"schedule": "@every 1s", "jobTemplate": {"spec": {"template": job}}}
    made = {**of_apps, "CronJob": of_batch}

    def owners() -> set[str]:
        listed = (each["metadata"].get("labels") or {} for each in pods(shared_cluster).values())
        return {labels["of"] for labels in listed if "of" in labels}

    try:
        for kind, given in made.items():
            shared_cluster.kubectl("create", "--filename=-", stdin=owner(kind, **given))
        eventually(lambda: owners() == made.keys(), within_s=75)
    finally:
        for kind in made:
            shared_cluster.kubectl("delete", kind, "made")
        eventually(lambda: not owners(), within_s=20)


def test_a_claim_that_is_deleted_is_gone_once_no_pod_uses_it(shared_cluster: Cluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    shared_cluster.kubectl("create", "--filename=-", stdin=json.dumps(claim))
    shared_cluster.kubectl("delete", "pvc", "data", "--timeout=20s")
