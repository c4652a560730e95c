"""The checks of what slurmrestd tells: its API, the token, and slurm.conf."""

from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from extender.pod_request.grace_period import KUBELET_S, KUBERNETES_DEFAULT_S, GraceRule
from extender.preflight.facts import API, TOKEN, Facts, NotKnown, Unread, known, reported
from extender.preflight.result import Check, Finding, failed, passed, some, warned
from slurm_client.negotiation import KNOWN
from wellknown.job_key import encroaching

_ENDS_SOON_S: Final = 7 * 24 * 3600.0
_HOOK: Final = "slurm-extender-hook"
_GATE: Final = "slurm-extender-gate"
"""The programs of deploy/slurm."""
_BATCH: Final = "it has no EXTERNAL_JOB, so a placeholder that waits is a batch job"


def api(facts: Facts) -> Finding:
    told, accepted = facts.slurm.capabilities, facts.slurm.accepted
    if isinstance(facts.slurm.token, Unread):
        raise NotKnown("there is no token to ask with", TOKEN)
    if accepted is False:
        known(told)
    if isinstance(told, Unread):
        return failed(told.why)
    if isinstance(accepted, Unread):
        return failed(f"slurmctld does not answer slurmrestd: {accepted.why}", "Start slurmctld.")
    words = f"Slurm {told.release} by {told.api_version}, cluster {told.cluster}"
    if not told.external_jobs:
        return warned(
            f"{words}; {_BATCH}", "Have a slurmd on each node, or upgrade Slurm to 25.11 or later."
        )
    return passed(words)


def token(facts: Facts) -> Finding:
    own = facts.slurm.token
    if isinstance(own, Unread):
        return failed(own.why)
    whose = f"the token of {own.user or 'nobody that it names'}"
    if own.expires is not None and own.expires <= facts.now:
        return failed(f"{whose} expired at {_moment(own.expires)}")
    if not known(facts.slurm.accepted):
        return failed(f"slurmctld does not take {whose}")
    if own.expires is None:
        return passed(f"slurmctld takes {whose}, which does not end")
    words = f"slurmctld takes {whose}, which ends at {_moment(own.expires)}"
    if own.expires - facts.now < _ENDS_SOON_S:
        return warned(words, "See that the token is made anew before that, and its Secret with it.")
    return passed(words)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def token_rights(facts: Facts) -> Finding:
    user = known(facts.slurm.token).user
    if known(facts.slurm.privileged):
        return passed(f"{user} may choose the ids of jobs and act for other users")
    return failed(f"{user} may neither choose the ids of jobs nor act for other users")


def job_ids(facts: Facts) -> Finding:
    told, settings = known(facts.slurm.configuration), facts.settings
    ids = settings.placeholder_ids
    highest = settings.max_job_id if told.max_job_id is None else told.max_job_id
    latest = told.next_job_id
    if latest is None:
        latest = known(facts.slurm.newest_job_id)
    near = encroaching(latest, highest, ids)
    if near is not None:
        return failed(near)
    if highest is None:
        raise NotKnown(
            "slurmrestd reports no MaxJobId before API v0.0.45, and SLURM_EXTENDER_MAX_JOB_ID is not set"
        )
    if highest > ids.first:
        return warned(f"MaxJobId is {highest}: native jobs come into the placeholders' ids one day")
    return passed(f"native jobs have ids up to {highest}, placeholders from {ids.first}")


def kill_wait(facts: Facts) -> Finding:
    told, settings = known(facts.slurm.configuration).kill_wait_s, facts.settings
    if told is None and "kill_wait_s" not in settings.model_fields_set:
        raise NotKnown("slurmrestd reports no KillWait before API v0.0.45")
    rule = GraceRule(settings.kill_wait_s if told is None else told, settings.default_grace)
    whose = "SLURM_EXTENDER_KILL_WAIT_S" if told is None else "KillWait"
    words = f"{whose} is {rule.kill_wait_s} s: a Pod's grace may be {max(rule.longest, 0)} s"
    if rule.longest < 1:
        return failed(words)
    if rule.longest >= KUBERNETES_DEFAULT_S:
        return passed(words)
    default = f"Kubernetes' default of {KUBERNETES_DEFAULT_S} s"
    if settings.default_grace == "refuse":
        return failed(f"{words}, and Pods with {default} are refused")
    return warned(f"{words}, and {default} is lowered to that")


