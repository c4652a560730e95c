"""What makes each alert fire, and what, though it is near that, does not. A module for each group."""

from tests.monitoring.cases import leader, nodes, objectives, placement, systems, webhooks
from tests.monitoring.cases.case import Case

CASES: tuple[Case, ...] = (
    *systems.CASES,
    *leader.CASES,
    *placement.CASES,
    *webhooks.CASES,
    *nodes.CASES,
    *objectives.CASES,
)
