"""Checks of slurmrestd: API, token, and slurm.conf."""

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
"""Names of the programs in deploy/slurm."""
_BATCH: Final = "this release has no EXTERNAL_JOB, so a waiting placeholder is a batch job"


def api(facts: Facts) -> Finding:
    capabilities, accepted = facts.slurm.capabilities, facts.slurm.accepted
    if isinstance(facts.slurm.token, Unread):
        raise NotKnown("no token for requests to Slurm", TOKEN)
    if accepted is False:
        known(capabilities)
    if isinstance(capabilities, Unread):
        return failed(capabilities.why)
    if isinstance(accepted, Unread):
        return failed(f"slurmctld does not answer slurmrestd: {accepted.why}", "Start slurmctld.")
    words = f"Slurm {capabilities.release} by {capabilities.api_version}, cluster {capabilities.cluster}"
    if not capabilities.external_jobs:
        return warned(
            f"{words}; {_BATCH}", "Run slurmd on each node, or upgrade Slurm to 25.11 or later."
        )
    return passed(words)


def token(facts: Facts) -> Finding:
    own = facts.slurm.token
    if isinstance(own, Unread):
        return failed(own.why)
    whose = f"the token of {own.user or 'an unnamed user'}"
    if own.expires is not None and own.expires <= facts.now:
        return failed(f"{whose} expired at {_moment(own.expires)}")
    if not known(facts.slurm.accepted):
        return failed(f"slurmctld rejects {whose}")
    if own.expires is None:
        return passed(f"slurmctld accepts {whose}, which does not expire")
    words = f"slurmctld accepts {whose}, which expires at {_moment(own.expires)}"
    if own.expires - facts.now < _ENDS_SOON_S:
        return warned(words, "Create a new token, and update the Secret, before the token expires.")
    return passed(words)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def token_rights(facts: Facts) -> Finding:
    user = known(facts.slurm.token).user
    if known(facts.slurm.privileged):
        return passed(f"{user} may choose the ids of jobs and act for other users")
    return failed(f"{user} may neither choose the ids of jobs nor act for other users")


def job_ids(facts: Facts) -> Finding:
    conf, settings = known(facts.slurm.configuration), facts.settings
    ids = settings.placeholder_ids
    highest = settings.max_job_id if conf.max_job_id is None else conf.max_job_id
    latest = conf.next_job_id
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
        return warned(f"MaxJobId is {highest}: native jobs may reach the placeholders' ids")
    return passed(f"native jobs have ids up to {highest}, placeholders from {ids.first}")


def kill_wait(facts: Facts) -> Finding:
    seconds, settings = known(facts.slurm.configuration).kill_wait_s, facts.settings
    if seconds is None and "kill_wait_s" not in settings.model_fields_set:
        raise NotKnown("slurmrestd reports no KillWait before API v0.0.45")
    rule = GraceRule(settings.kill_wait_s if seconds is None else seconds, settings.default_grace)
    whose = "SLURM_EXTENDER_KILL_WAIT_S" if seconds is None else "KillWait"
    words = f"{whose} is {rule.kill_wait_s} s: a Pod's grace may be {max(rule.longest, 0)} s"
    if rule.longest < 1:
        return failed(words)
    if rule.longest >= KUBERNETES_DEFAULT_S:
        return passed(words)
    default = f"Kubernetes' default of {KUBERNETES_DEFAULT_S} s"
    if settings.default_grace == "refuse":
        return failed(f"{words}, and Pods with {default} are refused")
    return warned(f"{words}, and {default} is lowered to this value")


def preempt_type(facts: Facts) -> Finding:
    value, own = known(facts.slurm.configuration).preempt_type, facts.settings.preempt_type
    if value is None and own is None:
        return warned("slurmrestd reports no PreemptType: the extender uses no fast path")
    if value is not None and own is not None and (value or "preempt/none") != own:
        return warned(f"PreemptType is {value}, but SLURM_EXTENDER_PREEMPT_TYPE is {own}")
    if value is None:
        return passed(f"SLURM_EXTENDER_PREEMPT_TYPE is {own}")
    return passed(f"PreemptType is {value or 'preempt/none'}")


