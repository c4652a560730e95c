"""Tests of the scope of an installation: the Pods that the extender manages."""

from typing import Any

import pytest

from extender.pod_request.job_request import read_request
from extender.pod_request.scope import Scope, Selector
from extender.pod_request.translation import TranslationConfig
from tests.builders import PREFIX, Manifest, pod_manifest
from wellknown.names import ATTEMPT, GATE, JOB_ID

LABELS = {"app": "train", "team.example/tier": "gold", "empty": ""}


SELECTED = (
    *("", " ", "app", "!web", "! web", "app=train", "app == train", "app!=web", "web!=train"),
    *("empty=", "app in (web, train)", "app notin (web)", "web notin (a)"),
    *("app in (train),team.example/tier=gold", "app=train,!web"),
)
NOT_SELECTED = (
    *("!app", "web", "app=web", "web=train", "app!=train", "app=", "app in (web)"),
    *("app notin (web,train)", "web in (a)", "app=train , team.example/tier=silver", "in in (a)"),
    "notin",
)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [*((each, True) for each in SELECTED), *((each, False) for each in NOT_SELECTED)],
)
def test_a_selector_selects_as_kubectl_does(selector: str, selected: bool) -> None:
    assert Selector.parse(selector).selects(LABELS) is selected


@pytest.mark.parametrize(
    "wrong",
    ["a b", "a=b c", "a=b,", ",a", "a in", "a in b", "a in (b", "a=(b)", "a>1", "=b", "!", "a in ((b))"],
)
def test_invalid_selector_is_an_error(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no label selector: give key=value"):
        Selector.parse(wrong)


def translation(namespaces: list[str] | None = None, selector: str = "") -> TranslationConfig:
    return TranslationConfig(scope=Scope.of(namespaces, selector))


def labelled(labels: dict[str, str], **given: Any) -> Manifest:
    manifest = pod_manifest(**given)
    manifest["metadata"]["labels"] = labels
    return manifest


def unmarked(**given: Any) -> Manifest:
    return pod_manifest(gates=(), **given)


def test_pod_outside_the_namespaces_is_not_managed() -> None:
    ours = translation(["ml"])
    assert ours.manages(unmarked(namespace="ml"))
    for asking in (unmarked(namespace="web"), unmarked(annotations={PREFIX + "account": "x"})):
        assert ours.asks(asking)
        assert not ours.manages(asking)


def test_pod_without_the_labels_is_not_managed() -> None:
    ours = translation(selector="slurm=yes")
    assert ours.manages(labelled({"slurm": "yes"}, gates=()))
    assert not ours.manages(labelled({"slurm": "no"}, gates=()))
    assert not ours.manages(unmarked())


def test_pod_of_another_scheduler_in_the_scope_is_not_managed() -> None:
    assert not translation(["default"]).manages(unmarked(schedulerName="default-scheduler"))


@pytest.mark.parametrize(
    "marks",
    [
        {"gates": (GATE,)},
        {"annotations": {ATTEMPT: "2"}},
        {"annotations": {JOB_ID: "33554432"}, "node": "n1"},
    ],
    ids=["gate", "attempt", "job"],
)
def test_marked_pod_stays_managed_after_leaving_the_scope(marks: dict[str, Any]) -> None:
    held = pod_manifest(**({"gates": ()} | marks))
    assert translation(["ml"]).manages(held)
    held["spec"]["schedulerName"] = "default-scheduler"
    assert not translation(["ml"]).manages(held)


def test_pod_outside_the_scope_has_a_problem() -> None:
    (told,) = read_request(pod_manifest(), translation(["web", "ml"])).problems
    assert told.startswith(
        "namespace default is out of scope: ml, web (docs/reference/annotations.md#scope)"
    )
    (told,) = read_request(pod_manifest(), translation(selector="slurm=yes")).problems
    assert told.startswith("the Pod's labels are out of scope: slurm=yes")
    assert not read_request(pod_manifest(), translation(["default"])).problems
