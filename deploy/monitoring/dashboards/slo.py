"""The dashboard that shows whether Pods are bound and evicted soon enough."""

from typing import Final

from deploy.monitoring.objectives import OBJECTIVES, WINDOWS
from deploy.monitoring.panel import Dashboard, Panel, Query, Row
from deploy.monitoring.queries import RATE, WEBHOOKS, now, quantiles

SLO: Final = Dashboard(
    "slo",
    "SLO",
    "Are Pods bound and evicted soon enough, and how much of the error budget is left?",
    (
        *(
            Row(
                f"{each.what}: {each.share:.0%} in less than {each.seconds:g} s",
                (
                    now(
                        "Budget left (3 days)",
                        f"1 - {each.ratio('3d')} / {each.budget:g}",
                        unit="percentunit",
                    ),
                    Panel(
                        "Share that took longer",
                        tuple(Query(each.ratio(window), window) for window in WINDOWS),
                        "percentunit",
                    ),
                    Panel("How long it took", quantiles(each.metric), "s"),
                ),
            )
            for each in OBJECTIVES
        ),
        Row(
            "Answers",
            (
                Panel("Verbs", quantiles("slurm_extender_verb_seconds", "verb"), "s"),
                Panel(
                    "Verbs that failed",
                    (
                        Query(
                            "sum by (verb) (rate(slurm_extender_verb_seconds_count"
                            f'{{status!="200"}}[{RATE}]))',
                            "{{verb}}",
                        ),
                    ),
                    "ops",
                ),
                Panel(
                    "Webhooks, as kube-apiserver sees them (p99)",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, name) (rate("
                            "apiserver_admission_webhook_admission_duration_seconds_bucket"
                            f"{{{WEBHOOKS}}}[{RATE}])))",
                            "{{name}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Rejections by webhooks",
                    (
                        Query(
                            "sum by (name, error_type) (rate(apiserver_admission_webhook_rejection_count"
                            f"{{{WEBHOOKS}}}[{RATE}]))",
                            "{{name}} {{error_type}}",
                        ),
                    ),
                    "ops",
                ),
            ),
        ),
    ),
)
