"""Dashboards, a module for each. Panels with Slurm's own metrics (slurm_*) are empty without
slurmctld's exporter (docs/reference/metrics.md)."""

from typing import Final

from deploy.monitoring.dashboards.capacity import CAPACITY
from deploy.monitoring.dashboards.cluster import CLUSTER
from deploy.monitoring.dashboards.node import NODE
from deploy.monitoring.dashboards.queue import QUEUE
from deploy.monitoring.dashboards.slo import SLO

DASHBOARDS: Final = (CLUSTER, QUEUE, SLO, NODE, CAPACITY)
