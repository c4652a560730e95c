"""Alerts, SLOs and dashboards. `python -m deploy.monitoring` writes the files of the chart (`make docs`;
./check compares). Each alert has a page in docs/runbooks."""
