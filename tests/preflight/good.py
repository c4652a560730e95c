"""Facts about an installation without problems, in the form that preflight reads, and functions that
change a fact."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from extender.execution.release_check import Release
from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.preflight.facts import (
    Address,
    Answer,
    Called,
    Facts,
    KubernetesFacts,
    SlurmFacts,
    Token,
    Webhook,
)
from extender.settings import Settings
from slurm_client.in_memory import node, partition
from slurm_client.in_memory.slurm import DEFAULTS
from slurm_client.server import Capabilities
from tests.kube_scheduler.test_configuration import configuration

NOW = 1_800_000_000.0
DAY = 24 * 3600.0
SETTINGS = Settings(slurm_token_file=Path("token"), hooks_token_file=Path("hooks"), namespace="slurm")
ACCOUNT = {"username": "system:serviceaccount:slurm:slurm-extender"}
ADMINISTRATOR = {"username": "admin", "groups": ["system:masters"]}
MACHINE = {"cpu": "16", "memory": "64000Mi", "nvidia.com/gpu": "8"}
EXTERNAL = Capabilities("v0.0.45", "26.05.5", "cluster", external_jobs=True, configuration=True)
CONFIGURATION = replace(
    DEFAULTS,
    kill_wait_s=40,
    prologs=("/etc/slurm/slurm-extender-gate",),
    prolog_flags=("Alloc",),
    slurmctld_epilogs=("/etc/slurm/slurm-extender-hook",),
    scheduler_parameters=("nohold_on_prolog_fail", "bf_interval=5"),
)


def kubernetes_node(
    name: str = "n1",
    capacity: Mapping[str, str] = MACHINE,
    *,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    runtime: str = "containerd://2.1.4",
    conditions: tuple[Mapping[str, str], ...] = (),
) -> dict[str, Any]:
    status = {
        "capacity": dict(capacity),
        "allocatable": dict(capacity if allocatable is None else allocatable),
        "nodeInfo": {"containerRuntimeVersion": runtime},
        "conditions": [dict(each) for each in conditions],
    }
    return {"metadata": {"name": name, "labels": dict(labels or {})}, "status": status}


def condition(status: str, message: str = "") -> dict[str, str]:
    return {"type": "slurm-extender.io/DeviceProblem", "status": status, "message": message}


def webhook(
    service: str = "slurm/slurm-extender",
    name: str = "pods.slurm-extender.io",
    *,
    kind: str = "mutating",
    required: bool = True,
    authority: str = "x",
) -> Webhook:
    namespace, _, of = service.partition("/")
    configuration = f"{kind}webhookconfiguration/{of}"
    address = Address("", namespace, of)
    return Webhook(name, configuration, address, "/mutate", authority, required)


ANSWERS = Called(Answer.YES, "answers")
NO_SERVICE = Called(Answer.NO_SERVICE, "does not exist")

RELEASE = Release("slurm", "slurm-extender", "slurm-extender-bookkeeping")
KUBERNETES = KubernetesFacts(
    release="v1.37.2",
    account=ACCOUNT,
    admission_kinds=frozenset({"validatingadmissionpolicies"}),
    denied=(),
    cannot_install=(),
    nodes=(kubernetes_node(conditions=(condition("False"),)),),
    device_plugins={},
    webhooks={webhook(): ANSWERS},
    policies=("slurm-extender-bookkeeping", "slurm-extender-resize"),
    releases=(RELEASE,),
    lease={"metadata": {"name": "slurm-extender"}},
)
SLURM = SlurmFacts(
    capabilities=EXTERNAL,
    token=Token("slurm", NOW + 30 * DAY),
    accepted=True,
    privileged=True,
    configuration=CONFIGURATION,
    nodes=(node("n1", gres="gpu:h100:8"),),
    partitions=(partition("main", ["n1"], default=True, max_time_minutes=1440),),
    newest_job_id=100,
    waiting_jobs=0,
)
GOOD = Facts(
    settings=SETTINGS,
    kubernetes=KUBERNETES,
    slurm=SLURM,
    scheduler=configuration(),
    variables={},
    now=NOW,
    asked_partitions={"main": "SLURM_EXTENDER_DEFAULT_PARTITION"},
)


def kubernetes(**changes: Any) -> Facts:
    return replace(GOOD, kubernetes=replace(KUBERNETES, **changes))


def slurm(**changes: Any) -> Facts:
    return replace(GOOD, slurm=replace(SLURM, **changes))


def conf(**changes: Any) -> Facts:
    """Returns the facts with changed settings of slurm.conf."""
    return slurm(configuration=replace(CONFIGURATION, **changes))


def settings(facts: Facts = GOOD, **changes: Any) -> Facts:
    fields = {name: getattr(SETTINGS, name) for name in SETTINGS.model_fields_set}
    return replace(facts, settings=Settings(**(fields | changes)))


def scheduler(found: SchedulerConfiguration) -> Facts:
    return replace(GOOD, scheduler=found)
