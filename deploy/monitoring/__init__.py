"""What watches over the extender and the node agents: alerts, SLOs, dashboards, made from Python.

`python -m deploy.monitoring` writes the rules and dashboards that the chart ships (`make docs` runs it,
and ./check fails where it was not run). What to do about an alert is in docs/runbooks, a page for each.
"""
