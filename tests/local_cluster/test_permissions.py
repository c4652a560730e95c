"""The roles of each program allow what its client asks of kube-apiserver, and nothing else."""

from __future__ import annotations

import pytest

from deploy.local.chart import AGENT_NAME, AGENT_USER, Rendered, values_of
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.chart import asked
from tests.chart.asked import Calls, allowed_to, asked_by, called_in, missing, unused

pytestmark = pytest.mark.real  # Helm is built, once


def chart() -> Rendered:
    spec = ClusterSpec(self_signed=True, pools="pools: []", guest=True, nodes=0)
    return Rendered.of(helm(silent), values_of(spec, 1, "ca"))


def test_what_each_program_calls_is_known_here() -> None:
    known = asked.EXTENDERS.keys() | asked.AGENTS.keys() | asked.ABOUT_ALL | {"aclose"}
    assert asked.methods() == known
    for package, calls in (("extender", asked.EXTENDERS), ("node_agent", asked.AGENTS)):
        assert called_in(package) - asked.ABOUT_ALL - {"aclose"} == calls.keys(), package


@pytest.mark.parametrize(
    ("subject", "calls", "kinds"),
    [
        ("slurm-extender", asked.EXTENDERS, asked.EXTENDER_KINDS),
        (AGENT_NAME, asked.AGENTS, asked.AGENT_KINDS),
        (AGENT_USER, asked.AGENTS, asked.AGENT_KINDS),
    ],
)
async def test_the_roles_allow_exactly_what_the_client_may_ask(
    subject: str, calls: Calls, kinds: tuple[str, ...]
) -> None:
    allowed = allowed_to(chart(), subject)
    asks = await asked_by(calls, kinds)
    assert not missing(allowed, asks)
    assert not unused(allowed, asks)
