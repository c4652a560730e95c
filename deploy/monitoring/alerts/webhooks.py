"""Alerts about the extender's webhooks. Only kube-apiserver can tell that it reaches no replica; its
metrics are in no namespace of the release."""

from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.rule import Alert, Group, Severity

_OURS: Final = 'name=~".+[.]slurm-extender[.]io"'
_REJECTED: Final = f'apiserver_admission_webhook_rejection_count{{{_OURS},error_type!="no_error"}}'
_TOOK: Final = "apiserver_admission_webhook_admission_duration_seconds"
_BUCKETS: Final = f"{_TOOK}_bucket{{{_OURS}}}"
_ANSWERS: Final = "slurm_extender_verb_seconds_count"
_WEBHOOKS: Final = 'verb=~"mutate|validate|every-pod"'
_ERRORS: Final = f'sum {by()} (rate({_ANSWERS}{{{_WEBHOOKS},status=~"5.."}}[5m])) > 0'
_HANDSHAKES: Final = (
    "increase(slurm_extender_listener_rejections_total"
    '{listener="admission",why="TLS handshake failed"}[10m])'
)
_MANY: Final = 3
"""One may be a person, or a scanner of ports, who tries the port."""
_UNTRUSTED: Final = (
    f"sum {by()} ({_HANDSHAKES}) > {_MANY}"
    f" unless sum {by()} (increase({_ANSWERS}{{{_WEBHOOKS}}}[10m])) > 0"
)

WEBHOOKS: Final = Group(
    "slurm-extender-webhooks",
    (
        Alert(
            "SlurmExtenderWebhookFailing",
            f"sum by (cluster, name) (rate({_REJECTED}[5m])) > 0",
            "5m",
            Severity.CRITICAL,
            "kube-apiserver's calls of {{ $labels.name }} fail: Pods that ask for Slurm are rejected",
            "kube-apiserver cannot call the webhook (no replica, network, certificate), or gets an"
            " error. What runs goes on.",
        ),
        Alert(
            "SlurmExtenderWebhookErrors",
            _ERRORS,
            "5m",
            Severity.CRITICAL,
            "The extender answers kube-apiserver's calls of webhooks with errors: Pods are rejected",
            "By the extender's own figures it answers with HTTP 500 or above. Pods that ask for Slurm"
            " and meet such an answer are rejected. What runs goes on.",
        ),
        Alert(
            "SlurmExtenderWebhookNotTrusted",
            _UNTRUSTED,
            "5m",
            Severity.WARNING,
            "Calls of the extender's webhooks end at TLS, and none succeeds",
            "By the extender's own figures: kube-apiserver does not trust its certificate, most likely,"
            " and rejects Pods that ask for Slurm. Or somebody else tries the port.",
        ),
        Alert(
            "SlurmExtenderWebhookSlow",
            f"histogram_quantile(0.99, sum by (cluster, le, name) (rate({_BUCKETS}[10m]))) > 1",
            "10m",
            Severity.WARNING,
            "{{ $labels.name }} takes {{ $value | humanizeDuration }} for one in a hundred Pods",
            "Whoever creates a Pod waits for it. A webhook is given up after 2 to 5 s.",
        ),
        Alert(
            "SlurmExtenderWebhooksNotWatched",
            f"sum {by()} (increase({_ANSWERS}{{{_WEBHOOKS}}}[1h])) > 0"
            f" unless on (cluster) count by (cluster) ({_TOOK}_count{{{_OURS}}})",
            "1h",
            Severity.INFO,
            "Prometheus does not read how kube-apiserver's calls of the extender's webhooks go",
            "Webhooks are called, and kube-apiserver's metrics of them are not there: nothing tells when"
            " it reaches no replica and rejects Pods. A managed control plane may have to be asked for"
            " them.",
        ),
    ),
)
