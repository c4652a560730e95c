"""Every metric of the extender with the question that it answers, for the metrics and docs/metrics.md.

The libraries' own metrics are not in the table: `process_*`, and `http_*` of the listener for pushes."""

from typing import Final

from service.metrics import Metric


def _gauge(name: str, words: str, question: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "gauge", words, question, labels)


def _counter(name: str, words: str, question: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "counter", words, question, labels)


def _histogram(name: str, words: str, question: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "histogram", words, question, labels)


# What every replica tells.

BUILD: Final = _gauge(
    "slurm_extender_build_info",
    "The version of the extender; the value is always 1.",
    "Which version runs? Do all replicas run the same one?",
    ("version",),
)
DEGRADED: Final = _gauge(
    "slurm_extender_component_degraded",
    "Whether a component is in trouble; the log says why.",
    "What is in trouble? These are the names that /readyz has.",
    ("component",),
)
LEADING: Final = _gauge(
    "slurm_extender_leading",
    "Whether this replica leads, which one does at a time.",
    "Is there a leader, and which replica is it?",
)
LEASE_TRANSITIONS: Final = _counter(
    "slurm_extender_lease_transitions_total",
    "How often the Lease has changed its holder, as the Lease itself says.",
    "Does the leader change all the time? All replicas tell the same number.",
)
POLICY: Final = _gauge(
    "slurm_extender_policy_good",
    "Whether the policy's file is good as it is now; otherwise the last good one counts.",
    "Does the policy count as it was last written?",
)
POOLS: Final = _gauge(
    "slurm_extender_pools_good",
    "Whether the file of pools is good as it is now; otherwise the last good one counts.",
    "Do the pools count as they were last written?",
)
TOKEN_ISSUED: Final = _gauge(
    "slurm_extender_token_issued_timestamp_seconds",
    "When Slurm's token was issued, by its own word (`iat`), in UNIX seconds.",
    "How long was the token to last? Has it been rotated?",
)
TOKEN_ENDS: Final = _gauge(
    "slurm_extender_token_expiration_timestamp_seconds",
    "When Slurm's token ends, by its own word (`exp`), in UNIX seconds; absent where it never does.",
    "When will Slurm reject every call, if nobody rotates the token?",
)
CERTIFICATE_ISSUED: Final = _gauge(
    "slurm_extender_certificate_issued_timestamp_seconds",
    "From when on the listeners' certificate is valid, in UNIX seconds.",
    "How long was the certificate to last? Has it been renewed?",
)
CERTIFICATE_ENDS: Final = _gauge(
    "slurm_extender_certificate_expiration_timestamp_seconds",
    "When the listeners' certificate ends, in UNIX seconds.",
    "When will kube-apiserver call no webhook any more, if nobody renews the certificate?",
)
UNASKED_PREEMPTIONS: Final = _counter(
    "slurm_extender_unasked_preemptions_total",
    "Pods that kube-scheduler evicted for a Pod that Slurm had not let in.",
    "Is kube-scheduler configured so that it evicts Pods in vain? Each replica counts all of them.",
)
NEXT_JOB_ID: Final = _gauge(
    "slurm_extender_next_job_id",
    "The id that Slurm gives the next job by itself, or the highest such id that the leader has seen.",
    "How far are native jobs from the placeholders' ids? Has Slurm lost its state and begun at 1 again?",
)
FIRST_JOB_ID: Final = _gauge(
    "slurm_extender_job_id_range_first",
    "The first id of the placeholders' range.",
    "Where do the placeholders' ids begin?",
)
END_JOB_ID: Final = _gauge(
    "slurm_extender_job_id_range_end",
    "The end of the placeholders' range: the first id after it.",
    "Where do the placeholders' ids end?",
)
SLURMCTLD_STARTED: Final = _gauge(
    "slurm_extender_slurmctld_start_timestamp_seconds",
    "When slurmctld started, or when a backup was first seen to lead, in UNIX seconds.",
    "Was slurmctld restarted? slurmrestd 24.11 also tells another time at midnight UTC.",
)

# What is asked and answered.

