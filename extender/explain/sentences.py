"""One sentence for each kind of cause. No other module makes sentences from causes."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from extender.explain.cause import Cause, Fact, Kind
from extender.explain.pending_reasons import explained
from extender.explain.quantities import (
    DAY_S,
    amounts,
    clock,
    duration,
    listed,
    over_limit,
    too_few_nodes,
    too_large,
    too_small,
    with_node_names,
)
from extender.explain.wording import NO_DRA
from slurm_client import gres
from wellknown import number_list
from wellknown.quoting import quoted

_FAR_S: Final = 90 * DAY_S
"""Slurm's backfill scheduler plans 365 days for a job without a time limit. If Slurm expects a start
after more than 90 days, the start is planned behind such a job."""
_OF_ONE: Final = {"have": "has", "do": "does", "are": "is"}
_OWN: Final = (
    "Pods with the same Slurm user (or namespace, if the Pod has no user), account, QOS and reservation"
)
_NO_JOB: Final = "; the extender requests no job until"
_Owner = tuple[int | None, int | None]
"""The numbers of a user and a group."""
_Devices = tuple[str, tuple[int, ...]]
"""A GRES, and Slurm's numbers of the devices."""


def sentence(cause: Cause) -> str:
    """Returns the sentence of a cause, with a full stop only if more sentences may follow."""
    template, facts = SENTENCES[cause.kind], with_node_names(cause.facts)
    if callable(template):
        return template(**facts)
    return template.format(**{name: _fact(value) for name, value in facts.items()})


def _fact(value: Fact) -> str:
    if isinstance(value, Cause):
        return sentence(value)
    if isinstance(value, tuple):
        return ("; " if any(isinstance(each, Cause) for each in value) else ", ").join(map(_fact, value))
    return str(value)


# Nodes are closed to the Pod: the Pod cannot use these Nodes


def _closed_nodes(total: int, closed: tuple[tuple[int, Cause], ...], others: int) -> str:
    if not total:
        return "no Node stands for any node of the partition"
    parts = [_closed_by(number, sentence(cause)) for number, cause in closed]
    parts += [f"{others} for other reasons"] if others else []
    return f"0/{total} Nodes: {', '.join(parts)}"


def _closed_by(number: int, words: str) -> str:
    verb, _, rest = words.partition(" ")
    return f"{number} {_OF_ONE[verb] if number == 1 else verb} {rest}"


# The job waits in Slurm


def _waiting_job(job: int, partition: str, since: int | None) -> str:
    where = f"in partition {partition}"
    if since is None:
        return f"Slurm job {job} waits {where}"
    return f"Slurm job {job} has waited {where} since {clock(since)} UTC"


def _time_limit_too_long(limit_s: int, most_s: int) -> str:
    limit, most = duration(limit_s), duration(most_s)
    return f"the job's time limit of {limit} is longer than the {most} that the partition allows"


def _plan(start: int | None, since: int | None, remark: str) -> str:
    """Returns sentences with the start that Slurm expects, and with Slurm's own longer text, if Slurm
    has such a text."""
    return "".join(f" {each}" for each in (*_start(start, since), *_remark(remark)))


def _start(start: int | None, since: int | None) -> Iterator[str]:
    if start is None:
        return
    if since is not None and start - since > _FAR_S:
        yield "Slurm cannot plan the start: earlier jobs have no time limit, or a limit of months."
    else:
        same_day = since is not None and start // DAY_S == since // DAY_S
        yield f"Slurm expects the job to start about {clock(start)[-5 if same_day else 0 :]} UTC."


def _remark(remark: str) -> Iterator[str]:
    if remark:
        yield f"Slurm says: {remark.rstrip('.')}."


# Slurm refuses the job


def _refused_value(asker: Cause, value: str, user: int | None) -> str:
    return f"{sentence(asker)}: {quoted(value)}{_for_user(user)}"


def _for_user(user: int | None) -> str:
    """Returns a phrase with the job's user, because Slurm grants accounts and QOS to single users."""
    return "" if user is None else f", for user {user}"


def _known_features(partition: str, features: tuple[str, ...], more: int) -> str:
    has = f"the features {listed(features, more)}" if features else "no features"
    return f"the nodes of partition {partition} have {has}"


