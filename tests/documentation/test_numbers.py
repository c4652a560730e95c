"""Tests that defaults, limits and budgets on pages equal the numbers in the code. A number beside the
name of a setting must be the setting's default, as in `SETTING` (5) or 5 s (`SETTING`). `SENTENCES`
lists further sentences with numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from deploy.local.spec import KUBERNETES_RELEASES
from deploy.settings_page import AGENT, EXTENDER
from loadtest.harness.budgets import budgets
from service.http.connections import Limits
from tests.documentation.pages import PAGES

TEXTS = {
    str(page.relative_to(CHECKOUT)): " ".join(re.sub(r"\]\([^)]*\)", "]", page.read_text()).split())
    for page in PAGES
    if page.name != "CHANGELOG.md"
}
"""By page: the text on a single line, without the targets of links."""
GATE = (CHECKOUT / "deploy/slurm/slurm-extender-gate").read_text()
DEFAULTS = dict(re.findall(r"^(SLURM_EXTENDER_\w+)=(\d+)\b", GATE, re.MULTILINE)) | {
    setting.variable: str(program.model.model_fields[setting.name].default)
    for program in (EXTENDER, AGENT)
    for setting in program.settings()
}
NAME = r"`((?:SLURM_EXTENDER|NODE_AGENT)_[A-Z0-9_]+)`"
NUMBER = r"(\d+(?:[.,]\d+)*)"
NAME_FIRST = re.compile(rf"{NAME}(?: \(|, ){NUMBER}(?: s)?(?=[), ])")
NUMBER_FIRST = re.compile(rf"{NUMBER}(?: s)?(?: up)? \({NAME}\)")
LEAST_STATED = 10
"""Minimum number of defaults that the patterns must find on the pages. If the patterns find fewer, the
patterns are wrong."""


class Stated(NamedTuple):
    """A number that a page states as the default of a setting."""

    page: str
    setting: str
    number: str


def stated(page: str, text: str) -> list[Stated]:
    """Returns the defaults that a page states beside the names of settings."""
    by_name = [Stated(page, name, number) for name, number in NAME_FIRST.findall(text)]
    return by_name + [Stated(page, name, number) for number, name in NUMBER_FIRST.findall(text)]


def is_default(each: Stated) -> bool:
    """Returns True if the number is the setting's default."""
    return float(each.number.replace(",", "")) == float(DEFAULTS[each.setting])


class Sentence(NamedTuple):
    """A sentence on a page: a pattern with a group for each number, and the numbers that the code
    has."""

    page: str
    pattern: str
    numbers: tuple[object, ...]

    def found(self, text: str) -> list[tuple[str, ...]]:
        """Returns the numbers of each match on the page, without commas and spaces."""
        return [
            tuple(re.sub(r"[, ]", "", group) for group in match.groups())
            for match in re.finditer(self.pattern, text)
        ]