VERBS: Final = _histogram(
    "slurm_extender_verb_seconds",
    "Requests of kube-scheduler and kube-apiserver until the reply begins, by HTTP status.",
    "How fast are kube-scheduler and kube-apiserver answered, and how often with an error?",
    ("verb", "status"),
)
LISTENER_REJECTIONS: Final = _counter(
    "slurm_extender_listener_rejections_total",
    "Requests and connections that a listener rejected or ended, by why.",
    "Does somebody send what no caller should send, or too much?",
    ("listener", "why"),
)
GATE: Final = _counter(
    "slurm_extender_gate_answers_total",
    "What the gates of nodes were told when a job was about to start there.",
    "Do the Prologs of jobs get an answer, and do native jobs wait for Pods that leave?",
    ("answer",),
)
SLURMRESTD_CALLS: Final = _counter(
    "slurm_extender_slurmrestd_calls_total",
    "Requests to slurmrestd; `GET jobs/state` is about all jobs.",
    "What does the extender ask of Slurm, and how often?",
    ("call",),
)
SLURMRESTD_BYTES: Final = _counter(
    "slurm_extender_slurmrestd_bytes_total",
    "What these requests (sent) and the bodies of their replies (received) came to.",
    "Which of these calls are large?",
    ("call", "direction"),
)
MALFORMED: Final = _counter(
    "slurm_extender_malformed_entries_total",
    "Entries of slurmrestd's replies that could not be read and were passed over, by the call.",
    "Does Slurm say something that the extender does not understand?",
    ("call",),
)

# What the leader does.

TRANSITIONS: Final = _counter(
    "slurm_extender_placeholder_transitions_total",
    "Placeholders that came into a state.",
    "How many Pods are bound, evicted or rejected?",
    ("state",),
)
PLACEMENT: Final = _histogram(
    "slurm_extender_placement_seconds",
    "From a Pod first seen to its binding seen.",
    "How long do Pods wait, Slurm's queue included?",
)
HANDLING: Final = _histogram(
    "slurm_extender_placement_handling_seconds",
    "The same without the time in which the Pod waited for its turn, its author or Slurm's queue.",
    "How long do Pods wait for the extender, kube-scheduler and Slurm's answers? The SLO counts these.",
)
EVICTION: Final = _histogram(
    "slurm_extender_eviction_seconds",
    "From the news that a Pod's job has ended, or is to end, to the Pod's deletion by kube-apiserver.",
    "How long does it take until the grace of a Pod begins that has to go? The SLO counts these.",
)
EFFECTS: Final = _histogram(
    "slurm_extender_effect_seconds",
    "Effects carried out on Slurm and Kubernetes, by how they ended.",
    "Which calls to both systems are slow, or fail?",
    ("effect", "outcome"),
)
EVICTIONS: Final = _counter(
    "slurm_extender_evictions_total",
    "Pods deleted because their job ended, by why it did.",
    "Why do Pods go: preempted, timed out, cancelled, a node lost?",
    ("reason",),
)
THROTTLED: Final = _gauge(
    "slurm_extender_evictions_throttled",
    "Deletions that the eviction limiter holds back: more than may be in a minute.",
    "Did so many jobs end at once that a person should look?",
)
JOBS_LOST: Final = _counter(
    "slurm_extender_jobs_lost_total",
    "Jobs of placed Pods that a healthy Slurm did not know any more.",
    "Has slurmctld lost its state, or a part of it?",
)
FINDINGS: Final = _gauge(
    "slurm_extender_audit_findings",
    "Differences between both systems that the leader's last audit found and confirmed.",
    "Do both systems agree?",
    ("kind",),
)
AUDITED: Final = _gauge(
    "slurm_extender_audit_last_success_timestamp_seconds",
    "When this leader last compared both systems, in UNIX seconds.",
    "Is anybody looking whether they agree?",
)

# What the leader counts when the metrics are read.