def preempt_type(facts: Facts) -> Finding:
    told, own = known(facts.slurm.configuration).preempt_type, facts.settings.preempt_type
    if told is None and own is None:
        return warned("slurmrestd reports no PreemptType: there is no fast path")
    if told is not None and own is not None and (told or "preempt/none") != own:
        return warned(f"PreemptType is {told}, and SLURM_EXTENDER_PREEMPT_TYPE says {own}")
    if told is None:
        return passed(f"SLURM_EXTENDER_PREEMPT_TYPE says {own}")
    return passed(f"PreemptType is {told or 'preempt/none'}")


def scheduler_parameters(facts: Facts) -> Finding:
    told = known(facts.slurm.configuration)
    parameters = reported(told.scheduler_parameters, "SchedulerParameters")
    given = {each.partition("=")[0] for each in parameters}
    if _runs(told.prologs, _GATE) and "nohold_on_prolog_fail" not in given:
        return failed(
            "SchedulerParameters has no nohold_on_prolog_fail: a job whose Prolog fails is held",
            "Add nohold_on_prolog_fail to SchedulerParameters.",
        )
    if "defer" in given:
        return warned("SchedulerParameters has defer: Slurm rejects every immediate allocation")
    return passed("SchedulerParameters has nothing that is in the way")


def timeouts(facts: Facts) -> Finding:
    told = reported(known(facts.slurm.configuration).message_timeout_s, "MessageTimeout")
    own = facts.settings.slurm_timeout_s
    words = f"MessageTimeout is {told} s, SLURM_EXTENDER_SLURM_TIMEOUT_S {own:g}"
    return passed(words) if own > told else warned(words)


def partitions(facts: Facts) -> Finding:
    there = {each.name: each for each in known(facts.slurm.partitions)}
    wrong = [
        f"{where} names {name}" for name, where in facts.asked_partitions.items() if name not in there
    ]
    if wrong:
        return failed(f"{'; '.join(wrong)}: Slurm has the partitions {some(sorted(there), 10)}")
    down = sorted(name for name, each in there.items() if not each.up)
    if facts.settings.default_partition is None and not any(each.default for each in there.values()):
        return warned(
            "no default partition is told: each Pod has to name one",
            "Set Default=YES for a partition; before API v0.0.45 SLURM_EXTENDER_DEFAULT_PARTITION too.",
        )
    if down:
        return warned(
            f"{some(down)} is not up: its jobs wait", "scontrol update PartitionName=... State=UP"
        )
    return passed(f"Slurm has the partitions {some(sorted(there), 10)}")


def cgroups(facts: Facts) -> Finding:
    told = known(facts.slurm.configuration)
    if told.task_plugins is None:
        raise NotKnown("slurmrestd reports no TaskPlugin before API v0.0.45, and cgroup.conf never")
    missing = [] if "task/cgroup" in told.task_plugins else ["TaskPlugin has no task/cgroup"]
    if told.proctrack_type != "proctrack/cgroup":
        missing.append(f"ProctrackType is {told.proctrack_type}")
    if missing:
        return warned(f"{' and '.join(missing)}: a native job may use what a Pod has")
    raise NotKnown("TaskPlugin has task/cgroup; slurmrestd does not report cgroup.conf")


def hooks(facts: Facts) -> Finding:
    told = known(facts.slurm.configuration)
    if facts.settings.hooks_token_file is None:
        raise NotKnown("SLURM_EXTENDER_HOOKS_TOKEN_FILE is not set: the extender takes no pushes")
    epilogs = reported(told.slurmctld_epilogs, "EpilogSlurmctld")
    if _runs(epilogs, _HOOK):
        return passed(f"EpilogSlurmctld has {_HOOK}")
    if epilogs:
        return warned(f"EpilogSlurmctld is {some(epilogs)}: does it call {_HOOK}?")
    return warned("slurm.conf has no EpilogSlurmctld: a job's end is seen at the next poll")


def prolog(facts: Facts) -> Finding:
    conf = known(facts.slurm.configuration)
    told = reported(conf.prologs, "Prolog")
    if _runs(told, _GATE) and "Alloc" not in (conf.prolog_flags or ()):
        return warned(f"PrologFlags has no Alloc: {_GATE} runs at the first step of a job, if at all")
    if _runs(told, _GATE):
        return passed(f"Prolog has {_GATE}")
    if told:
        return warned(f"Prolog is {some(told)}: does it call {_GATE}?")
    return warned("slurm.conf has no Prolog: a native job may start beside a Pod that is leaving")


def _runs(programs: tuple[str, ...] | None, name: str) -> bool:
    return any(PurePath(each).name == name for each in programs or ())