def scheduler_parameters(facts: Facts) -> Finding:
    conf = known(facts.slurm.configuration)
    parameters = reported(conf.scheduler_parameters, "SchedulerParameters")
    given = {each.partition("=")[0] for each in parameters}
    if _runs(conf.prologs, _GATE) and "nohold_on_prolog_fail" not in given:
        return failed(
            "SchedulerParameters has no nohold_on_prolog_fail: a job whose Prolog fails is held",
            "Add nohold_on_prolog_fail to SchedulerParameters.",
        )
    if "defer" in given:
        return warned("SchedulerParameters has defer: Slurm rejects every immediate allocation")
    return passed("SchedulerParameters has nothing that conflicts with the extender")


def timeouts(facts: Facts) -> Finding:
    seconds = reported(known(facts.slurm.configuration).message_timeout_s, "MessageTimeout")
    own = facts.settings.slurm_timeout_s
    words = f"MessageTimeout is {seconds} s, SLURM_EXTENDER_SLURM_TIMEOUT_S {own:g}"
    return passed(words) if own > seconds else warned(words)


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
            "no default partition is known: each Pod must name a partition",
            "Set Default=YES for a partition; before API v0.0.45 SLURM_EXTENDER_DEFAULT_PARTITION too.",
        )
    if down:
        return warned(
            f"{some(down)} is not up: its jobs wait", "scontrol update PartitionName=... State=UP"
        )
    return passed(f"Slurm has the partitions {some(sorted(there), 10)}")


def cgroups(facts: Facts) -> Finding:
    conf = known(facts.slurm.configuration)
    if conf.task_plugins is None:
        raise NotKnown("slurmrestd reports no TaskPlugin before API v0.0.45, and cgroup.conf never")
    missing = [] if "task/cgroup" in conf.task_plugins else ["TaskPlugin has no task/cgroup"]
    if conf.proctrack_type != "proctrack/cgroup":
        missing.append(f"ProctrackType is {conf.proctrack_type}")
    if missing:
        return warned(f"{' and '.join(missing)}: a native job may use a Pod's resources")
    raise NotKnown("TaskPlugin has task/cgroup; slurmrestd does not report cgroup.conf")


def hooks(facts: Facts) -> Finding:
    conf = known(facts.slurm.configuration)
    if facts.settings.hooks_token_file is None:
        raise NotKnown("SLURM_EXTENDER_HOOKS_TOKEN_FILE is not set: the extender takes no pushes")
    epilogs = reported(conf.slurmctld_epilogs, "EpilogSlurmctld")
    if _runs(epilogs, _HOOK):
        return passed(f"EpilogSlurmctld has {_HOOK}")
    if epilogs:
        return warned(f"EpilogSlurmctld is {some(epilogs)}: does it call {_HOOK}?")
    return warned("slurm.conf has no EpilogSlurmctld: the extender sees a job's end at the next poll")


def prolog(facts: Facts) -> Finding:
    conf = known(facts.slurm.configuration)
    programs = reported(conf.prologs, "Prolog")
    if _runs(programs, _GATE) and "Alloc" not in (conf.prolog_flags or ()):
        return warned(f"PrologFlags has no Alloc: {_GATE} runs at the first step of a job, if at all")
    if _runs(programs, _GATE):
        return passed(f"Prolog has {_GATE}")
    if programs:
        return warned(f"Prolog is {some(programs)}: does it call {_GATE}?")
    return warned("slurm.conf has no Prolog: a native job may start beside a departing Pod")


def _runs(programs: tuple[str, ...] | None, name: str) -> bool:
    return any(PurePath(each).name == name for each in programs or ())


