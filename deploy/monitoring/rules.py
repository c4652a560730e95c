"""All rules, in the order of their file."""

from typing import Final

from deploy.monitoring import alerts, objectives
from deploy.monitoring.rule import Alert

GROUPS: Final = (*alerts.GROUPS, *objectives.GROUPS)

ALERTS: Final[tuple[Alert, ...]] = tuple(
    rule for group in GROUPS for rule in group.rules if isinstance(rule, Alert)
)
