"""The table of the extender's metrics, each with the question that the metric answers. The program
creates the metrics from this table, and docs/reference/metrics.md lists the table.

The table does not contain the libraries' own metrics: `process_*`, and `http_*` of the listener to which
Slurm's scripts send calls."""

from typing import Final

from service.metrics import Metric


def _gauge(name: str, words: str, question: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "gauge", words, question, labels)


def _counter(name: str, words: str, question: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "counter", words, question, labels)


def _histogram(name: str, words: str, question: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "histogram", words, question, labels)


# Metrics of every replica.

BUILD: Final = _gauge(
    "slurm_extender_build_info",
    "The version of the extender. The value is always 1.",
    "Which version runs? Do all replicas run the same version?",
    ("version",),
)
DEGRADED: Final = _gauge(
    "slurm_extender_component_degraded",
    "1 if a component is degraded. The log has the reason.",
    "Which components have a problem? /readyz has the same names.",
    ("component",),
)
LEADING: Final = _gauge(
    "slurm_extender_leading",
    "1 if this replica leads. One replica leads at a time.",
    "Is there a leader? Which replica leads?",
)
LEASE_TRANSITIONS: Final = _counter(
    "slurm_extender_lease_transitions_total",
    "Number of changes of the Lease's holder, from the Lease itself.",
    "Does the leader change often? All replicas report the same number.",
)
POLICY: Final = _gauge(
    "slurm_extender_policy_good",
    "1 if the policy's current file is valid. If not, the last valid version stays in force.",
    "Is the current policy in force?",
)
POOLS: Final = _gauge(
    "slurm_extender_pools_good",
    "1 if the current file of pools is valid. If not, the last valid version stays in force.",
    "Are the current pools in force?",
)
TOKEN_ISSUED: Final = _gauge(
    "slurm_extender_token_issued_timestamp_seconds",
    "When Slurm's token was issued (`iat`), in UNIX seconds.",
    "How long is the token's lifetime? Has the token been rotated?",
)
TOKEN_ENDS: Final = _gauge(
    "slurm_extender_token_expiration_timestamp_seconds",
    "When Slurm's token expires (`exp`), in UNIX seconds. Absent if the token never expires.",
    "When does Slurm reject every call, unless the token is rotated?",
)
CERTIFICATE_ISSUED: Final = _gauge(
    "slurm_extender_certificate_issued_timestamp_seconds",
    "When the validity of the listeners' certificate begins, in UNIX seconds.",
    "How long is the certificate's lifetime? Has the certificate been renewed?",
)
CERTIFICATE_ENDS: Final = _gauge(
    "slurm_extender_certificate_expiration_timestamp_seconds",
    "When the listeners' certificate expires, in UNIX seconds.",
    "When does kube-apiserver stop calling webhooks, unless the certificate is renewed?",
)
UNASKED_PREEMPTIONS: Final = _counter(
    "slurm_extender_unasked_preemptions_total",
    "Pods that kube-scheduler evicted for a Pod without a grant of Slurm.",
    "Does kube-scheduler's configuration allow useless evictions? Each replica counts all evictions.",
)
NEXT_JOB_ID: Final = _gauge(
    "slurm_extender_next_job_id",
    "The next id for a native job, or the highest native id that the leader has seen.",
    "How far are native ids from the placeholders' range? Do ids start again after a lost state?",
)
FIRST_JOB_ID: Final = _gauge(
    "slurm_extender_job_id_range_first",
    "The first id of the placeholders' range.",
    "Where does the placeholders' range begin?",
)
END_JOB_ID: Final = _gauge(
    "slurm_extender_job_id_range_end",
    "The first id after the placeholders' range.",
    "Where does the placeholders' range end?",
)
SLURMCTLD_STARTED: Final = _gauge(
    "slurm_extender_slurmctld_start_timestamp_seconds",
    "When slurmctld started, or when a backup slurmctld was first seen in control, in UNIX seconds.",
    "Did slurmctld restart? slurmrestd 24.11 also reports another time at midnight UTC.",
)

# Requests and replies.

VERBS: Final = _histogram(
    "slurm_extender_verb_seconds",
    "Time until the reply to kube-scheduler or kube-apiserver begins, by HTTP status.",
    "How fast does the extender reply, and how often with an error?",
    ("verb", "status"),
)
LISTENER_REJECTIONS: Final = _counter(
    "slurm_extender_listener_rejections_total",
    "Requests and connections that a listener rejected or ended, by reason.",
    "Does a client send invalid requests, or too many requests?",
    ("listener", "why"),
)
GATE: Final = _counter(
    "slurm_extender_gate_answers_total",
    "Answers to the gates of nodes before the start of a job.",
    "Do the Prologs of jobs get an answer? Do native jobs wait for Pods that leave?",
    ("answer",),
)
SLURMRESTD_CALLS: Final = _counter(
    "slurm_extender_slurmrestd_calls_total",
    "Requests to slurmrestd. `GET jobs/state` reads all jobs.",
    "Which requests does the extender send to Slurm, and how often?",
    ("call",),
)
SLURMRESTD_BYTES: Final = _counter(
    "slurm_extender_slurmrestd_bytes_total",
    "Bytes of requests to slurmrestd (sent), and of the bodies of the replies (received).",
    "Which requests or replies are large?",
    ("call", "direction"),
)
MALFORMED: Final = _counter(
    "slurm_extender_malformed_entries_total",
    "Entries of slurmrestd's replies that the extender could not read and skipped, by call.",
    "Does Slurm report data that the extender does not understand?",
    ("call",),
)

