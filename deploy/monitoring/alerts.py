"""The alerts, but for those of the SLOs: what each watches, and what it says at once.

Each is in docs/runbooks under its name, and tests/monitoring/cases.py has what makes it fire. No
expression names a job or an instance: these depend on how Prometheus finds its targets.
"""

from typing import Final

from deploy.monitoring.rule import Alert, Group, Severity, degraded

_OLDEST_DRAIN: Final = "slurm_extender_drained_oldest_timestamp_seconds"
_WEBHOOKS: Final = 'name=~".+[.]slurm-extender[.]io"'
_LIMITS: Final = "guard|cores of Pods of no job|Slurm's limits of its jobs|other device programs"
"""The components of the node agent that keep Pods and jobs apart."""
_HAVE_ALERTS: Final = (
    "Slurm",
    "Slurm's token",
    "Kubernetes",
    "job ids",
    "AdminComment",
    "preemption",
    "eviction limiter",
    "policy",
    "pools' file",
)
"""The components that have an alert of their own."""


def _near_its_end(what: str) -> str:
    """Returns the expression for a fifth of a lifetime; for a day where it is not told how long that
    was."""
    ends = f"slurm_extender_{what}_expiration_timestamp_seconds"
    issued = f"slurm_extender_{what}_issued_timestamp_seconds"
    left = f"{ends} - time()"
    return f"min(({left} < 0.2 * ({ends} - {issued})) or ({left} < 86400 unless {issued}))"


_SYSTEMS: Final = Group(
    "slurm-extender-systems",
    (
        Alert(
            "SlurmExtenderSlurmUnreachable",
            degraded("Slurm|Slurm's token"),
            "2m",
            Severity.CRITICAL,
            "{{ $labels.component }} is in trouble: no Pod gets a job",
            "The extender does not reach slurmctld through slurmrestd, or its token is rejected. What"
            " runs"
            " goes on; Pods wait until it is over.",
        ),
        Alert(
            "SlurmExtenderKubernetesUnreachable",
            degraded("Kubernetes"),
            "5m",
            Severity.CRITICAL,
            "The extender does not reach kube-apiserver: nothing is placed",
            "What runs goes on. The leader holds everything back until it can renew its Lease.",
        ),
        Alert(
            "SlurmExtenderSlurmStateLost",
            "(sum(increase(slurm_extender_jobs_lost_total[15m])) > 2 and"
            " sum(increase(slurm_extender_jobs_lost_total[15m]))"
            ' >= 0.5 * sum(slurm_extender_placeholders{state="Bound"}))'
            " or (max(slurm_extender_next_job_id) < 0.5 *"
            " max(max_over_time(slurm_extender_next_job_id[1h]))"
            " and max(changes(slurm_extender_slurmctld_start_timestamp_seconds[1h])) > 0)",
            "0m",
            Severity.CRITICAL,
            "slurmctld seems to have lost its state",
            "Slurm does not know the jobs of Pods that run, or gives job ids from the beginning"
            " again. The"
            " extender asks for these jobs anew, and deletes nothing; native jobs are lost.",
        ),
        Alert(
            "SlurmExtenderPreemptionUnsafe",
            degraded("preemption")
            + " or max(increase(slurm_extender_unasked_preemptions_total[10m])) > 0",
            "0m",
            Severity.CRITICAL,
            "kube-scheduler evicts, or would evict, Pods for Pods that Slurm has not granted",
            "kube-scheduler's profile for Slurm's Pods has preemption on, and its extender no"
            " preemptVerb:"
            " one rejected Pod can evict every other one.",
        ),
        Alert(
            "SlurmExtenderJobIdsNearRange",
            degraded("job ids"),
            "5m",
            Severity.WARNING,
            "Slurm's own job ids come near the placeholders' range, or are in it",
            "Native jobs would get ids that the extender computes for placeholders, whose submissions"
            " Slurm"
            " then rejects. Set MaxJobId in slurm.conf.",
        ),
        Alert(
            "SlurmExtenderAdminCommentRewritten",
            degraded("AdminComment"),
            "5m",
            Severity.WARNING,
            "Something overwrites the AdminComment of placeholders",
            "The extender knows its jobs by it. Jobs that have lost it stay their Pods', and new ones"
            " may be"
            " rejected.",
        ),
    ),
)