PLACEHOLDERS: Final = _gauge(
    "slurm_extender_placeholders",
    "Placeholders by state.",
    "How many Pods run, wait, leave?",
    ("state",),
)
WAITING: Final = _gauge(
    "slurm_extender_waiting_pods",
    "Pods that are not bound yet, by what they wait for.",
    "What do Pods wait for: a turn, Slurm's answer, resources, their owner's limits, their authors?",
    ("waits_for",),
)
OLDEST: Final = _gauge(
    "slurm_extender_waiting_oldest_creation_timestamp_seconds",
    "When the oldest of these Pods was created, in UNIX seconds; absent where none waits.",
    "For how long has the Pod waited that has waited longest?",
    ("waits_for",),
)
STARTABLE: Final = _gauge(
    "slurm_extender_startable_pods",
    "Pods in Slurm's queue that would fit on a node of their partition that is idle as a whole.",
    "Does Slurm leave nodes idle that Pods wait for? In which partition?",
    ("partition",),
)
BOUND_PODS: Final = _counter(
    "slurm_extender_bound_pods_total",
    "Pods that were bound, by the partitions that they had asked for: one of several in each of them.",
    "Does the queue of a partition move?",
    ("partition",),
)
KEPT_BACK: Final = _gauge(
    "slurm_extender_kept_back",
    "Pods for which no job is asked, since they could not use it, by what their condition says.",
    "Which Pods wait for something in Kubernetes: a claim, another gate?",
    ("reason",),
)
WITHOUT_JOB: Final = _gauge(
    "slurm_extender_pods_without_job",
    "Bound Pods whose job Slurm has lost, and whose next one does not run yet.",
    "Which Pods may share their node with native jobs, since Slurm does not count them?",
)
ADOPTED: Final = _gauge(
    "slurm_extender_adopted",
    "Pods that another scheduler bound to Slurm's nodes, by where the jobs for them stand.",
    "Does Slurm know of unmanaged Pods?",
    ("stage",),
)
NODES: Final = _gauge(
    "slurm_extender_slurm_nodes",
    "Slurm's nodes for which a Node stands: idle, mixed, allocated, or closed to new jobs.",
    "How much of the cluster is in use, or out of service?",
    ("state",),
)
CPUS: Final = _gauge(
    "slurm_extender_slurm_cpus",
    "CPUs of these nodes, as Slurm counts them: allocated, idle, or closed (idle, on a closed node).",
    "Is there room for Pods that wait?",
    ("state",),
)
GPUS: Final = _gauge(
    "slurm_extender_slurm_gpus",
    "GPUs of these nodes (GRES gpu), likewise.",
    "Do GPUs stand idle while Pods wait for them?",
    ("state",),
)
MEMORY: Final = _gauge(
    "slurm_extender_slurm_memory_bytes",
    "Memory of these nodes, likewise.",
    "Is memory what Pods wait for?",
    ("state",),
)
PROLOG_ERRORS: Final = _gauge(
    "slurm_extender_prolog_error_nodes",
    "Nodes that Slurm itself has drained since their Prolog failed; a person has to resume them.",
    "Do Prologs fail without the gate being able to drain the node itself?",
)
AGENTS: Final = _gauge(
    "slurm_extender_agent_nodes",
    "Nodes that are ready, and on which a node agent has written its condition.",
    "How many node agents should there be?",
)
DRAINED: Final = _gauge(
    "slurm_extender_drained_nodes",
    "Slurm's nodes that are drained for what is wrong in Kubernetes, by what that is.",
    "How many nodes does the extender keep out of service, and why?",
    ("cause",),
)
OLDEST_DRAIN: Final = _gauge(
    "slurm_extender_drained_oldest_timestamp_seconds",
    "Since when the Node of these nodes is out of service that is so for the longest, in UNIX seconds.",
    "Has a node been forgotten that the extender drained?",
    ("cause",),
)
SUPPRESSED: Final = _gauge(
    "slurm_extender_drains_suppressed",
    "Nodes that are not ready, while they are too many for any more to be drained.",
    "Is Kubernetes in trouble rather than its Nodes?",
)
REJECTING: Final = _gauge(
    "slurm_extender_pods_rejecting_nodes",
    "Nodes that are closed to new placeholders because their kubelets reject Pods: to `all` Pods, or to"
    " similar Pods or all Pods of one namespace (`similar`).",
    "Does a Node look idle to Slurm, while its kubelet rejects every Pod?",
    ("closed_to",),
)
POOL_NODES: Final = _gauge(
    "slurm_extender_pool_nodes",
    "Nodes of a pool of slurmd Pods, by what they are; one may be several of these.",
    "How far is a roll-out, and what holds it up?",
    ("pool", "nodes"),
)
POOL_STOPPED: Final = _gauge(
    "slurm_extender_pool_stopped",
    "Whether a pool's roll-out has stopped, since slurmd Pods of the newest revision fail.",
    "Does the newest revision of a pool work?",
    ("pool",),
)
_WHOSE = "that would run if the pool had more nodes."
PENDING_JOBS: Final = _gauge(
    "slurm_extender_pool_pending_jobs",
    f"Pending jobs, or tasks of arrays, {_WHOSE}",
    "Should the pool grow?",
    ("pool",),
)
PENDING_NODES: Final = _gauge(
    "slurm_extender_pool_pending_nodes",
    f"Nodes that the pending jobs ask for {_WHOSE}",
    "By how many nodes should it grow at most?",
    ("pool",),
)
PENDING_CPUS: Final = _gauge(
    "slurm_extender_pool_pending_cpus",
    f"CPUs that the pending jobs ask for {_WHOSE}",
    "The same in CPUs.",
    ("pool",),
)
PENDING_GPUS: Final = _gauge(
    "slurm_extender_pool_pending_gpus",
    f"GPUs that the pending jobs ask for {_WHOSE}",
    "The same in GPUs.",
    ("pool",),
)
JOB_INFO: Final = _gauge(
    "slurm_extender_job_info",
    "1 for each bound Pod, with the job of the Pod; with SLURM_EXTENDER_JOB_INFO only. `user` is a"
    " number if Slurm does not report the name, and empty if the extender has not read the job.",
    "Which user and which account does a Pod belong to?",
    ("job_id", "pod_namespace", "pod_name", "user", "account", "partition"),
)

METRICS: Final[tuple[Metric, ...]] = tuple(
    each for each in tuple(globals().values()) if isinstance(each, Metric)
)
"""All of them, in this order."""
