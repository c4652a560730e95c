"""Command `python -m tests.conformance`. Its exit status is 1 if a spec passes without the extender and
not with the extender."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report, Stopwatch
from deploy.local.spec import ClusterSpec
from tests.conformance.comparison import Comparison, Outcome
from tests.conformance.suite import RELEASE, program, reasons, run
from tests.end_to_end.pod_groups import GATES

_BUILD = CHECKOUT / "build"


def main(
    report: Annotated[Path, typer.Option(help="Where the results go.")] = _BUILD / "conformance.json",
    directory: Annotated[Path, typer.Option(help="Of the clusters.")] = _BUILD / "conformance",
    pod_groups: Annotated[bool, typer.Option(help="Run the specs of PodGroups instead.")] = False,
) -> None:
    """Run Kubernetes' specs of scheduling on two clusters: without the extender, then with the
    extender."""
    say = Stopwatch(_say)
    specs, gates = program(say), GATES if pod_groups else ()
    without = _run(specs, _spec(gates, extender=False), directory / "without", say)
    with_extender = _run(specs, _spec(gates, extender=True), directory / "with", say)
    found = Comparison(without, with_extender, reasons(without))
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps({"kubernetes": RELEASE} | found.as_json(), indent=1) + "\n")
    for each in found.as_json()["specs"]:
        say(f"{each['without']:>8} without, {each['with']:>8} with: {each['spec']}")
    if found.failed:
        say(f"VIOLATED; the logs are in {directory}")
        raise typer.Exit(1)


def _spec(gates: tuple[str, ...], *, extender: bool) -> ClusterSpec:
    return ClusterSpec(kubernetes_release=RELEASE, extender=extender, feature_gates=gates)


def _run(specs: Path, spec: ClusterSpec, directory: Path, say: Report) -> Mapping[str, Outcome]:
    say(f"the specs {directory.name} the extender")
    with Cluster.up(spec, directory, report=say) as cluster:
        return run(specs, cluster, say)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - for whoever runs it


if __name__ == "__main__":
    typer.run(main)
