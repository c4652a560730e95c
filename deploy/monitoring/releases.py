"""Labels to distinguish the releases in one Prometheus: `cluster` and `namespace`.

Prometheus, Thanos or Mimir add `cluster` to all series of a cluster. The Prometheus operator adds
`namespace` to the series of a Pod. Expressions of rules group by both labels. In PromQL, a missing label
counts as an empty label. In each rule, `of_releases` adds to each metric a matcher that matches every
series. The chart replaces this matcher by `monitoring.rules.selector`. In each dashboard, `of_chosen`
adds matchers with the dashboard's variables.
"""

from typing import Any, Final

from deploy.monitoring.expressions import selected

_LABELS: Final = ("cluster", "namespace")
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""Data source of a dashboard: the variable `datasource`."""
ANY_RELEASE: Final = 'namespace=~".*"'
"""Matcher in rules, for the extender's and the node agents' metrics."""
ANY_CLUSTER: Final = 'cluster=~".*"'
"""Matcher in rules, for kube-apiserver's metrics."""
_OURS: Final = ("slurm_extender_", "node_agent_")
_KNOWN: Final = "slurm_extender_build_info"
"""Metric of every replica of the extender. The dashboards' variables take their values from the labels
of this metric."""
_RECORDED: Final = "slurm_extender:"
_OF_CLUSTERS: Final = ("apiserver_", "slurm_")
"""Prefixes of the metrics of kube-apiserver and slurmctld. These metrics do not have the namespace of a
release."""


def by(*labels: str) -> str:
    """Returns the clause for an aggregation that keeps the release's labels and `labels`."""
    return f"by ({', '.join((*_LABELS, *labels))})"


def on(*labels: str) -> str:
    """Returns the clause for an operator that matches series by the release's labels and `labels`."""
    return f"on ({', '.join((*_LABELS, *labels))})"


def of_releases(expr: str) -> str:
    """Returns a rule's expression with the matchers that the chart replaces. Recorded series get no
    matcher."""
    return selected(expr, _matcher)


def _matcher(metric: str) -> str:
    if metric.startswith(_RECORDED):
        return ""
    if metric.startswith(_OURS):
        return ANY_RELEASE
    return ANY_CLUSTER if metric.startswith(_OF_CLUSTERS) else ""


def of_chosen(expr: str) -> str:
    """Returns a dashboard's expression for the releases that the variables select."""
    return selected(expr, _chosen)


def _chosen(metric: str) -> str:
    cluster, namespace = (f'{label}=~"${label}"' for label in _LABELS)
    if metric.startswith((*_OURS, _RECORDED)):
        return f"{cluster},{namespace}"
    return cluster if metric.startswith(_OF_CLUSTERS) else ""


def variables() -> list[dict[str, Any]]:
    """Returns a dashboard's variables in Grafana's format."""
    return [_variable(each, _LABELS[:index]) for index, each in enumerate(_LABELS)]


def _variable(label: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    """Returns a variable with the values of a label. The variables in `chosen` restrict these values.
    `All` also selects series without the label."""
    matchers = ",".join(f'{each}=~"${each}"' for each in chosen)
    query = f"label_values({_KNOWN}{{{matchers}}}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,  # at each change of the time range
        "sort": 1,
    }


WHOSE: Final = (
    "{{ with $labels.namespace }}, namespace {{ . }}{{ end }}"
    "{{ with $labels.cluster }}, cluster {{ . }}{{ end }}"
)
"""End of an alert's summary: names the release."""