SLURM_CHECKS: Final = (
    Check(
        API,
        f"slurmrestd answers with one of the API versions {', '.join(reversed(KNOWN))}.",
        "Correct SLURM_EXTENDER_SLURMRESTD_URL (--slurmrestd). Start slurmrestd of Slurm 24.11 or later"
        " with the data_parser of one of these versions.",
        "Run `curl URL/openapi/v3`: check that slurmrestd runs and is reachable.",
        api,
    ),
    Check(
        TOKEN,
        "slurmctld accepts the token for at least a week.",
        "Create a token of SlurmUser with Slurm's key: `scontrol token username=slurm lifespan=...`."
        " Write the token to the file of SLURM_EXTENDER_SLURM_TOKEN_FILE.",
        "Check that the file of SLURM_EXTENDER_SLURM_TOKEN_FILE exists and that slurmctld answers.",
        token,
    ),
    Check(
        "token-rights",
        "The token is a token of root or SlurmUser. Other tokens may not choose the ids of jobs or act"
        " for other users.",
        "Create a token of SlurmUser: `scontrol token username=slurm lifespan=...`.",
        "`scontrol show config | grep SlurmUser`",
        token_rights,
    ),
    Check(
        "job-ids",
        "Slurm's own job ids end where the placeholders' ids begin (MaxJobId).",
        "Set MaxJobId in slurm.conf to SLURM_EXTENDER_JOB_ID_FIRST (for several clusters, the lowest"
        " value). If slurmrestd does not report MaxJobId, also set SLURM_EXTENDER_MAX_JOB_ID.",
        "`scontrol show config | grep -E 'MaxJobId|NEXT_JOB_ID'`",
        job_ids,
    ),
    Check(
        "kill-wait",
        "KillWait is long enough for the grace periods of Pods: a Pod's grace period may be KillWait"
        f" less {KUBELET_S + 1} s.",
        f"Set KillWait={KUBERNETES_DEFAULT_S + KUBELET_S + 1} or more in slurm.conf, which allows"
        f" Kubernetes' default of {KUBERNETES_DEFAULT_S} s.",
        "`scontrol show config | grep KillWait`, and set SLURM_EXTENDER_KILL_WAIT_S to this value.",
        kill_wait,
    ),
    Check(
        "preempt-type",
        "PreemptType is known. While PreemptType is unknown, no placeholder is allocated at once.",
        "Set SLURM_EXTENDER_PREEMPT_TYPE to PreemptType in slurm.conf.",
        "`scontrol show config | grep PreemptType`",
        preempt_type,
    ),
    Check(
        "scheduler-parameters",
        "SchedulerParameters has no `defer`. If the Prolog has the gate, SchedulerParameters has"
        " `nohold_on_prolog_fail`.",
        "Remove `defer`. Without `defer`, a Pod that finds free resources is bound in milliseconds; with"
        " `defer`, in a second.",
        "`scontrol show config | grep SchedulerParameters`",
        scheduler_parameters,
    ),
    Check(
        "timeouts",
        "The extender waits longer for slurmrestd than slurmrestd waits for slurmctld (MessageTimeout).",
        "Set SLURM_EXTENDER_SLURM_TIMEOUT_S above MessageTimeout.",
        "`scontrol show config | grep MessageTimeout`",
        timeouts,
    ),
    Check(
        "partitions",
        "The partitions in settings, PriorityClasses and the policy exist, one partition is the default,"
        " and all partitions are up.",
        "Correct the name in the setting or in the policy.",
        "`scontrol show partition`",
        partitions,
    ),
    Check(
        "cgroups",
        "Slurm limits native jobs to their own cores, memory and devices.",
        "In slurm.conf: TaskPlugin=task/cgroup,task/affinity and ProctrackType=proctrack/cgroup; in"
        " cgroup.conf ConstrainCores=yes, ConstrainRAMSpace=yes, ConstrainDevices=yes.",
        "`grep Constrain /etc/slurm/cgroup.conf` on the nodes. If the node agent runs, the agent checks"
        " the cgroup of each job and reports missing limits.",
        cgroups,
    ),
    Check(
        "hooks",
        "slurmctld reports the end of a job to the extender at once (EpilogSlurmctld).",
        f"Install deploy/slurm/{_HOOK} on the hosts of slurmctld, and set EpilogSlurmctld to its path.",
        f"On slurmctld's hosts, `{_HOOK} 40000000` prints the answer of each replica.",
        hooks,
    ),
    Check(
        "prolog",
        "The nodes' Prolog waits for departing Pods.",
        f"Install deploy/slurm/{_GATE} on the nodes. In slurm.conf, set Prolog=/etc/slurm/{_GATE} and"
        " PrologFlags=Alloc. Nodes without native jobs need no Prolog.",
        "`scontrol show config | grep Prolog`",
        prolog,
    ),
)
