"""Dashboard of the objectives: the time until Pods are bound and evicted."""

from typing import Final

from deploy.monitoring.objectives import OBJECTIVES, WINDOWS
from deploy.monitoring.panel import Query
from deploy.monitoring.queries import RATE, WEBHOOKS, dashboard, now, panel, quantiles, row

SLO: Final = dashboard(
    "slo",
    "SLO",
    "Does the extender bind and evict Pods in time? How much of the error budget is left?",
    *(
        row(
            f"{each.what}: {each.share:.0%} in less than {each.seconds:g} s",
            now("Budget left (3 days)", f"1 - {each.ratio('3d')} / {each.budget:g}", unit="percentunit"),
            panel(
                "Share of late Pods",
                *(Query(each.ratio(window), window) for window in WINDOWS),
                unit="percentunit",
            ),
            panel("Duration", *quantiles(each.metric), unit="s"),
        )
        for each in OBJECTIVES
    ),
    row(
        "Replies",
        panel("Duration of verbs", *quantiles("slurm_extender_verb_seconds", "verb"), unit="s"),
        panel(
            "Failed verbs",
            Query(
                f'sum by (verb) (rate(slurm_extender_verb_seconds_count{{status!="200"}}[{RATE}]))',
                "{{verb}}",
            ),
            unit="ops",
        ),
        panel(
            "Duration of webhooks for kube-apiserver (p99)",
            Query(
                "histogram_quantile(0.99, sum by (le, name) (rate("
                "apiserver_admission_webhook_admission_duration_seconds_bucket"
                f"{{{WEBHOOKS}}}[{RATE}])))",
                "{{name}}",
            ),
            unit="s",
        ),
        panel(
            "Rejections by webhooks",
            Query(
                "sum by (name, error_type) (rate(apiserver_admission_webhook_rejection_count"
                f"{{{WEBHOOKS}}}[{RATE}]))",
                "{{name}} {{error_type}}",
            ),
            unit="ops",
        ),
    ),
)