_LEADER: Final = Group(
    "slurm-extender-leader",
    (
        Alert(
            "SlurmExtenderNoLeader",
            "(sum(slurm_extender_leading) or vector(0)) < 1",
            "2m",
            Severity.CRITICAL,
            "No replica of the extender leads: no Pod is placed",
            "No replica answers Prometheus, or none holds the Lease and has read both systems.",
        ),
        Alert(
            "SlurmExtenderLeaderFlapping",
            "max(increase(slurm_extender_lease_transitions_total[30m])) > 4",
            "0m",
            Severity.WARNING,
            "The extender's leader has changed {{ $value | humanize }} times in half an hour",
            "Replicas end, or cannot renew the Lease in time. Each new leader reads both systems first.",
        ),
        Alert(
            "SlurmExtenderTokenNearItsEnd",
            _near_its_end("token"),
            "5m",
            Severity.WARNING,
            "Slurm's token ends in {{ $value | humanizeDuration }}",
            "Nobody has rotated it in four fifths of its life. When it is over Slurm rejects every"
            " call.",
        ),
        Alert(
            "SlurmExtenderCertificateNearItsEnd",
            _near_its_end("certificate"),
            "5m",
            Severity.WARNING,
            "The webhooks' certificate ends in {{ $value | humanizeDuration }}",
            "Nobody has renewed it in four fifths of its life. When it is over kube-apiserver rejects"
            " every"
            " Pod that asks for Slurm.",
        ),
        Alert(
            "SlurmExtenderFileRejected",
            "min(slurm_extender_policy_good) == 0 or min(slurm_extender_pools_good) == 0",
            "5m",
            Severity.WARNING,
            "The file of the policy, or of the pools, is wrong",
            "What it said last while it was right still counts. The log names the line.",
        ),
        Alert(
            "SlurmExtenderComponentDegraded",
            degraded("|".join(_HAVE_ALERTS)).replace("=~", "!~"),
            "15m",
            Severity.WARNING,
            "A component of the extender is in trouble: {{ $labels.component }}",
            "/readyz names it, and the log says why.",
        ),
    ),
)

_PLACEMENT: Final = Group(
    "slurm-extender-placement",
    (
        Alert(
            "SlurmExtenderQueueStalled",
            'sum(slurm_extender_waiting_pods{waits_for=~"turn|answer|resources|binding"}) > 0'
            ' and sum(increase(slurm_extender_placeholder_transitions_total{state="Bound"}[15m])) == 0'
            ' and sum(slurm_extender_slurm_nodes{state="idle"}) > 0',
            "15m",
            Severity.WARNING,
            "{{ $value }} Pods wait, none was bound, and nodes are idle",
            "No Pod was bound in a quarter of an hour, though Pods wait for resources and whole nodes"
            " are"
            " idle.",
        ),
        Alert(
            "SlurmExtenderPodsWithoutJob",
            "sum(slurm_extender_pods_without_job) > 0",
            "5m",
            Severity.WARNING,
            "{{ $value }} bound Pods have no job in Slurm",
            "Slurm has lost their jobs and does not start the next ones. It may give their nodes to"
            " native"
            " jobs.",
        ),
        Alert(
            "SlurmExtenderJobsWithoutPod",
            'sum by (kind) (slurm_extender_audit_findings{kind=~"OrphanJob|TwoJobs"}) > 0',
            "10m",
            Severity.WARNING,
            "{{ $value }} placeholders hold resources for no Pod ({{ $labels.kind }})",
            "The leader ends such jobs by itself, at the eviction limiter's pace. These it does not"
            " end.",
        ),
        Alert(
            "SlurmExtenderEvictionsThrottled",
            "sum(slurm_extender_evictions_throttled) > 0",
            "1m",
            Severity.CRITICAL,
            "{{ $value }} deletions are held back by the eviction limiter",
            "So many jobs ended at once that it may be a mistake. They go on as the minute slides on,"
            " unless"
            " somebody stops them.",
        ),
        Alert(
            "SlurmExtenderAuditDrift",
            'sum by (kind) (slurm_extender_audit_findings{kind!~"OrphanJob|TwoJobs|OtherCluster"}) > 0',
            "10m",
            Severity.WARNING,
            "Slurm and Kubernetes differ: {{ $value }} times {{ $labels.kind }}",
            "slurm-extender-audit lists each difference with its cause and its cure.",
        ),
        Alert(
            "SlurmExtenderAuditStale",
            "min(time() - (slurm_extender_audit_last_success_timestamp_seconds > 0)) > 1800",
            "5m",
            Severity.WARNING,
            "The leader has not compared both systems for {{ $value | humanizeDuration }}",
            "Differences are not seen, and orphan jobs not ended.",
        ),
        Alert(
            "SlurmExtenderPrologGateFailing",
            'sum(increase(slurm_extender_gate_answers_total{answer="failed"}[10m])) > 0'
            ' or sum(slurm_extender_drained_nodes{cause="prolog-refused"}) > 0'
            " or sum(slurm_extender_prolog_error_nodes) > 0",
            "10m",
            Severity.WARNING,
            "Nodes' gates get no answer, or have drained nodes",
            "Native jobs fail in their Prolog, and their nodes are drained.",
        ),
    ),
)

