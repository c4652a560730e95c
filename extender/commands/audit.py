"""`slurm-extender audit`: prints all differences between Slurm and Kubernetes, with cause and fix.

The command uses the extender's settings and changes nothing."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from extender.audit.compare import Finding
from extender.audit.reader import Reader
from extender.commands.systems import kubernetes_of, slurm_of
from extender.explain.sentences import sentence
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pod_request.pod import Pod, parse_pod
from extender.settings import Settings
from kubernetes_client.errors import KubernetesError, NoCredentials
from kubernetes_client.protocol import Kubernetes
from service.command_line import Output
from service.health import Health
from service.logging import configure_logging
from service.settings import from_environment
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm

_COLUMNS = ("KIND", "POD", "JOB", "NODE", "MENDED BY")


def run(output: Output, settle: float) -> int:
    """Prints the differences that last for `settle` seconds. Returns the exit status: 0 if the
    systems agree, 1 if the systems differ, 2 if a system cannot be read."""
    settings = from_environment(Settings)
    configure_logging(settings.log_level)  # to standard error, because standard output has the result
    try:
        findings = asyncio.run(_audit(settings, settle))
    except (SlurmError, KubernetesError, NoCredentials) as error:
        print(f"a system cannot be read: {error}", file=sys.stderr)
        return 2
    _OUTPUTS[output](findings)
    return 1 if any(finding.kind.differs for finding in findings) else 0


async def _audit(settings: Settings, settle: float) -> tuple[Finding, ...]:
    """Reads Slurm and Kubernetes twice. Returns the differences that both readings show."""
    async with kubernetes_of(settings) as kubernetes, slurm_of(settings) as slurm:
        view = await _view(settings, kubernetes, slurm)
        config, nodes = settings.placement_config(view.cluster), SlurmNodes(slurm)
        reader = Reader(slurm, nodes, kubernetes, config, settings.translation)
        first = await reader.look(await _pods(settings, kubernetes), view)
        if not first:
            return ()
        await asyncio.sleep(settle)
        view = await _view(settings, kubernetes, slurm)
        second = await reader.look(await _pods(settings, kubernetes), view)
        return tuple(finding for finding in second if finding in first)


async def _view(settings: Settings, kubernetes: Kubernetes, slurm: Slurm) -> ClusterView:
    label, defaults = settings.node_name_label, settings.slurm_defaults
    return await ClusterViewUpdater(kubernetes, slurm, Health(), label, defaults).load()


async def _pods(settings: Settings, kubernetes: Kubernetes) -> tuple[Pod, ...]:
    translation = settings.translation
    listed = await kubernetes.list("pods", f"spec.schedulerName={translation.scheduler_name}")
    items: list[dict[str, Any]] = listed.get("items") or []
    return tuple(parse_pod(item, translation) for item in items if translation.manages(item))


def _tell_people(findings: Sequence[Finding]) -> None:
    if not findings:
        print("both systems agree")
        return
    rows = [_COLUMNS, *(_row(finding) for finding in findings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, finding in zip(rows, (None, *findings), strict=True):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        if finding is not None:
            print(f"  cause: {sentence(finding.cause)}")
            print(f"  fix:   {finding.fix}")


def _row(finding: Finding) -> tuple[str, ...]:
    by = "leader" if finding.mended else "person" if finding.kind.differs else "-"
    job = "-" if finding.job_id is None else str(finding.job_id)
    return finding.kind, finding.pod or "-", job, finding.node or "-", by


def _tell_programs(findings: Sequence[Finding]) -> None:
    entries = [
        {
            "kind": finding.kind,
            "differs": finding.kind.differs,
            "pod": finding.pod or None,
            "job": finding.job_id,
            "node": finding.node or None,
            "mended": finding.mended,
            "cause": sentence(finding.cause),
            "fix": finding.fix,
        }
        for finding in findings
    ]
    print(json.dumps({"findings": entries}, indent=2))


_OUTPUTS: dict[Output, Callable[[Sequence[Finding]], None]] = {
    Output.TABLE: _tell_people,
    Output.JSON: _tell_programs,
}
