"""Cases for each alert: series with which the alert fires, and similar series without an alert. Each
module has a group of alerts."""

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