_WEBHOOK: Final = Group(
    "slurm-extender-webhooks",
    (
        Alert(
            "SlurmExtenderWebhookFailing",
            "sum by (name) (rate(apiserver_admission_webhook_rejection_count"
            f'{{{_WEBHOOKS},error_type!="no_error"}}[5m])) > 0',
            "5m",
            Severity.CRITICAL,
            "kube-apiserver's calls of {{ $labels.name }} fail, and Pods are rejected",
            "kube-apiserver cannot call the webhook (no replica, network, certificate), or gets an"
            " error.",
        ),
        Alert(
            "SlurmExtenderWebhookSlow",
            "histogram_quantile(0.99, sum by (le, name) (rate("
            f"apiserver_admission_webhook_admission_duration_seconds_bucket{{{_WEBHOOKS}}}[10m]))) > 1",
            "10m",
            Severity.WARNING,
            "{{ $labels.name }} takes {{ $value | humanizeDuration }} for one in a hundred Pods",
            "Whoever creates a Pod waits for it. A webhook is given up after 2 to 5 s.",
        ),
    ),
)

_NODES: Final = Group(
    "slurm-extender-nodes",
    (
        Alert(
            "SlurmExtenderNodesDrainedLong",
            f'time() - min by (cause) ({_OLDEST_DRAIN}{{cause!~"cordoned|tainted"}}) > 3600'
            f' or time() - min by (cause) ({_OLDEST_DRAIN}{{cause=~"cordoned|tainted"}}) > 259200',
            "5m",
            Severity.WARNING,
            "A node is drained by the extender for {{ $value | humanizeDuration }} ({{ $labels.cause"
            " }})",
            "An hour is long for what ends by itself, three days for what people did (cordoned,"
            " tainted).",
        ),
        Alert(
            "SlurmExtenderNodeAgentSilent",
            "max(slurm_extender_agent_nodes)"
            " - (count(time() - node_agent_last_look_timestamp_seconds < 180) or vector(0)) > 0",
            "10m",
            Severity.WARNING,
            "{{ $value }} node agents are silent",
            "Nodes have an agent's condition, and no agent there answers Prometheus and looks. What"
            " was in"
            " force stays so; new Pods get no devices.",
        ),
        Alert(
            "SlurmExtenderLimitsNotApplied",
            f'max by (component, node) (node_agent_component_degraded{{component=~"{_LIMITS}"}}) == 1'
            " or sum by (node) (node_agent_pods_with_less_than_their_jobs) > 0",
            "5m",
            Severity.CRITICAL,
            "On a Node limits are not in force: {{ $labels.node }} {{ $labels.component }}",
            "The kernel or cgroups refuse what the agent tells them, Slurm does not hold its own jobs to"
            " what it granted, or a Pod has less than its job. Pods and jobs may take each other's"
            " devices,"
            " cores or memory.",
        ),
        Alert(
            "SlurmExtenderGresMismatch",
            "sum by (node) (node_agent_gres_mismatches) > 0",
            "10m",
            Severity.WARNING,
            "Kubernetes and Slurm count different numbers of devices on {{ $labels.node }}",
            "slurm.conf's Gres and the kubelet's capacity differ: the node is drained by the agent's"
            " condition.",
        ),
        Alert(
            "SlurmExtenderDevicesFailed",
            "sum by (node, gres) (node_agent_devices_failed) > 0",
            "5m",
            Severity.WARNING,
            "{{ $value }} {{ $labels.gres }} of {{ $labels.node }} cannot be used",
            "The driver says so, or a device's file is gone. The Node's condition names the device.",
        ),
        Alert(
            "SlurmExtenderPoolRollOutStopped",
            "max by (pool) (slurm_extender_pool_stopped) == 1",
            "1m",
            Severity.WARNING,
            "The roll-out of pool {{ $labels.pool }} has stopped",
            "slurmd Pods of the newest revision fail. No other Node gets that revision.",
        ),
    ),
)

GROUPS: Final = (_SYSTEMS, _LEADER, _PLACEMENT, _WEBHOOK, _NODES)
