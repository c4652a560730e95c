"""Tests of running and comparing Kubernetes' specs. The specs themselves run in `make conformance`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.local.programs import kubernetes_binaries
from tests.conformance.comparison import SIG, Comparison, Outcome, outcomes
from tests.conformance.suite import POD_GROUPS, RELEASE, SKIPPED, SOURCES, arguments, reasons

PASSED, FAILED, SKIPPED_IT = Outcome("passed"), Outcome("failed"), Outcome("skipped")


def spec(name: str, state: str = "passed", **given: Any) -> dict[str, Any]:
    """Returns a spec in the form of Ginkgo's report (types.SpecReport)."""
    texts = {"ContainerHierarchyTexts": [f"{SIG} SchedulerPreemption [Serial]"], "LeafNodeText": name}
    return texts | {"LeafNodeType": "It", "State": state, "RunTime": 1_260_000_000} | given


def test_specs_of_this_sig_are_read_with_their_outcomes() -> None:
    other = spec("of another") | {"ContainerHierarchyTexts": ["[sig-node] Pods"]}
    before = spec("[BeforeSuite]") | {"LeafNodeType": "SynchronizedBeforeSuite"}
    before["ContainerHierarchyTexts"] = None
    failed = spec("fails", "failed", Failure={"Message": "no candidate node for preemption"})
    suites: list[dict[str, Any]] = [
        {"SpecReports": [before, other, spec("works"), failed]},
        {"SpecReports": None},
    ]
    assert outcomes(suites) == {
        f"{SIG} SchedulerPreemption [Serial] works": Outcome("passed", 1.3),
        f"{SIG} SchedulerPreemption [Serial] fails": Outcome(
            "failed", 1.3, "no candidate node for preemption"
        ),
    }


@pytest.mark.parametrize(
    ("without", "with_extender", "broken"),
    [
        (PASSED, PASSED, False),
        (PASSED, FAILED, True),
        (PASSED, Outcome("timedout"), True),
        (PASSED, SKIPPED_IT, True),
        (PASSED, None, True),
        (FAILED, FAILED, False),
        (FAILED, PASSED, False),
        (SKIPPED_IT, SKIPPED_IT, False),
    ],
)
def test_spec_that_passes_without_the_extender_must_pass_with_it(
    without: Outcome, with_extender: Outcome | None, broken: bool
) -> None:
    others = {"another": PASSED}
    ran = {} if with_extender is None else {"one": with_extender}
    found = Comparison({"one": without} | others, ran | others, {})
    assert found.broken == (["one"] if broken else [])
    assert found.failed is broken


def test_run_without_a_passed_spec_fails() -> None:
    assert Comparison({"one": FAILED}, {"one": FAILED}, {}).failed
    assert Comparison({}, {}, {}).failed


def test_results_have_the_reason_of_skipped_and_failed_specs() -> None:
    failed = Outcome("failed", 3.0, "Timed out")
    runs = {"a": SKIPPED_IT, "b": failed, "c": PASSED}
    told = Comparison(runs, runs | {"c": failed}, {"a": "it needs exec"}).as_json()
    assert told["broken"] == ["c"]
    assert [each["words"] for each in told["specs"]] == ["it needs exec", "Timed out", "Timed out"]
    assert told["specs"][1] == {
        "spec": "b",
        "without": "failed",
        "with": "failed",
        "seconds": [3.0, 3.0],
        "words": "Timed out",
    }


def test_skipped_spec_has_its_reason() -> None:
    name = f"{SIG} Workload [FeatureGate:GenericWorkload] should schedule"
    assert reasons([name, f"{SIG} another"]) == {name: SKIPPED[POD_GROUPS]}


def test_arguments_select_the_specs_of_this_sig_without_skipped_specs() -> None:
    given = dict(each.split("=", 1) for each in arguments(Path("k"), Path("r")) if "=" in each)
    assert given["-kubeconfig"] == "k"
    assert re.search(given["-ginkgo.focus"], f"{SIG} LimitRange should create")
    assert not re.search(given["-ginkgo.focus"], "[sig-node] Pods")
    assert re.search(given["-ginkgo.skip"], f"{SIG} Workload [FeatureGate:GenericWorkload] one")
    assert not re.search(given["-ginkgo.skip"], f"{SIG} validates basic preemption works [Conformance]")


def test_arguments_select_the_specs_of_pod_groups() -> None:
    given = arguments(Path("k"), Path("r"), pod_groups=True)
    asked = dict(each.split("=", 1) for each in given if "=" in each)
    name = f"{SIG} GangScheduling [FeatureGate:GenericWorkload] one"
    assert re.search(asked["-ginkgo.focus"], name)
    assert not re.search(asked["-ginkgo.focus"], f"{SIG} LimitRange should create")
    assert not re.search(asked["-ginkgo.skip"], name)


def test_specs_are_of_the_built_kubernetes_release() -> None:
    required = re.search(r"k8s\.io/kubernetes v(\S+)", (SOURCES / "go.mod").read_text())
    assert required is not None
    assert required[1] == kubernetes_binaries._patch_release(RELEASE)
