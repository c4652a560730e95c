"""Alerts about the extender's webhooks. Only kube-apiserver can report that kube-apiserver reaches no
replica. Metrics of kube-apiserver have no namespace of a release."""

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
"""Largest number of failed handshakes for which no alert fires, because a person or a port scanner may
try the port."""
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
            " error. Running Pods and jobs go on.",
        ),
        Alert(
            "SlurmExtenderWebhookErrors",
            _ERRORS,
            "5m",
            Severity.CRITICAL,
            "The extender replies to webhook calls with errors: kube-apiserver rejects Pods",
            "The extender's own metrics count these replies (HTTP 500 or above). If the call for a"
            " Pod gets such a reply, kube-apiserver rejects the Pod. Only Pods that ask for Slurm are"
            " affected. Running Pods and jobs go on.",
        ),
        Alert(
            "SlurmExtenderWebhookNotTrusted",
            _UNTRUSTED,
            "5m",
            Severity.WARNING,
            "Calls of the extender's webhooks fail in the TLS handshake, and no call succeeds",
            "The extender's own metrics count these calls. Most likely kube-apiserver does not trust"
            " the extender's certificate, and rejects Pods that ask for Slurm. Or another program"
            " tries the port.",
        ),
        Alert(
            "SlurmExtenderWebhookSlow",
            f"histogram_quantile(0.99, sum by (cluster, le, name) (rate({_BUCKETS}[10m]))) > 1",
            "10m",
            Severity.WARNING,
            "{{ $labels.name }} takes {{ $value | humanizeDuration }} for one in a hundred Pods",
            "A user who creates a Pod waits for the webhook. kube-apiserver gives up after 2 to 5 s.",
        ),
        Alert(
            "SlurmExtenderWebhooksNotWatched",
            f"sum {by()} (increase({_ANSWERS}{{{_WEBHOOKS}}}[1h])) > 0"
            f" unless on (cluster) count by (cluster) ({_TOOK}_count{{{_OURS}}})",
            "1h",
            Severity.INFO,
            "Prometheus has no metrics of kube-apiserver about calls of the extender's webhooks",
            "kube-apiserver calls webhooks, and its metrics about these calls are missing. If"
            " kube-apiserver reaches no replica and rejects Pods, there may be no alert. On a managed"
            " control plane, you may have to enable the metrics.",
        ),
    ),
)