SLURM_CHECKS: Final = (
    Check(
        API,
        f"slurmrestd answers, in one of the API versions {', '.join(reversed(KNOWN))}.",
        "Correct SLURM_EXTENDER_SLURMRESTD_URL (--slurmrestd). Start slurmrestd of Slurm 24.11 or later"
        " with the data_parser of one of these versions.",
        "`curl URL/openapi/v3`; is slurmrestd running, and may this program reach it?",
        api,
    ),
    Check(
        TOKEN,
        "slurmctld takes the token, for a week at least.",
        "Make a token of SlurmUser with Slurm's key: `scontrol token username=slurm lifespan=...`, and"
        " put it into the file of SLURM_EXTENDER_SLURM_TOKEN_FILE.",
        "Is the file of SLURM_EXTENDER_SLURM_TOKEN_FILE there, and does slurmctld answer?",
        token,
    ),
    Check(
        "token-rights",
        "The token is root's or SlurmUser's: such a token alone may choose the ids of jobs and act for"
        " other users.",
        "Make a token of SlurmUser: `scontrol token username=slurm lifespan=...`.",
        "`scontrol show config | grep SlurmUser`",
        token_rights,
    ),
    Check(
        "job-ids",
        "Slurm's own job ids end where the placeholders' begin (MaxJobId).",
        "Set MaxJobId in slurm.conf to SLURM_EXTENDER_JOB_ID_FIRST (of several clusters the lowest);"
        " where slurmrestd does not tell it, SLURM_EXTENDER_MAX_JOB_ID too.",
        "`scontrol show config | grep -E 'MaxJobId|NEXT_JOB_ID'`",
        job_ids,
    ),
    Check(
        "kill-wait",
        f"KillWait leaves Pods their grace: a Pod may have KillWait less {KUBELET_S + 1} s.",
        f"Set KillWait={KUBERNETES_DEFAULT_S + KUBELET_S + 1} or more in slurm.conf: then Kubernetes'"
        f" default of {KUBERNETES_DEFAULT_S} s fits.",
        "`scontrol show config | grep KillWait`, and set SLURM_EXTENDER_KILL_WAIT_S to that.",
        kill_wait,
    ),
    Check(
        "preempt-type",
        "PreemptType is known: while it is not, no placeholder is allocated at once.",
        "Set SLURM_EXTENDER_PREEMPT_TYPE to what slurm.conf says.",
        "`scontrol show config | grep PreemptType`",
        preempt_type,
    ),
    Check(
        "scheduler-parameters",
        "SchedulerParameters has no `defer`, and with the Prolog's gate it has `nohold_on_prolog_fail`.",
        "Without `defer` a Pod that finds room at once is bound in milliseconds, else in a second.",
        "`scontrol show config | grep SchedulerParameters`",
        scheduler_parameters,
    ),
    Check(
        "timeouts",
        "The extender waits longer for slurmrestd than slurmrestd for slurmctld (MessageTimeout).",
        "Set SLURM_EXTENDER_SLURM_TIMEOUT_S above MessageTimeout.",
        "`scontrol show config | grep MessageTimeout`",
        timeouts,
    ),
    Check(
        "partitions",
        "The partitions that settings, PriorityClasses and the policy name are there, one is the"
        " default, and all are up.",
        "Correct the name in the setting or in the policy.",
        "`scontrol show partition`",
        partitions,
    ),
    Check(
        "cgroups",
        "Slurm keeps native jobs to their own cores, memory and devices.",
        "In slurm.conf: TaskPlugin=task/cgroup,task/affinity and ProctrackType=proctrack/cgroup; in"
        " cgroup.conf ConstrainCores=yes, ConstrainRAMSpace=yes, ConstrainDevices=yes.",
        "`grep Constrain /etc/slurm/cgroup.conf` on the nodes; where it runs the node agent looks at the"
        " cgroup of each job and says what is not in force.",
        cgroups,
    ),
    Check(
        "hooks",
        "slurmctld tells the extender at once when a job ends (EpilogSlurmctld).",
        f"Install deploy/slurm/{_HOOK} on the hosts of slurmctld, and name it as EpilogSlurmctld.",
        f"On slurmctld's hosts: `{_HOOK} 40000000` says what each replica answers.",
        hooks,
    ),
    Check(
        "prolog",
        "The nodes' Prolog waits for Pods that are leaving.",
        f"Install deploy/slurm/{_GATE} on the nodes; in slurm.conf Prolog=/etc/slurm/{_GATE} and"
        " PrologFlags=Alloc. Nodes without native jobs do without.",
        "`scontrol show config | grep Prolog`",
        prolog,
    ),
)