# Actions of the leader.

TRANSITIONS: Final = _counter(
    "slurm_extender_placeholder_transitions_total",
    "Placeholders that entered a state.",
    "How many Pods are bound, evicted or rejected?",
    ("state",),
)
PLACEMENT: Final = _histogram(
    "slurm_extender_placement_seconds",
    "Time from the first observation of a Pod to the observation of its binding.",
    "How long do Pods wait, including Slurm's queue?",
)
HANDLING: Final = _histogram(
    "slurm_extender_placement_handling_seconds",
    "Time to a Pod's binding, without the waiting time for a turn, the author or Slurm's queue.",
    "How long do Pods wait for the extender, kube-scheduler and Slurm's replies? The SLO counts this"
    " time.",
)
EVICTION: Final = _histogram(
    "slurm_extender_eviction_seconds",
    "Time from the news of a job's end, or coming end, to the Pod's deletion by kube-apiserver.",
    "How long until the grace period of a Pod begins after its job's end? The SLO counts this time.",
)
EFFECTS: Final = _histogram(
    "slurm_extender_effect_seconds",
    "Duration of effects on Slurm and Kubernetes, by outcome.",
    "Which calls to Slurm and Kubernetes are slow, or fail?",
    ("effect", "outcome"),
)
EVICTIONS: Final = _counter(
    "slurm_extender_evictions_total",
    "Pods deleted because their job ended, by the reason for the job's end.",
    "Why does the extender delete Pods: preemption, time limit, cancellation, a lost node?",
    ("reason",),
)
THROTTLED: Final = _gauge(
    "slurm_extender_evictions_throttled",
    "Deletions that the eviction limiter delays, because they exceed the limit for a minute.",
    "Did so many jobs end at once that a person has to look?",
)
JOBS_LOST: Final = _counter(
    "slurm_extender_jobs_lost_total",
    "Jobs of placed Pods that a healthy Slurm no longer knew.",
    "Has slurmctld lost all or a part of its state?",
)
FINDINGS: Final = _gauge(
    "slurm_extender_audit_findings",
    "Differences between Slurm and Kubernetes that the leader's last audit found and confirmed.",
    "Do Slurm and Kubernetes agree?",
    ("kind",),
)
AUDITED: Final = _gauge(
    "slurm_extender_audit_last_success_timestamp_seconds",
    "When this leader last compared Slurm and Kubernetes, in UNIX seconds.",
    "Does the audit still run?",
)

# State of the leader, counted at each scrape.