def _refused_right(what: str, name: str | None, user: str, partition: str, has: Cause) -> str:
    right = f"{what} {quoted(name)}" if name else f"the default {what}"
    return f"Slurm refuses {right} of {user} in partition {partition}; {sentence(has)}"


def _own_accounts(user: str, accounts: tuple[tuple[str, str | None], ...], more: int) -> str:
    named = (f"{name} (partition {where})" if where else name for name, where in accounts)
    return f"accounts of {user}: {listed(named, more)}"


# The job is requested, is replaced, or has ended


def _invalid_request(problems: tuple[str, ...]) -> str:
    return "; ".join(problems)


def _one_at_a_time(turn_s: float, pod: str, job: int | None) -> str:
    rule = (
        "the Pod waits in line: Pods of this template must be placed apart, so the extender asks Slurm"
        f" for one Pod at a time, and waits up to {turn_s:.0f} s for each queued job"
    )
    asked = "" if job is None else f" (Slurm job {job})"
    return f"{rule}; at the time of this message, for Pod {pod}{asked}" if pod else rule


def _not_bindable(in_a_row: int, message: str) -> str:
    return (
        f"kube-scheduler did not bind the Pod to the Node that Slurm chose{_times(in_a_row)}:"
        f" {message or 'kube-scheduler gave no reason'}{_NO_JOB} kube-scheduler finds a Node"
    )


def _times(in_a_row: int) -> str:
    return "" if in_a_row <= 1 else f", {in_a_row} times in a row"


def _node_refused(node: str, message: str) -> str:
    return f"kube-scheduler refused {node}, which Slurm chose{_after_colon(message)}"


def _nodes_refused(nodes: str, message: str, several: bool) -> str:
    last = " (the last)" if several and message else ""
    return f"kube-scheduler refused {nodes}{last}{_after_colon(message)}"


def _after_colon(message: str) -> str:
    return f": {message}" if message else ""


def _other_owner(job: int, owner: _Owner, asked: _Owner) -> str:
    return f"Slurm gave job {job} to {_owner(*owner)} instead of {_owner(*asked)}: the job is cancelled"


def _owner(user: int | None, group: int | None) -> str:
    named = (("user", user), ("group", group))
    return " and ".join(f"{what} {number}" for what, number in named if number is not None)


def _other_devices(job: int, has: tuple[_Devices, ...], runs_on: tuple[_Devices, ...]) -> str:
    return f"Slurm job {job} has {_devices(has)} now, and the Pod runs on {_devices(runs_on)}"


def _devices(of: tuple[_Devices, ...]) -> str:
    called = ((f"{name} of gpu" if name in gres.SHARED else name, name, numbers) for name, numbers in of)
    return " and ".join(
        f"{words} {number_list.compress(numbers)}" if numbers else f"no {name}"
        for words, name, numbers in called
    )


def _kubelet_rejects_pods(number: int, last: str, message: str, pause_s: float, closed_to: Cause) -> str:
    many = f"{number} Pods" if number > 1 else "another Pod"
    until = "such a Pod" if closed_to.kind is Kind.PODS_LIKE else "a Pod with the same devices"
    return (
        f"the kubelet rejected {many}, the last of them {last}: {message}. The extender places no"
        f" {sentence(closed_to)} here for {pause_s:.0f} s, or until {until} starts"
    )


def _bound_and_job_waits(node: str, job: int, word: str) -> str:
    why = f" ({word})" if word else ""
    return (
        f"the Pod runs on {node}; Slurm has lost the Pod's job, and the new job {job} waits for the"
        f" Node{why}: other jobs have the room there, or the Node is not open"
    )


def _granted(job: int, node: str, waited_s: float | None, ours_s: float) -> str:
    words = f"Slurm job {job} runs on Node {node}"
    if waited_s is None:
        return words
    whole = duration(max(waited_s, ours_s))
    return f"{words}; the Pod waited {whole}, {duration(ours_s)} of it for slurm-extender"


