"""What makes each alert fire, and what, though it is near that, does not.

Series are in promtool's words: "0x60" is 61 times 0, "0+1x60" grows by 1 a minute. They begin at 0, and
so does the clock: time() is the seconds since the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Series = dict[str, str]

BUCKETS = "apiserver_admission_webhook_admission_duration_seconds_bucket"
REJECTED = "apiserver_admission_webhook_rejection_count"


class Case(NamedTuple):
    """One alert: it fires at a time ("20m") by some series, and does not at the same time by others."""

    alert: str
    fires: Series
    quiet: Series
    at: str = "20m"

    def tests(self) -> Iterable[dict[str, Any]]:
        """Yields both as promtool's tests."""
        yield _test(f"{self.alert} fires", self.alert, self.fires, self.at, fires=True)
        yield _test(f"{self.alert} is quiet", self.alert, self.quiet, self.at, fires=False)


def _test(name: str, alert: str, series: Series, at: str, *, fires: bool) -> dict[str, Any]:
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > 0'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {"expr": f"{expr} > bool 0", "eval_time": at, "exp_samples": [{"value": 1}] if fires else []}
        ],
    }


def degraded(component: str, values: str, program: str = "slurm_extender") -> Series:
    """A component of one replica, or of the agent of one Node."""
    node = ',node="n1"' if program == "node_agent" else ""
    return {f'{program}_component_degraded{{component="{component}",instance="a"{node}}}': values}


def lifetime(what: str, ends: int, issued: int | None = 0) -> Series:
    """Of a token, or a certificate."""
    told = {f"slurm_extender_{what}_expiration_timestamp_seconds": f"{ends}x60"}
    if issued is not None:
        told[f"slurm_extender_{what}_issued_timestamp_seconds"] = f"{issued}x60"
    return told


def histogram(metric: str, soon: int, all_of_them: int, minutes: int = 240) -> Series:
    """So many a minute, of which so many took less than 5 s."""
    return {
        f'{metric}_bucket{{le="5.0"}}': f"0+{soon}x{minutes}",
        f"{metric}_count": f"0+{all_of_them}x{minutes}",
    }


def _flaps(component: str) -> Series:
    return degraded(component, "1 0 " * 15)


def _lost(jobs: int, bound: int) -> Series:
    return {
        "slurm_extender_jobs_lost_total": f"0x10 {jobs}x50",
        'slurm_extender_placeholders{state="Bound"}': f"{bound}x60",
    }


def _begins_anew(next_job_id: int) -> Series:
    return {
        "slurm_extender_next_job_id": f"5000x10 {next_job_id}x50",
        "slurm_extender_slurmctld_start_timestamp_seconds": "100x10 660x50",
    }


def _queue(idle: int, bound: str = "7x60", waits_for: str = "resources") -> Series:
    return {
        f'slurm_extender_waiting_pods{{waits_for="{waits_for}"}}': "3x60",
        'slurm_extender_placeholder_transitions_total{state="Bound"}': bound,
        'slurm_extender_slurm_nodes{state="idle"}': f"{idle}x60",
    }


def _agents(*looks: str) -> Series:
    looked = {
        f'node_agent_last_look_timestamp_seconds{{instance="{n}"}}': v for n, v in enumerate(looks)
    }
    return {"slurm_extender_agent_nodes": "2x60", **looked}


_HANDLING = "slurm_extender_placement_handling_seconds"
_EVICTION = "slurm_extender_eviction_seconds"
_FINDINGS = "slurm_extender_audit_findings"
_OLDEST_DRAIN = "slurm_extender_drained_oldest_timestamp_seconds"

