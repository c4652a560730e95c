"""The Kubernetes components and the extender: how each is started, and how its readiness is checked."""

import os
import shlex
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from deploy.local.components import Component, accepts_connections, answers
from deploy.local.kubernetes.config import (
    EXTENDER_LISTENERS,
    admin_token,
    api_server_url,
    extender_kubeconfig,
    kubeconfig_of,
    scheduler_configuration,
)
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.links import target_port
from deploy.local.programs.cache import cache_folder
from deploy.local.rendering import render
from deploy.local.spec import ClusterSpec

# Controllers that create Pods, and controllers that let deleted objects disappear. An idle controller
# costs nothing. The node-lifecycle controller does not run, so Nodes need no heartbeats, and no
# component sends heartbeats. No controller creates volumes, because tests create their volumes.
_CONTROLLERS: Final = (
    *("cronjob-controller", "daemonset-controller", "deployment-controller"),
    *("garbage-collector-controller", "job-controller", "namespace-controller"),
    *("persistentvolume-binder-controller", "persistentvolume-protection-controller"),
    *("persistentvolumeclaim-protection-controller", "pod-garbage-collector-controller"),
    *("replicaset-controller", "statefulset-controller"),
)
# Further controllers, for Services and for Pods with a ServiceAccount.
_CONTROLLERS_FOR_PODS: Final = (
    "endpointslice-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
EXTENDER_PROGRAM: Final = "slurm-extender"
# Duration of the Lease by which the extenders elect their leader.
LEASE_DURATION_S: Final = 5
_DRAIN_S: Final = 2
_OPEN_PATHS: Final = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics"


def store_components(
    spec: ClusterSpec, binaries: Mapping[str, str], ports: dict[str, int], layout: Layout
) -> list[Component]:
    """Returns etcd and the API server. Both can start together, because the API server waits for
    etcd."""
    return [_etcd(binaries["etcd"], ports, layout), _api_server(spec, binaries, ports, layout)]


def control_components(
    spec: ClusterSpec, binaries: Mapping[str, str], ports: dict[str, int], layout: Layout
) -> list[Component]:
    """Returns the components that need a running API server at their start."""
    scheduler = binaries["kube-scheduler"]
    return [
        _controller_manager(spec, binaries["kube-controller-manager"], ports, layout),
        *(
            _scheduler(name, spec, scheduler, ports, layout)
            for name in (*spec.scheduler_names, *spec.other_scheduler_names)
        ),
        _kwok(spec, binaries["kwok"], ports, layout),
    ]


def extender_components(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> list[Component]:
    return [_extender(name, spec, ports, layout) for name in spec.extender_names]


def _extender(name: str, spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> Component:
    health = ports[f"{name}-health"]
    # No component here needs this machine's CA certificates. With this variable, Python loads only the
    # cluster's CA certificate, which takes less time.
    authorities = {"SSL_CERT_FILE": str(layout.kubernetes / "ca.crt")}
    own = extender_environment(name, spec, ports, layout)
    return Component(
        name=name,
        argv=spec.extender_argv or (sys.executable, "-m", "extender", "serve"),
        env={**os.environ, **bytecode_cache(), **authorities, **own},
        is_ready=lambda: answers(f"http://127.0.0.1:{health}/readyz"),
    )


def bytecode_cache() -> dict[str, str]:
    """Returns the environment variables by which Python keeps its bytecode in the cache folder. Without
    bytecode, imports take 3 s of each start, and tests start the extender often."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode")}


def extender_environment(
    name: str, spec: ClusterSpec, ports: dict[str, int], layout: Layout
) -> dict[str, str]:
    """Returns the settings with which the named extender serves this cluster."""
    settings = {
        "KUBECONFIG": extender_kubeconfig(name, layout),
        "SLURMRESTD_URL": f"http://127.0.0.1:{target_port(spec, ports, name, 'slurmrestd')}",
        "SLURM_TOKEN_FILE": layout.token_file,
        "HOOKS_TOKEN_FILE": layout.hooks_token_file,
        "POLICY_FILE": layout.policy_file,
        "SCHEDULER_CONFIG_FILE": scheduler_configuration(_beside(name, spec), layout),
        **({"POOLS_FILE": layout.pools_file} if spec.pools else {}),
        "LISTEN_ADDRESS": "127.0.0.1",
        **_certificate_settings(spec, layout),
        **_caller_settings(spec, layout),
        **{f"{each.upper()}_PORT": ports[f"{name}-{each}"] for each in EXTENDER_LISTENERS},
        "REPLICA": name,
        "NAMESPACE": "kube-system",
        "SCOPE": ",".join(spec.namespaces) or "cluster",
        "POD_SELECTOR": ",".join(f"{key}={value}" for key, value in spec.pod_labels),
        "SHARED_GPUS": "allow",  # no program computes on these GPUs
        "LEASE_DURATION_S": LEASE_DURATION_S,
        "DRAIN_S": _DRAIN_S if spec.replicas > 1 else 0,  # only if another replica can take over
        # Slurm's settings that slurmrestd 24.11 does not report.
        "DEFAULT_PARTITION": "main",
        "PREEMPT_TYPE": spec.preempt_type,
        "KILL_WAIT_S": spec.kill_wait,
        **dict(spec.extender_settings),
    }
    return {f"SLURM_EXTENDER_{name}": str(value) for name, value in settings.items()}


def _beside(extender: str, spec: ClusterSpec) -> str:
    """Returns the name of the kube-scheduler that calls this extender."""
    return dict(zip(spec.extender_names, spec.scheduler_names, strict=True))[extender]


def write_extender_program(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Writes a `slurm-extender` with the settings of the cluster's extender, for users. The program
    calls kube-apiserver as the administrator, because `check` creates Pods, and the extender's user may
    not create Pods."""
    settings = extender_environment(spec.extender_names[0], spec, ports, layout)
    settings["SLURM_EXTENDER_KUBECONFIG"] = str(layout.kubeconfig)
    command = layout.bin / EXTENDER_PROGRAM
    command.write_text(
        render(
            f"{EXTENDER_PROGRAM}.sh.j2",
            environment={name: shlex.quote(value) for name, value in settings.items()},
            checkout=shlex.quote(str(CHECKOUT)),
            python=shlex.quote(sys.executable),
        )
    )
    command.chmod(0o755)


def _certificate_settings(spec: ClusterSpec, layout: Layout) -> dict[str, object]:
    if spec.self_signed:
        return {"TLS_SECRET": "slurm-extender-webhooks", "TLS_NAMES": "127.0.0.1"}
    folder = layout.kubernetes
    return {"TLS_CERT_FILE": folder / "extender.crt", "TLS_KEY_FILE": folder / "extender.key"}


def _caller_settings(spec: ClusterSpec, layout: Layout) -> dict[str, object]:
    ca = layout.kubernetes / "callers.crt"
    names = ("SCHEDULER_CLIENT_CA_FILE", "ADMISSION_CLIENT_CA_FILE")
    return dict.fromkeys(names, ca) if spec.client_certificates else {}


def api_client(ports: dict[str, int], layout: Layout) -> httpx.Client:
    """Returns a client of the API server as the administrator. The caller closes the client."""
    return httpx.Client(
        base_url=api_server_url(ports),
        headers={"Authorization": f"Bearer {admin_token(layout)}"},
        trust_env=False,
        verify=ssl.create_default_context(cafile=str(layout.kubernetes / "ca.crt")),
        timeout=10.0,
    )


def _etcd(binary: str, ports: dict[str, int], layout: Layout) -> Component:
    client = f"http://127.0.0.1:{ports['etcd']}"
    peer = f"http://127.0.0.1:{ports['etcd-peer']}"
    return Component(
        name="etcd",
        argv=(
            binary,
            "--name=local",
            f"--data-dir={layout.kubernetes / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=local={peer}",
            "--unsafe-no-fsync",  # the data need not outlive this cluster
            "--log-level=warn",
        ),
        is_ready=lambda: answers(f"{client}/health"),
    )


def _api_server(
    spec: ClusterSpec, binaries: Mapping[str, str], ports: dict[str, int], layout: Layout
) -> Component:
    folder = layout.kubernetes
    shown = [f"--admission-control-config-file={folder / 'admission.yaml'}"]
    # Admission plugins to disable. No controller removes the taint that TaintNodesByCondition adds to a
    # new Node. Without `in_pods`, no controller creates the accounts for the plugin ServiceAccount.
    without = ["TaintNodesByCondition", *([] if spec.in_pods else ["ServiceAccount"])]
    return Component(
        name="kube-apiserver",
        argv=(
            binaries["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports['kube-apiserver']}",
            f"--tls-cert-file={folder / 'kube-apiserver.crt'}",
            f"--tls-private-key-file={folder / 'kube-apiserver.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'service-account.key'}",
            f"--service-account-signing-key-file={folder / 'service-account.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--authorization-mode={'Node,' if spec.guest else ''}RBAC",
            "--allow-privileged",  # as in any cluster with a DaemonSet for the network
            f"--disable-admission-plugins={','.join(without)}",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            *(shown if spec.client_certificates else ()),
            *(_kubelet_options(folder) if spec.guest else ()),
            *(_pod_options(folder) if spec.in_pods else ()),
            *_feature_gates(spec),
            *(["--runtime-config=api/beta=true"] if spec.feature_gates else ()),
        ),
        is_ready=lambda: _api_server_serves(ports, layout),
    )


def _kubelet_options(folder: Path) -> tuple[str, ...]:
    """Returns kube-apiserver's options for the guest's kubelet: the kubelet's permissions, and how
    kube-apiserver reaches the kubelet by its name (guest_binds)."""
    return (
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=Hostname,InternalIP",
        f"--kubelet-client-certificate={folder / 'kube-apiserver.crt'}",
        f"--kubelet-client-key={folder / 'kube-apiserver.key'}",
    )


def _pod_options(folder: Path) -> tuple[str, ...]:
    """Returns kube-apiserver's options for webhooks in Pods. kube-apiserver calls the Pods' own
    addresses through the guest's gateway. The options for CAs are for a kube-scheduler in a Pod, which
    reads the CAs of its callers from kube-apiserver."""
    return (
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--requestheader-client-ca-file={folder / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--egress-selector-config-file={folder / 'egress.yaml'}",
        "--enable-aggregator-routing=true",
    )


def _api_server_serves(ports: dict[str, int], layout: Layout) -> bool:
    """Returns whether the API server is ready and the default namespace exists."""
    if not accepts_connections(ports["kube-apiserver"]):
        return False
    with api_client(ports, layout) as client:
        try:
            asked = [client.get(path) for path in ("/readyz", "/api/v1/namespaces/default")]
        except httpx.HTTPError:
            return False
    return all(answer.status_code == httpx.codes.OK for answer in asked)


def _controller_manager(
    spec: ClusterSpec, binary: str, ports: dict[str, int], layout: Layout
) -> Component:
    name = "kube-controller-manager"
    controllers = (*_CONTROLLERS, *(_CONTROLLERS_FOR_PODS if spec.in_pods else ()))
    return Component(
        name=name,
        argv=(
            binary,
            f"--kubeconfig={kubeconfig_of('system:' + name, layout)}",
            f"--controllers={','.join(controllers)}",
            f"--root-ca-file={layout.kubernetes / 'ca.crt'}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *_feature_gates(spec),
            *_serving(name, ports, layout),
        ),
        is_ready=lambda: answers(f"https://127.0.0.1:{ports[name]}/healthz"),
    )


def _scheduler(
    name: str, spec: ClusterSpec, binary: str, ports: dict[str, int], layout: Layout
) -> Component:
    return Component(
        name=name,
        argv=(
            binary,
            f"--config={scheduler_configuration(name, layout)}",
            "-v=2",
            *_feature_gates(spec),
            *_serving(name, ports, layout),
        ),
        is_ready=lambda: answers(f"https://127.0.0.1:{ports[name]}/readyz"),
    )


def _feature_gates(spec: ClusterSpec) -> tuple[str, ...]:
    opened = ",".join(f"{gate}=true" for gate in spec.feature_gates)
    return (f"--feature-gates={opened}",) if opened else ()


def _serving(name: str, ports: dict[str, int], layout: Layout) -> tuple[str, ...]:
    certificates: Path = layout.kubernetes / f"{name}-certificates"
    return (
        "--bind-address=127.0.0.1",
        f"--secure-port={ports[name]}",
        f"--cert-dir={certificates}",
        _OPEN_PATHS,
    )


def _kwok(spec: ClusterSpec, binary: str, ports: dict[str, int], layout: Layout) -> Component:
    # Without a guest, kwok manages all Nodes: for a subset, kwok would list and watch the Pods of each
    # Node separately.
    ours = "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"
    address = f"127.0.0.1:{ports['kwok']}"
    return Component(
        name="kwok",
        argv=(
            binary,
            f"--kubeconfig={kubeconfig_of('kwok', layout)}",
            f"--config={layout.kubernetes / 'kwok.yaml'}",
            ours if spec.guest else "--manage-all-nodes",
            "--node-lease-duration-seconds=0",
            "--cidr=10.128.0.0/9",
            f"--server-address={address}",
        ),
        is_ready=lambda: answers(f"http://{address}/healthz"),
    )
