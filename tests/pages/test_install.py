"""Tests of docs/tasks/install.md: the page has a limited number of steps, and Slurm knows each parameter
of the page's checklist."""

from __future__ import annotations

import gzip
import re

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from extender.preflight.checks import CHECKS
from extender.preflight.slurm_conf_checks import SLURM_CONF_CHECKS

PAGE = (CHECKOUT / "docs" / "tasks" / "install.md").read_text()
CHECKLIST = PAGE.split("## slurm.conf: a checklist", 1)[1].split("\n## ", 1)[0]
PARAMETERS = {
    name
    for row in re.findall(r"^\| (.*?) \|", CHECKLIST, re.MULTILINE)
    for name in re.findall(r"`(\w+)=", row)
}
ROWS = [line.split(" | ") for line in CHECKLIST.splitlines() if line.startswith("| `")]


def test_preflight_checks_each_line_of_the_checklist() -> None:
    named = [re.findall(r"`([\w-]+)`", row[-1]) for row in ROWS]
    assert all(named)
    assert {name for names in named for name in names} <= {check.name for check in CHECKS}
    assert {check.name for check in SLURM_CONF_CHECKS} <= {name for names in named for name in names}


def test_installation_has_at_most_ten_steps() -> None:
    numbers = [int(number) for number in re.findall(r"^\*\*(\d+)\. ", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) <= 10


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_slurm_knows_every_parameter_of_the_checklist(release: str) -> None:
    """The test looks for each parameter in Slurm's manual pages."""
    tree, _ = Cluster.prepare(ClusterSpec(kubernetes=False, extender=False, release=release))
    pages = (tree / "usr/share/man/man5" / name for name in ("slurm.conf.5.gz", "cgroup.conf.5.gz"))
    manual = re.sub(
        r"\\f[A-Z]", "", "".join(gzip.decompress(page.read_bytes()).decode() for page in pages)
    )
    assert {"KillWait", "MaxJobId", "ConstrainDevices"} <= PARAMETERS
    assert [name for name in sorted(PARAMETERS) if not re.search(rf"\b{name}\b", manual)] == []