CASES = (
    Case("SlurmExtenderSlurmUnreachable", degraded("Slurm", "1x60"), _flaps("Slurm")),
    Case("SlurmExtenderSlurmUnreachable", degraded("Slurm's token", "1x60"), degraded("jobs", "1x60")),
    Case("SlurmExtenderKubernetesUnreachable", degraded("Kubernetes", "1x60"), _flaps("Kubernetes")),
    Case("SlurmExtenderSlurmStateLost", _lost(4, bound=4), _lost(4, bound=100), "15m"),
    Case("SlurmExtenderSlurmStateLost", _begins_anew(1), _begins_anew(4990), "15m"),
    Case(
        "SlurmExtenderPreemptionUnsafe", degraded("preemption", "1x60"), degraded("preemption", "0x60")
    ),
    Case("SlurmExtenderJobIdsNearRange", degraded("job ids", "1x60"), _flaps("job ids")),
    Case("SlurmExtenderAdminCommentRewritten", degraded("AdminComment", "1x60"), _flaps("AdminComment")),
    Case(
        "SlurmExtenderPreemptionUnsafe",
        {"slurm_extender_unasked_preemptions_total": "0x17 1x43"},
        {"slurm_extender_unasked_preemptions_total": "1x60"},
    ),
    Case(
        "SlurmExtenderNoLeader",
        {'slurm_extender_leading{instance="a"}': "0x60", 'slurm_extender_leading{instance="b"}': "0x60"},
        {'slurm_extender_leading{instance="a"}': "0x60", 'slurm_extender_leading{instance="b"}': "1x60"},
    ),
    Case("SlurmExtenderNoLeader", {"up": "0x60"}, {"slurm_extender_leading": "0x18 1x42"}),
    Case(
        "SlurmExtenderLeaderFlapping",
        {"slurm_extender_lease_transitions_total": "1x5 3 5 7 9x60"},
        {"slurm_extender_lease_transitions_total": "1x5 3x60"},
    ),
    Case("SlurmExtenderTokenNearItsEnd", lifetime("token", 2400), lifetime("token", 36_000), "38m"),
    Case(
        "SlurmExtenderTokenNearItsEnd",
        lifetime("token", 80_000, issued=None),
        lifetime("token", 180_000, issued=None),
    ),
    Case(
        "SlurmExtenderCertificateNearItsEnd",
        lifetime("certificate", 2400),
        lifetime("certificate", 9000),
        "38m",
    ),
    Case(
        "SlurmExtenderFileRejected",
        {"slurm_extender_policy_good": "0x60", "slurm_extender_pools_good": "1x60"},
        {"slurm_extender_policy_good": "1x60", "slurm_extender_pools_good": "1x60"},
    ),
    Case(
        "SlurmExtenderComponentDegraded",
        degraded("watch of Pods", "1x60"),
        degraded("Slurm", "1x60") | degraded("nodes", "1x10 0x50"),
    ),
    Case("SlurmExtenderQueueStalled", _queue(idle=1), _queue(idle=0), "40m"),
    Case("SlurmExtenderQueueStalled", _queue(idle=1, waits_for="binding"), _queue(1, "0+1x60"), "40m"),
    Case("SlurmExtenderQueueStalled", _queue(idle=9), _queue(idle=9, waits_for="owner"), "40m"),
    Case(
        "SlurmExtenderPodsWithoutJob",
        {"slurm_extender_pods_without_job": "1x60"},
        {"slurm_extender_pods_without_job": "0x16 1x3 0x60"},
    ),
    Case(
        "SlurmExtenderJobsWithoutPod",
        {f'{_FINDINGS}{{kind="OrphanJob"}}': "2x60"},
        {f'{_FINDINGS}{{kind="OrphanJob"}}': "0x60", f'{_FINDINGS}{{kind="StuckGate"}}': "2x60"},
    ),
    Case(
        "SlurmExtenderEvictionsThrottled",
        {"slurm_extender_evictions_throttled": "12x60"},
        {"slurm_extender_evictions_throttled": "12x5 0x55"},
    ),
    Case(
        "SlurmExtenderAuditDrift",
        {f'{_FINDINGS}{{kind="WrongNode"}}': "1x60"},
        {f'{_FINDINGS}{{kind="OtherCluster"}}': "5x60"},
    ),
    Case(
        "SlurmExtenderAuditStale",
        {"slurm_extender_audit_last_success_timestamp_seconds": "60x60"},
        {'slurm_extender_audit_last_success_timestamp_seconds{instance="a"}': "0x60"}
        | {'slurm_extender_audit_last_success_timestamp_seconds{instance="b"}': "0+60x60"},
        "50m",
    ),
    Case(
        "SlurmExtenderPrologGateFailing",
        {'slurm_extender_gate_answers_total{answer="failed"}': "0+1x60"},
        {'slurm_extender_gate_answers_total{answer="not-leading"}': "0+5x60"},
    ),
    Case(
        "SlurmExtenderPrologGateFailing",
        {'slurm_extender_drained_nodes{cause="prolog-refused"}': "1x60"},
        {'slurm_extender_drained_nodes{cause="cordoned"}': "1x60"},
    ),
    Case(
        "SlurmExtenderPrologGateFailing",
        {"slurm_extender_prolog_error_nodes": "1x60"},
        {"slurm_extender_prolog_error_nodes": "0x15 1x45"},
    ),
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
        "SlurmExtenderNodesDrainedLong",
        {f'{_OLDEST_DRAIN}{{cause="outstayed"}}': "60x90"},
        {f'{_OLDEST_DRAIN}{{cause="cordoned"}}': "60x90"},
        "75m",
    ),
    Case(
        "SlurmExtenderNodesDrainedLong",  # of two leaders one after the other
        {
            f'{_OLDEST_DRAIN}{{cause="outstayed",instance="a"}}': "60x61 _x30",
            f'{_OLDEST_DRAIN}{{cause="outstayed",instance="b"}}': "_x61 60x30",
        },
        {f'{_OLDEST_DRAIN}{{cause="outstayed",instance="b"}}': "_x20 1260x70"},
        "67m",
    ),
    Case("SlurmExtenderNodeAgentSilent", _agents("0+60x60", "60x60"), _agents("0+60x60", "0+60x60")),
    Case("SlurmExtenderNodeAgentSilent", _agents(), {"slurm_extender_agent_nodes": "0x60"}),
    Case(
        "SlurmExtenderLimitsNotApplied",
        degraded("guard", "1x60", "node_agent"),
        degraded("watch of Pods", "1x60", "node_agent"),
    ),
    Case(
        "SlurmExtenderLimitsNotApplied",
        {'node_agent_pods_with_less_than_their_jobs{node="n1"}': "1x60"},
        {'node_agent_pods_with_less_than_their_jobs{node="n1"}': "0x60"},
    ),
    Case(
        "SlurmExtenderGresMismatch",
        {'node_agent_gres_mismatches{node="n1"}': "1x60"},
        {'node_agent_gres_mismatches{node="n1"}': "1x5 0x60"},
    ),
    Case(
        "SlurmExtenderDevicesFailed",
        {'node_agent_devices_failed{node="n1",gres="gpu",type="h100"}': "1x60"},
        {'node_agent_devices_failed{node="n1",gres="gpu",type="h100"}': "0x60"},
    ),
    Case(
        "SlurmExtenderPoolRollOutStopped",
        {'slurm_extender_pool_stopped{pool="gpus"}': "1x60"},
        {'slurm_extender_pool_stopped{pool="gpus"}': "0x60"},
    ),
    Case(
        "SlurmExtenderPlacementBudgetBurnsFast",
        histogram(_HANDLING, 5, 10),
        histogram(_HANDLING, 95, 100),
        "75m",
    ),
    Case(
        "SlurmExtenderPlacementBudgetBurnsFast",
        {f'{_HANDLING}_bucket{{le="5.0"}}': "0x240", f"{_HANDLING}_count": "0+1x240"},
        {f'{_HANDLING}_bucket{{le="5.0"}}': "0x240", f"{_HANDLING}_count": "0x60 1 2 3x180"},
        "75m",
    ),
    Case(
        "SlurmExtenderPlacementBudgetBurnsSlowly",
        histogram(_HANDLING, 95, 100),
        histogram(_HANDLING, 199, 200),
        "180m",
    ),
    Case(
        "SlurmExtenderEvictionBudgetBurnsFast",
        histogram(_EVICTION, 5, 10),
        histogram(_EVICTION, 95, 100),
        "75m",
    ),
    Case(
        "SlurmExtenderEvictionBudgetBurnsSlowly",
        histogram(_EVICTION, 95, 100),
        histogram(_EVICTION, 199, 200),
        "180m",
    ),
)