PLACEHOLDERS: Final = _gauge(
    "slurm_extender_placeholders",
    "Placeholders by state.",
    "How many Pods run, wait, leave?",
    ("state",),
)
WAITING: Final = _gauge(
    "slurm_extender_waiting_pods",
    "Pods that are not bound yet, by the cause of the wait.",
    "Why do Pods wait: a turn, Slurm's reply, resources, limits of the owner, the author?",
    ("waits_for",),
)
OLDEST: Final = _gauge(
    "slurm_extender_waiting_oldest_creation_timestamp_seconds",
    "When the oldest waiting Pod was created, in UNIX seconds. Absent if no Pod waits.",
    "How long has the oldest Pod waited?",
    ("waits_for",),
)
STARTABLE: Final = _gauge(
    "slurm_extender_startable_pods",
    "Pods in Slurm's queue that would fit on a completely idle node of their partition.",
    "Does Slurm leave nodes idle while Pods wait for these nodes? In which partition?",
    ("partition",),
)
BOUND_PODS: Final = _counter(
    "slurm_extender_bound_pods_total",
    "Bound Pods by requested partition. A Pod with several requested partitions counts in each"
    " partition.",
    "Does the queue of a partition move?",
    ("partition",),
)
KEPT_BACK: Final = _gauge(
    "slurm_extender_kept_back",
    "Pods for which the extender requests no job, because the Pod could not use the job, by the"
    " condition's reason.",
    "Which Pods wait for something in Kubernetes: a claim, another gate?",
    ("reason",),
)
WITHOUT_JOB: Final = _gauge(
    "slurm_extender_pods_without_job",
    "Bound Pods whose job Slurm has lost, and whose next job does not run yet.",
    "Which Pods may share their node with native jobs, because Slurm does not count these Pods?",
)
ADOPTED: Final = _gauge(
    "slurm_extender_adopted",
    "Pods that another scheduler bound to Slurm's nodes, by the stage of their jobs.",
    "Does Slurm know the unmanaged Pods?",
    ("stage",),
)
NODES: Final = _gauge(
    "slurm_extender_slurm_nodes",
    "Slurm's nodes with a Kubernetes Node: idle, mixed, allocated, or closed to new jobs.",
    "How much of the cluster is in use, or out of service?",
    ("state",),
)
CPUS: Final = _gauge(
    "slurm_extender_slurm_cpus",
    "Slurm's CPUs on nodes with a Kubernetes Node: allocated, idle, or closed (idle on a closed node).",
    "Is there room for waiting Pods?",
    ("state",),
)
GPUS: Final = _gauge(
    "slurm_extender_slurm_gpus",
    "Slurm's GPUs (GRES gpu) on nodes with a Kubernetes Node: allocated, idle, or closed.",
    "Are GPUs idle while Pods wait for GPUs?",
    ("state",),
)
MEMORY: Final = _gauge(
    "slurm_extender_slurm_memory_bytes",
    "Slurm's memory on nodes with a Kubernetes Node: allocated, idle, or closed.",
    "Do Pods wait for memory?",
    ("state",),
)
PROLOG_ERRORS: Final = _gauge(
    "slurm_extender_prolog_error_nodes",
    "Nodes that Slurm itself drained because their Prolog failed. A person has to resume these nodes.",
    "Do Prologs fail on nodes that the gate could not drain?",
)
AGENTS: Final = _gauge(
    "slurm_extender_agent_nodes",
    "Nodes that are ready and have the condition of a node agent.",
    "How many node agents should run?",
)
DRAINED: Final = _gauge(
    "slurm_extender_drained_nodes",
    "Slurm's nodes that are drained because of a problem in Kubernetes, by cause.",
    "How many nodes does the extender keep out of service, and why?",
    ("cause",),
)
OLDEST_DRAIN: Final = _gauge(
    "slurm_extender_drained_oldest_timestamp_seconds",
    "When the oldest cause of a drain began on its Node, in UNIX seconds.",
    "Has a drained node been forgotten?",
    ("cause",),
)
SUPPRESSED: Final = _gauge(
    "slurm_extender_drains_suppressed",
    "Drains that the extender does not make, because their cause holds on too many nodes at once.",
    "Is Kubernetes at fault, and not its Nodes?",
)
REJECTING: Final = _gauge(
    "slurm_extender_pods_rejecting_nodes",
    "Nodes closed to placeholders because the kubelet rejects Pods: to `all` Pods, or to Pods of one"
    " namespace (`similar`).",
    "Does a Node look idle to Slurm, while its kubelet rejects every Pod?",
    ("closed_to",),
)
POOL_NODES: Final = _gauge(
    "slurm_extender_pool_nodes",
    "Nodes of a pool of slurmd Pods, by state. A Node may have several states.",
    "How far is a roll-out, and what delays the roll-out?",
    ("pool", "nodes"),
)
POOL_STOPPED: Final = _gauge(
    "slurm_extender_pool_stopped",
    "1 if a pool's roll-out has stopped, because slurmd Pods of the newest revision fail.",
    "Does the newest revision of a pool work?",
    ("pool",),
)
_WHOSE = "that would run if the pool had more nodes."
PENDING_JOBS: Final = _gauge(
    "slurm_extender_pool_pending_jobs",
    f"Pending jobs, or tasks of job arrays, {_WHOSE}",
    "Should the pool grow?",
    ("pool",),
)
PENDING_NODES: Final = _gauge(
    "slurm_extender_pool_pending_nodes",
    f"Nodes requested by pending jobs {_WHOSE}",
    "By how many nodes should the pool grow at most?",
    ("pool",),
)
PENDING_CPUS: Final = _gauge(
    "slurm_extender_pool_pending_cpus",
    f"CPUs requested by pending jobs {_WHOSE}",
    "By how many CPUs should the pool grow at most?",
    ("pool",),
)
PENDING_GPUS: Final = _gauge(
    "slurm_extender_pool_pending_gpus",
    f"GPUs requested by pending jobs {_WHOSE}",
    "By how many GPUs should the pool grow at most?",
    ("pool",),
)
JOB_INFO: Final = _gauge(
    "slurm_extender_job_info",
    "1 for each bound Pod and its job (needs SLURM_EXTENDER_JOB_INFO). `user` is a number if Slurm"
    " does not report the name, and empty if the extender has not read the job.",
    "Which user and which account does a Pod belong to?",
    ("job_id", "pod_namespace", "pod_name", "user", "account", "partition"),
)

METRICS: Final[tuple[Metric, ...]] = tuple(
    each for each in tuple(globals().values()) if isinstance(each, Metric)
)
"""All metrics, in the order of their definition."""
