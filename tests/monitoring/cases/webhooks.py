"""Alerts about the webhooks."""

from __future__ import annotations

from tests.monitoring.cases.case import Case

BUCKETS = "apiserver_admission_webhook_admission_duration_seconds_bucket"
REJECTED = "apiserver_admission_webhook_rejection_count"

CASES = (
    Case(
        "SlurmExtenderWebhookFailing",
        {f'{REJECTED}{{name="pods.slurm-extender.io",error_type="calling_webhook_error"}}': "0+1x60"},
        {f'{REJECTED}{{name="pods.slurm-extender.io",error_type="no_error"}}': "0+1x60"}
        | {f'{REJECTED}{{name="others.example.com",error_type="calling_webhook_error"}}': "0+1x60"},
    ),
    Case(
        "SlurmExtenderWebhookSlow",
        {
            f'{BUCKETS}{{name="pods.slurm-extender.io",le="{le}"}}': f"0+{count}x60"
            for le, count in (("1", 8), ("2.5", 10), ("+Inf", 10))
        },
        {
            f'{BUCKETS}{{name="pods.slurm-extender.io",le="{le}"}}': f"0+{count}x60"
            for le, count in (("0.5", 10), ("2.5", 10), ("+Inf", 10))
        },
    ),
)
