"""What tells the releases in one Prometheus apart: the labels `cluster` and `namespace`.

Prometheus, Thanos or Mimir give `cluster` to all series of a cluster, the Prometheus operator gives
`namespace` to those of a Pod. Expressions of rules group by both; a label that series do not have is
empty. Each metric of a rule also gets a matcher that every series meets: the chart puts
`monitoring.rules.selector` in its place. Metrics of a dashboard get its variables.
"""

from typing import Any, Final

from deploy.monitoring.expressions import selected

_LABELS: Final = ("cluster", "namespace")
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""Where a dashboard's figures come from: its variable of that name."""
ANY_RELEASE: Final = 'namespace=~".*"'
"""The matcher of the extender's and the node agents' metrics."""
ANY_CLUSTER: Final = 'cluster=~".*"'
"""The matcher of kube-apiserver's."""
_OURS: Final = ("slurm_extender_", "node_agent_")
_KNOWN: Final = "slurm_extender_build_info"
"""Every replica tells it."""
_RECORDED: Final = "slurm_extender:"
_OF_CLUSTERS: Final = ("apiserver_", "slurm_")
"""What kube-apiserver and slurmctld tell: they are in no namespace of a release."""


def by(*labels: str) -> str:
    """Returns the labels that an aggregation keeps: the release, and others."""
    return f"by ({', '.join((*_LABELS, *labels))})"


def on(*labels: str) -> str:
    """Returns the labels that match series on two sides of an operator: the release, and others."""
    return f"on ({', '.join((*_LABELS, *labels))})"


def of_releases(expr: str) -> str:
    """Returns a rule's expression with the matchers that the chart replaces, but in recorded series."""
    return selected(expr, _matcher)


def _matcher(metric: str) -> str:
    if metric.startswith(_RECORDED):
        return ""
    if metric.startswith(_OURS):
        return ANY_RELEASE
    return ANY_CLUSTER if metric.startswith(_OF_CLUSTERS) else ""


def of_chosen(expr: str) -> str:
    """Returns a dashboard's expression for the releases that are chosen by its variables."""
    return selected(expr, _chosen)


def _chosen(metric: str) -> str:
    cluster, namespace = (f'{label}=~"${label}"' for label in _LABELS)
    if metric.startswith((*_OURS, _RECORDED)):
        return f"{cluster},{namespace}"
    return cluster if metric.startswith(_OF_CLUSTERS) else ""


def variables() -> list[dict[str, Any]]:
    """Returns a dashboard's variables, as Grafana has them."""
    return [_variable(each, _LABELS[:index]) for index, each in enumerate(_LABELS)]


def _variable(label: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    """Returns a variable with the values for the variables before it. `All` is also for no label."""
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
        "refresh": 2,  # whenever the range of time changes
        "sort": 1,
    }


WHOSE: Final = (
    "{{ with $labels.namespace }}, namespace {{ . }}{{ end }}"
    "{{ with $labels.cluster }}, cluster {{ . }}{{ end }}"
)
"""Ends the summary of an alert."""
