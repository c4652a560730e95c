"""Cases for the alerts about the webhooks."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series

BUCKETS = "apiserver_admission_webhook_admission_duration_seconds_bucket"
REJECTED = "apiserver_admission_webhook_rejection_count"


def _answered(status: str, values: str, verb: str = "mutate") -> Series:
    return {f'slurm_extender_verb_seconds_count{{verb="{verb}",status="{status}"}}': values}


def _handshakes(values: str, why: str = "TLS handshake failed") -> Series:
    rejections = "slurm_extender_listener_rejections_total"
    return {f'{rejections}{{listener="admission",why="{why}"}}': values}


def _called(name: str) -> Series:
    return {f'apiserver_admission_webhook_admission_duration_seconds_count{{name="{name}"}}': "0+1x120"}


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
    Case(
        "SlurmExtenderWebhookErrors",
        _answered("500", "0+1x60", "every-pod") | _answered("200", "0+9x60"),
        _answered("200", "0+9x60") | _answered("500", "0+1x60", "bind") | _answered("500", "7x60"),
    ),
    Case(
        "SlurmExtenderWebhookNotTrusted",
        _handshakes("0+1x60") | _answered("200", "9x60"),
        _handshakes("0+1x60") | _answered("200", "0+9x60"),
    ),
    Case(
        "SlurmExtenderWebhookNotTrusted",
        _handshakes("0x12 9x48"),
        _handshakes("0x12 2x48") | _handshakes("0+1x60", "too slow"),
    ),
    Case(
        "SlurmExtenderWebhooksNotWatched",
        _answered("200", "0+1x120") | _called("others.example.com"),
        _answered("200", "0+1x120") | _called("pods.slurm-extender.io"),
        "90m",
    ),
    Case(
        "SlurmExtenderWebhooksNotWatched",
        _answered("200", "0+1x120", "validate"),
        _answered("200", "9x120") | _answered("200", "0+1x120", "bind"),
        "90m",
    ),
)
