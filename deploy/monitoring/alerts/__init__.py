"""The alerts, but for those of the SLOs: what each watches, and what it says at once. A module for each
group.

Each is in docs/runbooks under its name, and tests/monitoring/cases has what makes it fire. No expression
names a job or an instance: these depend on how Prometheus finds its targets.
"""

from typing import Final

from deploy.monitoring.alerts.leader import LEADER
from deploy.monitoring.alerts.nodes import NODES
from deploy.monitoring.alerts.placement import PLACEMENT
from deploy.monitoring.alerts.systems import SYSTEMS
from deploy.monitoring.alerts.webhooks import WEBHOOKS

GROUPS: Final = (SYSTEMS, LEADER, PLACEMENT, WEBHOOKS, NODES)
