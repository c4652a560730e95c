"""Alerts, SLOs and dashboards. `python -m deploy.monitoring` writes the chart's files (`make
docs`), and ./check compares these files with the code. Each alert has a page in
docs/troubleshooting/runbooks."""
