"""Alerts, a module for each group. The SLOs' alerts are in objectives.py. Each alert has a runbook,
and a case in tests/monitoring/cases. No expression names a job or an instance, because both names
depend on the installation of Prometheus."""

from typing import Final

from deploy.monitoring.alerts.leader import LEADER
from deploy.monitoring.alerts.nodes import NODES
from deploy.monitoring.alerts.placement import PLACEMENT
from deploy.monitoring.alerts.systems import SYSTEMS
from deploy.monitoring.alerts.webhooks import WEBHOOKS

GROUPS: Final = (SYSTEMS, LEADER, PLACEMENT, WEBHOOKS, NODES)
