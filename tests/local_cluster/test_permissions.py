"""Tests that the roles of each program permit exactly the requests of the program's client to
kube-apiserver."""

from __future__ import annotations

import pytest

from deploy.local.chart import AGENT_NAME, AGENT_USER, RELEASE, Rendered, values_of
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.chart import asked, figures
from tests.chart.asked import allowed_to, asked_by, called_in, missing, unused
from tests.chart_matrix import POOLS, UNINSTALL, merged, with_needed

pytestmark = pytest.mark.real  # the first test builds Helm


def test_calls_of_each_program_are_listed() -> None:
    others = asked.ABOUT_ALL | asked.EVERYBODYS | asked.PERSONS | {"aclose"}
    known = asked.EXTENDERS.keys() | asked.AGENTS.keys()
    assert asked.methods() == known | others
    assert called_in("extender") - others == asked.EXTENDERS.keys() | asked.CHECKS_CALLS
    assert called_in("node_agent") - others == asked.AGENTS.keys()
    assert called_in("slurm_cluster") - others == asked.CLUSTERS_CALLS


async def test_roles_allow_exactly_the_calls_of_the_clients() -> None:
    """If kube-scheduler and the extender run in one Pod, they share an account. So this account needs
    the permissions of both."""
    spec = ClusterSpec(self_signed=True, pools="pools: []", guest=True, nodes=0)
    outside = Rendered.of(helm(silent), values_of(spec, 1, "ca"))
    everything = merged(POOLS, UNINSTALL)

    def rendered(*namespaces: str) -> Rendered:
        kind = "namespace" if namespaces else "cluster"
        scope = {"scheduler": {"scope": {"type": kind, "namespaces": list(namespaces)}}}
        return Rendered.of(helm(silent), with_needed(merged(everything, scope)))

    inside = rendered()
    extenders = await asked_by(asked.EXTENDERS, asked.EXTENDER_KINDS, asked.EXTENDER_LISTS)
    agents = await asked_by(asked.AGENTS, asked.AGENT_KINDS)
    programs = [
        (outside, "slurm-extender", extenders),
        (outside, AGENT_USER, agents),
        (inside, RELEASE, extenders | asked.KUBE_SCHEDULERS),
        (inside, AGENT_NAME, agents),
        (inside, f"{RELEASE}-check", asked.CHECKS),
        (inside, f"{RELEASE}-uninstall", asked.UNINSTALLS),
        (rendered("ns"), RELEASE, extenders | asked.KUBE_SCHEDULERS),
        (rendered("default"), f"{RELEASE}-uninstall", asked.UNINSTALLS),
    ]
    lacking = [one for chart, who, asks in programs for one in missing(allowed_to(chart, who), asks)]
    idle = [one for chart, who, asks in programs for one in unused(allowed_to(chart, who), asks)]
    figures.leave(missing_rbac=len(lacking), unused_rbac=len(idle))
    assert not lacking
    assert not idle
