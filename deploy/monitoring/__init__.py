"""Alerts, SLOs and dashboards. `make docs` runs `python -m deploy.monitoring`, which writes them as
files of the chart. ./check compares these files with the code. Each alert has a page in
docs/troubleshooting/runbooks."""
