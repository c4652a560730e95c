"""Alerts about the extender's webhooks, as kube-apiserver sees them. Its metrics are in no namespace of
the release: a cluster has one."""

from typing import Final

from deploy.monitoring.rule import Alert, Group, Severity

_OURS: Final = 'name=~".+[.]slurm-extender[.]io"'
_BY: Final = "by (cluster, name)"
_REJECTED: Final = f'apiserver_admission_webhook_rejection_count{{{_OURS},error_type!="no_error"}}'
_TOOK: Final = f"apiserver_admission_webhook_admission_duration_seconds_bucket{{{_OURS}}}"

WEBHOOKS: Final = Group(
    "slurm-extender-webhooks",
    (
        Alert(
            "SlurmExtenderWebhookFailing",
            f"sum {_BY} (rate({_REJECTED}[5m])) > 0",
            "5m",
            Severity.CRITICAL,
            "kube-apiserver's calls of {{ $labels.name }} fail, and Pods are rejected",
            "kube-apiserver cannot call the webhook (no replica, network, certificate), or gets an"
            " error.",
        ),
        Alert(
            "SlurmExtenderWebhookSlow",
            f"histogram_quantile(0.99, sum by (cluster, le, name) (rate({_TOOK}[10m]))) > 1",
            "10m",
            Severity.WARNING,
            "{{ $labels.name }} takes {{ $value | humanizeDuration }} for one in a hundred Pods",
            "Whoever creates a Pod waits for it. A webhook is given up after 2 to 5 s.",
        ),
    ),
)
