"""Tests of the check for unsafe preemption in a KubeSchedulerConfiguration. Preemption is unsafe if
kube-scheduler may evict Pods for a Pod still waiting for Slurm.
tests/end_to_end/test_unsafe_preemption.py tests the same with a real kube-scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import Rendered, values_of
from deploy.local.kubernetes.scheduler_config import configured
from deploy.local.layout import Layout
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from extender.kube_scheduler.configuration import SchedulerConfiguration, problems, unsafe_preemption
from extender.kube_scheduler.file import NoConfiguration, read

OURS = "slurm-scheduler"
ENTRY = {
    "urlPrefix": "http://127.0.0.1:8888/scheduler",
    "filterVerb": "filter",
    "bindVerb": "bind",
    "preemptVerb": "preempt",
    "nodeCacheCapable": True,
    "httpTimeout": "30s",
    "ignorable": False,
}
OFF = [{"name": "DefaultPreemption"}]
ALL_OFF = [{"name": "*"}]
ON = [{"name": "DefaultPreemption"}]


def configuration(plugins: Any = None, entry: Any = None, **profile: Any) -> SchedulerConfiguration:
    """Returns a configuration with these plugins in the profile, and these fields in the extender's
    entry."""
    own = {"schedulerName": OURS, "percentageOfNodesToScore": 100, "plugins": plugins} | profile
    entries = [{**ENTRY, **(entry or {})}] if entry is not False else []
    document = {"profiles": [{"schedulerName": "default-scheduler"}, own], "extenders": entries}
    return SchedulerConfiguration.model_validate(document)


WITHOUT_VERB = {"preemptVerb": None}


@pytest.mark.parametrize(
    ("plugins", "preempts"),
    [
        (None, True),
        ({}, True),
        ({"multiPoint": None}, True),
        ({"multiPoint": {"disabled": OFF}}, False),
        ({"multiPoint": {"disabled": ALL_OFF}}, False),
        ({"multiPoint": {"disabled": OFF, "enabled": ON}}, True),
        ({"multiPoint": {"disabled": ALL_OFF, "enabled": [{"name": "NodeName"}]}}, False),
        ({"postFilter": {"disabled": OFF}}, False),
        ({"postFilter": {"disabled": ALL_OFF}}, False),
        ({"postFilter": {"disabled": ALL_OFF, "enabled": ON}}, True),
        ({"multiPoint": {"disabled": OFF}, "postFilter": {"enabled": ON}}, True),
        ({"postFilter": {"disabled": [{"name": "Another"}]}}, True),
        ({"score": {"disabled": ALL_OFF}}, True),
    ],
)
def test_default_preemption_is_found_as_kube_scheduler_runs_it(plugins: Any, preempts: bool) -> None:
    found = configuration(plugins, WITHOUT_VERB)
    profile = found.profile(OURS)
    assert profile is not None
    assert profile.preempts is preempts
    assert (unsafe_preemption(found, OURS) is not None) is preempts


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, None),
        (WITHOUT_VERB, "has no preemptVerb"),
        ({"preemptVerb": ""}, "has no preemptVerb"),
        ({"ignorable": True}, "is `ignorable`"),
        ({"managedResources": [{"name": "nvidia.com/gpu"}]}, "only about Pods with nvidia.com/gpu"),
        ({"urlPrefix": "http://127.0.0.1:8888/other"}, "no entry of `extenders` is slurm-extender's"),
        (False, "no entry of `extenders` is slurm-extender's"),
    ],
)
def test_preemption_is_safe_if_slurm_extender_is_asked_about_all_victims(
    entry: Any, words: str | None
) -> None:
    told = unsafe_preemption(configuration(entry=entry), OURS)
    assert told is None if words is None else words in str(told)


def test_kube_scheduler_without_the_profile_is_safe() -> None:
    assert unsafe_preemption(SchedulerConfiguration(), OURS) is None
    assert unsafe_preemption(SchedulerConfiguration(), "default-scheduler") is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ()),
        ({"percentageOfNodesToScore": None}, ("percentageOfNodesToScore is not set",)),
        ({"percentageOfNodesToScore": 50}, ("percentageOfNodesToScore is 50",)),
        ({"entry": {"nodeCacheCapable": False}}, ("nodeCacheCapable",)),
        ({"entry": {"bindVerb": None, "filterVerb": None}}, ("no filterVerb and no bindVerb",)),
        ({"entry": WITHOUT_VERB}, ("no preemptVerb",)),
        ({"entry": WITHOUT_VERB, "plugins": {"multiPoint": {"disabled": OFF}}}, ()),
        ({"entry": {"prioritizeVerb": "prioritize", "weight": 100}}, ()),
        ({"entry": {"ignorable": True}}, ("ignorable",)),
        ({"entry": {"httpTimeout": "29s"}}, ("httpTimeout 29s, less than 30s with bindVerb:",)),
        ({"entry": {"httpTimeout": "1m30s"}}, ()),
        ({"entry": {"httpTimeout": "0s"}}, ("httpTimeout 5s, less than 30s with bindVerb:",)),
        ({"entry": {"httpTimeout": None}}, ("httpTimeout 5s, less than 30s with bindVerb:",)),
        ({"entry": False}, ("no entry of `extenders`",)),
        ({"schedulerName": "another"}, ("profile slurm-scheduler is missing",)),
    ],
)
def test_other_problems_of_the_configuration_are_reported(
    given: dict[str, Any], words: tuple[str, ...]
) -> None:
    found = problems(configuration(**given), OURS)
    assert len(found) == len(words)
    assert all(word in told for word, told in zip(words, found, strict=True))


@pytest.mark.parametrize(("timeout", "number"), [("500ms", 1), ("4.9s", 1), ("5s", 0), ("0s", 0)])
def test_verbs_may_be_in_two_entries_with_different_timeouts(timeout: str, number: int) -> None:
    binds = {**ENTRY, "filterVerb": None, "preemptVerb": None}
    others = {**ENTRY, "bindVerb": None, "httpTimeout": timeout}
    document = {"percentageOfNodesToScore": 100, "profiles": [{"schedulerName": OURS}]}
    both = SchedulerConfiguration.model_validate(document | {"extenders": [others, binds]})
    assert unsafe_preemption(both, OURS) is None
    found = problems(both, OURS)
    assert len(found) == number
    assert all("less than 5s: kube-scheduler cancels calls" in each for each in found)


def test_percentage_of_the_profile_overrides_the_global_percentage() -> None:
    document = {"percentageOfNodesToScore": 100, "profiles": [{"schedulerName": OURS}]}
    document |= {"extenders": [ENTRY]}
    assert problems(SchedulerConfiguration.model_validate(document), OURS) == ()


@pytest.mark.real  # Helm is built once
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("preempts", [True, False])
def test_the_configurations_of_local_clusters_are_judged(
    tmp_path: Path, asks: bool, preempts: bool
) -> None:
    verbs = ("filter", "bind", *(["preempt"] if asks else []))
    spec = ClusterSpec(default_preemption=preempts, extender_verbs=verbs)
    file = tmp_path / "kube-scheduler.yaml"
    chart = Rendered.of(helm(silent), values_of(spec, 1, "ca"))
    file.write_text(configured(chart, spec, 8888, Layout(tmp_path)))
    found = read(file)
    assert (unsafe_preemption(found, OURS) is None) is (asks or not preempts)
    assert (problems(found, OURS) == ()) is (asks or not preempts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod", "is no KubeSchedulerConfiguration"),
        ("[]", "is no KubeSchedulerConfiguration"),
        ("kind: [", "cannot be read"),
        ("kind: KubeSchedulerConfiguration\nprofiles: 3", "profiles: "),
        (None, "cannot be read"),
    ],
)
def test_file_of_another_kind_is_no_configuration(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "file.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(NoConfiguration, match=r"file\.yaml") as error:
        read(file)
    assert words in str(error.value)


def test_unknown_fields_of_a_configuration_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    document = {"kind": "KubeSchedulerConfiguration", "leaderElection": {"leaderElect": False}}
    file.write_text(yaml.safe_dump(document | {"extenders": [ENTRY]}))
    assert len(read(file).own_entries) == 1
