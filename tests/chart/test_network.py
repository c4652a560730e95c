"""The way to slurmrestd is open at the ports that are asked for, and at no other."""

from __future__ import annotations

import pytest

from deploy.local.chart import RELEASE, Rendered, Values
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from tests.chart.matrix import with_needed

pytestmark = pytest.mark.real  # Helm is built, once


def ports_out(values: Values) -> set[int]:
    chart = Rendered.of(helm(silent), with_needed(values))
    rules = chart.find("NetworkPolicy", RELEASE)["spec"]["egress"]
    return {each["port"] for rule in rules for each in rule["ports"]} - {53, 5353, 443, 6443}


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("http://slurmrestd:6820", 6820),
        ("http://slurmrestd", 80),
        ("http://[fd00::1]:6820", 6820),
        ("http://[fd00::1]", 80),
    ],
)
def test_slurmrestd_is_reached_at_the_port_of_its_address(address: str, port: int) -> None:
    assert ports_out({"slurm": {"restUrl": address}}) == {port}


def test_and_at_the_ports_of_the_pods_behind_a_service() -> None:
    values: Values = {
        "slurm": {"restUrl": "http://slurmrestd:80"},
        "networkPolicy": {"slurm": {"ports": [6820]}},
    }
    assert ports_out(values) == {80, 6820}
