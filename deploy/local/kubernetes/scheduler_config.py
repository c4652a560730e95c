"""Makes the configurations of the kube-schedulers from the chart's configurations. Adds local ports,
files and leader election, and the changes for tests."""

from pathlib import Path
from typing import Any, Final

import yaml

from deploy.local.chart import RELEASE, Rendered
from deploy.local.layout import Layout
from deploy.local.spec import ADMISSION_VERBS, EXTENDER_VERBS, ClusterSpec

_OURS: Final = "slurm-scheduler"


def configured(
    chart: Rendered, spec: ClusterSpec, port: int | None, layout: Layout, *, others: bool = False
) -> str:
    """Returns the configuration of a kube-scheduler that calls the extender at `port`. If `port` is
    None, the kube-scheduler calls no extender. With `others`, returns the configuration of the
    kube-scheduler for unmanaged Pods (docs/concepts/scope.md shows its calls)."""
    key = "others.yaml" if others else "config.yaml"
    text = chart.find("ConfigMap", f"{RELEASE}-kube-scheduler")["data"][key]
    configuration: dict[str, Any] = yaml.safe_load(text)
    configuration["leaderElection"] = _leader_election(spec, others=others)
    kubeconfig = layout.kubernetes / "kube-scheduler.kubeconfig"
    configuration["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000}
    for profile in configuration["profiles"]:
        if profile["schedulerName"] == _OURS:
            _vary(profile, spec)
    if port is None:
        del configuration["extenders"]
    else:
        for extender in configuration["extenders"]:
            _reach(extender, port, layout.kubernetes if spec.client_certificates else None)
            if others or not spec.own_scheduler:
                extender["ignorable"] = spec.ignorable
            if not others:
                _ask_less(extender, spec)
        entries = configuration["extenders"]
        configuration["extenders"] = [each for each in entries if any("Verb" in key for key in each)]
    return yaml.safe_dump(configuration, sort_keys=False)


def _leader_election(spec: ClusterSpec, *, others: bool) -> dict[str, Any]:
    if others or spec.replicas == 1:
        return {"leaderElect": False}
    return {"leaderElect": True, "leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s"}


def _vary(profile: dict[str, Any], spec: ClusterSpec) -> None:
    profile["percentageOfNodesToScore"] = spec.percentage_of_nodes_to_score
    if spec.default_preemption:
        del profile["plugins"]


def _reach(extender: dict[str, Any], port: int, certificates: Path | None) -> None:
    scheme = "http" if certificates is None else "https"
    extender["urlPrefix"] = f"{scheme}://127.0.0.1:{port}/scheduler"
    if certificates is not None:
        files = {"caFile": "ca.crt", "certFile": "caller.crt", "keyFile": "caller.key"}
        tls = {key: str(certificates / name) for key, name in files.items()}
        extender.update(enableHTTPS=True, tlsConfig=tls)


def _ask_less(extender: dict[str, Any], spec: ClusterSpec) -> None:
    """Removes the verbs that kube-scheduler does not call in this cluster."""
    for verb in {*EXTENDER_VERBS} - {*ADMISSION_VERBS, *spec.extender_verbs}:
        extender.pop(f"{verb}Verb", None)