SENTENCES: Final[Mapping[Kind, str | Callable[..., str]]] = {
    Kind.IN_LINE: f"the Pod waits in line: no more {_OWN} may wait in Slurm's queue at a time",
    Kind.NO_PLACE: (
        "the Pod waits in line: Slurm's queue fills up, and MaxJobCount leaves no more places for"
        f" {_OWN}"
    ),
    Kind.ONE_AT_A_TIME: _one_at_a_time,
    Kind.PODS_MISSING: "{exist} of {size} Pods of the gang {gang} exist",
    Kind.GANG_FULL: "the gang already has all {size} Pods",
    Kind.GANG_BEGUN: "the gang started without this Pod: the Pod waits until the gang has ended",
    Kind.GATED: "other scheduling gates hold the Pod back: {gates}",
    Kind.CLAIM_MISSING: f"{{claim}} not found{_NO_JOB} the claim exists",
    Kind.CLAIM_NOT_CREATED: f"{{claim}} has not been created{_NO_JOB} the claim exists",
    Kind.CLAIM_DELETED: f"{{claim}} is being deleted{_NO_JOB} the claim is replaced",
    Kind.CLAIM_OF_OTHER_POD: f"{{claim}} was not created for this Pod{_NO_JOB} the claim is replaced",
    Kind.CLAIM_LOST: f'{{claim}} has lost PersistentVolume "{{volume}}"{_NO_JOB} the claim is replaced',
    Kind.CLAIM_UNBOUND: f"{{claim}} is not bound ({{why}}){_NO_JOB} the claim is bound",
    Kind.VOLUME_MISSING: (
        f'{{claim}} is bound to PersistentVolume "{{volume}}", not found{_NO_JOB} the volume exists'
    ),
    Kind.CLAIM: lambda kind, name, entry: f'{kind} "{name}"' if name else f'{kind} for "{entry}"',
    Kind.VOLUME_NOT_BOUND: 'the claim names PersistentVolume "{volume}"',
    Kind.NO_CLASS: "the claim has no StorageClass",
    Kind.CLASS_MISSING: 'StorageClass "{name}" does not exist',
    Kind.CLASS_WITHOUT_WAIT: 'StorageClass "{name}" does not wait for a Pod',
    Kind.NOT_BINDABLE: _not_bindable,
    Kind.NOT_WRITABLE: lambda in_a_row: (
        f"the extender could not write Slurm's allocation onto the Pod in time{_times(in_a_row)};"
        " the extender requests another job later"
    ),
    Kind.NO_OPEN_NODE: "no Node of partition {partition} is open to this Pod: {closed}",
    Kind.REQUEST_REPEATED: "{message}; the Pod waits, and the extender repeats the request",
    Kind.CLOSED_NODES: _closed_nodes,
    Kind.CORDONED: "are cordoned",
    Kind.TAINTED: "have taint {{{key}: {value}}} that the Pod does not tolerate",
    Kind.OTHER_LABEL: "do not match node selector {key}={value}",
    Kind.OTHER_AFFINITY: "do not match the Pod's required node affinity",
    Kind.APART_FROM_VOLUMES: "are not where the Pod's volumes are",
    Kind.WITHOUT_AGENT: "have no node agent to give the Pod exactly the GPUs of the job",
    Kind.NOT_SERVED: f"have no allocatable {{resource}} ({NO_DRA})",
    Kind.NOT_REQUIRED: "are not among the Pod's required-nodes",
    Kind.EXCLUDED_BY_POD: "are among the Pod's excluded-nodes",
    Kind.BESIDE_PODS: "have Pods that the Pod must be apart from, or too many for the topology spread",
    Kind.EXCLUDED: "are excluded for a while",
    Kind.REJECTING: "have a kubelet that rejects Pods",
    Kind.NOT_FOUND: "are not among the Nodes that kube-scheduler found",
    Kind.WAITS: "{job}: {why} ({word}); the job requests {asks}.",
    Kind.WAITS_TOO_LARGE: "{large}. {job} ({word}).",
    Kind.WAITING_JOB: _waiting_job,
    Kind.PENDING_REASON: lambda word: explained(word).sentence,
    Kind.HELD_BY_AUTHOR: (
        'the author of the Pod holds the job by the annotation priority: "0", until an administrator of'
        " Slurm releases the job"
    ),
    Kind.TIME_LIMIT_TOO_LONG: _time_limit_too_long,
    Kind.REQUESTED_AMOUNTS: lambda of, whole_node: (
        ("a whole node with " if whole_node else "") + amounts(of)
    ),
    Kind.PLAN: _plan,
    Kind.INVALID_REQUEST: _invalid_request,
    Kind.REFUSED_BY_SLURM: "{parts}",
    Kind.SLURM_REFUSES: "Slurm refuses the job: {message}",
    Kind.REFUSED_VALUE: _refused_value,
    Kind.REFUSED_MINUTES: "{asker}: {minutes} minutes",
    Kind.REFUSED_DEFAULT: lambda annotation, user: (
        f"no annotation {annotation}: Slurm's default{_for_user(user)}"
    ),
    Kind.BY_PRIORITY_CLASS: "priorityClassName {name}, for the {field}",
    Kind.BY_POLICY: "the policy of slurm-extender, for the {field}",
    Kind.BY_ANNOTATION: "annotation {names}",
    Kind.KNOWN_PARTITIONS: lambda partitions, more: f"Slurm has {listed(partitions, more)}",
    Kind.ALLOWED_MINUTES: lambda limits: ", ".join(
        f"partition {name} allows {most} minutes" for name, most in limits
    ),
    Kind.KNOWN_FEATURES: _known_features,
    Kind.WITHOUT_ACCOUNT: "{user} has no account",
    Kind.OTHER_ACCOUNTS: lambda user, account, has: (
        f"{user} has no account {quoted(account)}; {sentence(has)}"
    ),
    Kind.ACCOUNT_REFUSED: partial(_refused_right, "account"),
    Kind.OTHER_QOS: lambda user, qos, has: f"{user} has no QOS {quoted(qos)}; {sentence(has)}",
    Kind.QOS_REFUSED: partial(_refused_right, "QOS"),
    Kind.RESERVATION_UNKNOWN: lambda name, has: (
        f"Slurm has no reservation {quoted(name)}; {sentence(has)}"
    ),
    Kind.RESERVATION_REFUSED: lambda user, name, has: (
        f"{user} may not use reservation {quoted(name)}; {sentence(has)}"
    ),
    Kind.OWN_ACCOUNTS: _own_accounts,
    Kind.OWN_QOS: lambda user, account, qos, more: (
        f"QOS of {user} in account {account}: {listed(qos, more)}"
    ),
    Kind.OWN_RESERVATIONS: lambda user, names, more: (
        f"reservations of {user}: {listed(names, more)}" if names else f"{user} has no reservation"
    ),
    Kind.TOO_LARGE: too_large,
    Kind.TOO_FEW_NODES: too_few_nodes,
    Kind.OVER_LIMIT: over_limit,
    Kind.TOO_SMALL: too_small,
    Kind.HELD: "{job}: {why} ({word}); the job requests {asks}",
    Kind.HELD_TOO_LARGE: "{large}. {job} ({word})",
    Kind.UNKNOWN_USER: "slurmctld does not know user {user} (is sssd running on its host?)",
    Kind.OTHER_OWNER: _other_owner,
    Kind.ALTERED_AT_ONCE: (
        "Slurm job {job} differs from the request: {lacks}. A job_submit plugin, or the job's owner,"
        " has changed the job. The extender cancels the job"
    ),
    Kind.WITHOUT_KEY: (
        "Slurm job {job} does not have the AdminComment of the request: a job_submit plugin, or an"
        " administrator, overwrites AdminComments. The extender cancels the job"
    ),
    Kind.NOT_STARTED: lambda job, nodes: (
        f"Slurm job {job} was cancelled on {nodes or 'the granted nodes'} before the start"
    ),
    Kind.ERROR_CODES: " ({codes})",
    Kind.ALLOCATED: "Slurm job {job} runs on Node {node}",
    Kind.GRANTED: _granted,
    Kind.CORES_IN_USE: (
        "Slurm gave job {job} cores or devices of {node} that another Pod still uses; the extender waits"
        " for that Pod"
    ),
    Kind.CLOSED_BY_PODS: "Slurm chose {nodes}, which other Pods close to this Pod",
    Kind.NODES_REJECTED: "kube-scheduler does not let the Pod onto {nodes}, which Slurm chose",
    Kind.NODE_REFUSED: _node_refused,
    Kind.NODES_REFUSED: _nodes_refused,
    Kind.NOT_BOUND: "the Pod could not be bound to {nodes} before the deadline",
    Kind.NODES_UNKNOWN: "Slurm chose {nodes}, for which no Node stands",
    Kind.NODES_SHARED: "Slurm chose {nodes}, and one Node stands for several of these nodes",
    Kind.GRANT_INDIVISIBLE: lambda nodes, pods: (
        f"Slurm chose {nodes or 'no node'}, and the cores and devices there cannot be divided"
        f" among {pods} Pods"
    ),
    Kind.GRANT_WITHOUT_GRES: lambda nodes, gres: (
        f"Slurm chose {nodes}, and granted no {', '.join(gres)}: if Slurm counts the devices"
        " of these nodes without files (gres.conf), set the annotation members-per-node"
    ),
    Kind.REQUEST_CHANGED: "the request of the Pod differs from the job",
    Kind.JOB_REPLACED: "Slurm job {job} was cancelled to be replaced",
    Kind.JOB_ALTERED: "Slurm job {job} differs from the request: {lacks}; the extender replaces the job",
    Kind.GANG_LACKS_POD: "a Pod of the gang is gone: the gang waits for another Pod",
    Kind.JOB_LOST_AND_REPEATED: (
        "Slurm no longer knows job {job}: the extender requests another job on the Node of the Pod"
    ),
    Kind.NODE_FAILED_AND_REPEATED: (
        "Slurm job {job} lost its node in Slurm, and the Pod runs on: the extender requests another job"
    ),
    Kind.JOB_WAITS_FOR_POD: "Slurm job {job} waits for the Node where the Pod runs",
    Kind.NODE_UNNAMED: "Slurm job {job} runs on {node}, for which no Node stands",
    Kind.UPDATE_REFUSED: "Slurm repeatedly refuses requests about job {job}: {message}",
    Kind.KEY_OVERWRITTEN: "the AdminComment is overwritten",
    Kind.OTHER_NAME: "the job's name is {name}",
    Kind.OTHER_NODE_COUNT: "the job has {nodes} nodes instead of {asked}",
    Kind.OTHER_PARTITION: "the job is in partition {partition} instead of {asked}",
    Kind.OTHER_USER: lambda owner, asked: (
        f"the job belongs to user {owner[0]} and group {owner[1]} instead of {asked[0]} and {asked[1]}"
    ),
    Kind.FEWER_TASKS: "the job has {tasks} tasks instead of {asked}",
    Kind.FEWER_CPUS: "the job has {cpus} CPUs instead of {asked}",
    Kind.LESS_MEMORY: "the job has {memory_mb} MiB of memory instead of {asked}",
    Kind.LESS_GRES: "the job has {number} of GRES {name} instead of {asked}",
    Kind.SHORTER_TIME_LIMIT: "the job's time limit is {minutes} minutes instead of {asked}",
    Kind.STARTED_AGAIN: "Slurm has started the job again",
    Kind.SUSPENDED: "the job was suspended",
    Kind.OTHER_DEVICES: _other_devices,
    Kind.JOB_CANCELLED: "Slurm job {job} was cancelled in Slurm ({state})",
    Kind.JOB_PREEMPTED: "Slurm job {job} was preempted by Slurm ({state})",
    Kind.JOB_IN_GRACE_TIME: "Slurm job {job} is being preempted: the GraceTime has begun",
    Kind.JOB_TIMEOUT: "Slurm job {job} reached its time limit in Slurm ({state})",
    Kind.JOB_DEADLINE: "Slurm job {job} reached its deadline in Slurm ({state})",
    Kind.NODE_FAILED: "Slurm job {job} lost its node in Slurm ({state})",
    Kind.NODE_FAILED_AT_BOOT: "Slurm job {job} lost its node in Slurm while the node booted ({state})",
    Kind.JOB_COMPLETED: "Slurm job {job} was completed in Slurm ({state})",
    Kind.JOB_SUSPENDED: "Slurm job {job} was suspended in Slurm ({state})",
    Kind.JOB_RESUMED: (
        "Slurm job {job} was suspended and resumed in Slurm: another job may have its cores"
    ),
    Kind.JOB_REQUEUED: "Slurm job {job} was requeued in Slurm ({state})",
    Kind.JOB_ENDED: "Slurm job {job} ended in Slurm ({state})",
    Kind.JOB_FORGOTTEN: "the Pod's job in Slurm ended, and Slurm has forgotten the job",
    Kind.JOB_LOST: "Slurm no longer knows job {job}",
    Kind.JOB_STARTED_ELSEWHERE: "Slurm job {job} was started again on {nodes}",
    Kind.DEVICES_TAKEN: "{taken}",
    Kind.GANG_BROKEN: "the gang can no longer be bound as a whole",
    Kind.MANY_EVICTIONS: (
        "very many Pods are to be evicted at once: this Pod runs on until its turn comes"
    ),
    Kind.POD_ENDED: "{end}",
    Kind.POD_DELETED: "Pod deleted",
    Kind.POD_BOUND_ELSEWHERE: "Pod was bound without this job",
    Kind.POD_MISSED: "Pod is missing from the list of all Pods",
    Kind.JOB_NOT_NEEDED: "Pod no longer needs the job",
    Kind.KUBELET_REJECTS_PODS: _kubelet_rejects_pods,
    Kind.PODS_LIKE: "Pods like {pod}",
    Kind.PODS_OF_OWNER: lambda namespace, user: (
        f"Pods of namespace {namespace}" + (f", Slurm user {user}" if user else "")
    ),
    Kind.ALL_PODS: "Pods",
    Kind.JOB_WITHOUT_OUR_KEY: (
        "job {job} ({name}) has an id in the placeholders' range, and no key of the extender"
    ),
    Kind.JOB_OF_OTHER_CLUSTER: (
        "job {job} is the placeholder of {pod} in the Kubernetes cluster {cluster}"
    ),
    Kind.JOB_WITH_OTHER_COMMENT: (
        "job {job} is a placeholder of {name}, and has another AdminComment than the extender wrote"
    ),
    Kind.ORPHAN_JOB: "job {job} is {state} for {pod}, and {why}",
    Kind.ATTEMPT_OVER: "the Pod, or attempt {attempt} to place the Pod, is over",
    Kind.POD_INVALID: "the request of the Pod is invalid",
    Kind.OTHER_JOB_NAMED: "annotation {annotation} of the Pod names job {job}, not the Pod's own job",
    Kind.SECOND_JOB: "job {job} is {state} for a Pod that has job {kept}",
    Kind.BOUND_BY_OTHERS: "the Pod was bound to {node} without the extender, and has no job in Slurm",
    Kind.BOUND_AND_JOB_UNKNOWN: "the Pod is bound to {node}, and Slurm does not know its job {job}",
    Kind.BOUND_AND_JOB_WAITS: _bound_and_job_waits,
    Kind.BOUND_AND_JOB_OVER: "the Pod is bound to {node}, and the Pod's job {job} is {state}",
    Kind.BOUND_BESIDE_JOB: lambda node, job, runs_on, slurm_node: (
        f"the Pod is bound to {node}, and the Pod's job {job} runs on"
        f" {runs_on or f'{slurm_node}, for which no Node stands'}"
    ),
    Kind.WAITS_WITHOUT_JOB: lambda job, state: (
        f"the Pod waits with job {job}, which is {state or 'unknown to Slurm'}"
    ),
    Kind.GATED_AND_JOB_RUNS: "job {job} runs, but the extender's scheduling gate still holds the Pod",
    Kind.GATED_WITHOUT_CAUSE: (
        "the extender's scheduling gate holds the Pod back without a job, and the condition of the Pod"
        " has no reason"
    ),
    Kind.CONTESTED_NODE: "{message}",
    Kind.DRAIN_OUTDATED: "drained ({reason}), and the reason no longer holds for Node {node}",
}