VALUES = yaml.safe_load((CHECKOUT / "deploy/charts/slurm-extender/values.yaml").read_text())
LISTENER = Limits(connections=0, body=lambda: 0)
EXTENDERS, SCHEDULERS = (VALUES[name]["resources"] for name in ("extender", "scheduler"))
MEMORY, SCHEDULER = EXTENDERS["limits"]["memory"], SCHEDULERS["requests"]
CPUS = (EXTENDERS["requests"]["cpu"], SCHEDULER["cpu"])
UNAVAILABLE = VALUES["nodeAgent"]["maxUnavailable"]
LATEST, OLDEST = KUBERNETES_RELEASES
QUICK, RESTART, SCALE = map(budgets, ("bench-quick", "bench-restart", "bench-scale"))
RATIO, IDLE_MS = QUICK["ratio_to_noop"]["at_least"], QUICK["idle_bound_ms_p50"]["at_most"]
READY_S = RESTART["ready_s"]["at_most"]
LEASE = DEFAULTS["SLURM_EXTENDER_LEASE_DURATION_S"]
EVICTIONS = int(DEFAULTS["SLURM_EXTENDER_EVICTIONS_PER_MINUTE"])
JOB_ID_FIRST = DEFAULTS["SLURM_EXTENDER_JOB_ID_FIRST"]
KILL_WAIT = int(DEFAULTS["SLURM_EXTENDER_KILL_WAIT_S"])
WINDOW = DEFAULTS["SLURM_EXTENDER_WINDOW"]
KUBERNETES = r"Kubernetes (1\.\d+) to (1\.\d+)"
SENTENCES = [
    Sentence("README.md", KUBERNETES, (OLDEST, LATEST)),
    Sentence("README.md", r"Kubernetes (1\.\d+) and (1\.\d+), a real kubelet", (OLDEST, LATEST)),
    Sentence("docs/tasks/install.md", KUBERNETES, (OLDEST, LATEST)),
    Sentence("docs/reference/limits.md", KUBERNETES, (OLDEST, LATEST)),
    Sentence("docs/reference/preflight.md", KUBERNETES, (OLDEST, LATEST)),
    Sentence("docs/design/development.md", r"plane of (1\.\d+) to (1\.\d+)", (OLDEST, LATEST)),
    Sentence(
        "docs/tasks/upgrade.md",
        r"`nodeAgent.maxUnavailable` small \((\d+ %) of the Nodes by default\)",
        (UNAVAILABLE,),
    ),
    Sentence("docs/reference/sizing.md", r"chart's limit of (\d+ Gi)B", (MEMORY,)),
    Sentence(
        "docs/reference/sizing.md",
        r"chart's request of (\d+m), and no limit.*chart's request of (\d+m)",
        CPUS,
    ),
    Sentence("docs/reference/sizing.md", r"chart's request of (\d+Mi)", (SCHEDULER["memory"],)),
    Sentence("docs/reference/sizing.md", r"jobs are so short that ([\d,]+) start", (WINDOW,)),
    Sentence("docs/reference/scale.md", r"\d+ MB \(budget: (\d+)\)", (SCALE["rss_mb"]["at_most"],)),
    Sentence("docs/reference/scale.md", r"With (\d+) s, the extender may lose the Lease", (LEASE,)),
    Sentence("docs/reference/scale.md", r"only if ([\d,]+) jobs start", (WINDOW,)),
    Sentence("docs/design/development.md", r"at least ([\d.]+), or the run fails", (RATIO,)),
    Sentence("docs/design/development.md", r"under (\d+) ms, else a warning", (IDLE_MS,)),
    Sentence("docs/design/development.md", r"needs more than (\d+) s until `/readyz`", (READY_S,)),
    Sentence(
        "docs/concepts/audit.md", r"A quarter of the limit, (\d+) of (\d+),", (EVICTIONS // 4, EVICTIONS)
    ),
    Sentence("docs/reference/annotations.md", r"KillWait \((\d+) by default\)", (KILL_WAIT,)),
    Sentence(
        "docs/reference/annotations.md",
        r"fits: (\d+) with a KillWait of (\d+)\.",
        (KILL_WAIT - 6, KILL_WAIT),
    ),
    Sentence("docs/tasks/slurm-operator.md", r'MaxJobId: "(\d+)"', (JOB_ID_FIRST,)),
    Sentence(
        "docs/troubleshooting/runbooks/SlurmExtenderJobIdsNearRange.md",
        r"range \((\d+) by default",
        (JOB_ID_FIRST,),
    ),
    Sentence("docs/reference/limits.md", r"Set `MaxJobId=(\d+)`", (JOB_ID_FIRST,)),
    Sentence("docs/reference/listeners.md", r"head of a request \| (\d+) KiB", (LISTENER.head >> 10,)),
    Sentence("docs/reference/listeners.md", r"not answered yet \| (\d+) MiB", (LISTENER.bodies >> 20,)),
    Sentence(
        "docs/reference/listeners.md",
        r"A request has (\d+) s from its first byte",
        (int(LISTENER.owes_s),),
    ),
    Sentence(
        "docs/reference/listeners.md", r"a connection may stay for (\d+) s", (int(LISTENER.rests_s),)
    ),
]


def test_pages_state_the_defaults_of_settings() -> None:
    found = [each for page, text in TEXTS.items() for each in stated(page, text)]
    assert len(found) >= LEAST_STATED
    assert [each for each in found if not is_default(each)] == []


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda each: f"{each.page} {each.pattern}")
def test_sentence_has_the_numbers_of_the_code(sentence: Sentence) -> None:
    found = sentence.found(TEXTS[sentence.page])
    assert found, f"{sentence.page} has no such sentence: correct SENTENCES"
    assert {*found} == {tuple(map(str, sentence.numbers))}


def test_memory_limit_of_the_chart_exceeds_the_measured_memory() -> None:
    """Also checks that values.yaml does not repeat the measured memory, which only
    docs/reference/scale.md states."""
    (measured,) = re.findall(r"at most \(RSS\) \| (\d+) MB", TEXTS["docs/reference/scale.md"])
    assert int(measured) * 10**6 < int(MEMORY.removesuffix("Gi")) * 2**30
    assert not re.search(r"\d+ MB", (CHECKOUT / "deploy/charts/slurm-extender/values.yaml").read_text())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("after `SLURM_EXTENDER_LEASE_DURATION_S` (5)", 0),
        ("after `SLURM_EXTENDER_LEASE_DURATION_S` (6)", 1),
        ("for 30 s (`SLURM_EXTENDER_DRAIN_S`), so", 1),
        ("ids from 33,554,432 up (`SLURM_EXTENDER_JOB_ID_FIRST`)", 0),
        ("(`SLURM_EXTENDER_VOLUME_BIND_TIMEOUT_S`, 60 s as", 1),
    ],
)
def test_wrong_default_is_found(text: str, wrong: int) -> None:
    found = stated("page", text)
    assert len(found) == 1
    assert len([each for each in found if not is_default(each)]) == wrong
