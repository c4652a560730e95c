"""Checks of slurm.conf. These checks and the checks of `slurm_checks` cover the checklist in
docs/tasks/install.md."""

from typing import Final

from extender.node_view.uncounted_memory import FIX, uncounted_memory
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import Node
from extender.preflight.facts import Facts, NotKnown, Unread, known, reported
from extender.preflight.result import Check, Finding, failed, passed, some, warned

_MIN_JOB_AGE_S: Final = 300
_MAX_JOB_COUNT: Final = 10_000
_MANY_JOBS: Final = 1000
"""Least number of waiting jobs for which the backfill scheduler needs the parameters `_BACKFILL`."""
_BACKFILL: Final = ("bf_continue", "bf_yield_interval", "bf_yield_sleep")
_SLURMD_TIMEOUT_S: Final = 300
"""Slurm's default. If Pods are on a node, a new slurmd has a third of SlurmdTimeout to register."""
_SHARES_NODES: Final = "select/cons_tres"


def _view(facts: Facts) -> ClusterView:
    """Returns a view of the Nodes and partitions that could be read."""
    nodes, partitions = facts.kubernetes.nodes, facts.slurm.partitions
    label = facts.settings.node_name_label
    parsed = () if isinstance(nodes, Unread) else [Node.parse(each, label) for each in nodes]
    there = () if isinstance(partitions, Unread) else partitions
    return ClusterView({node.name: node for node in parsed}, {each.name: each for each in there})


def select_type(facts: Facts) -> Finding:
    conf, own = known(facts.slurm.configuration), facts.settings.select_type_parameters
    parameters = conf.select_type_parameters
    words = uncounted_memory(own if parameters is None else parameters, _view(facts), conf.select_type)
    if words is not None:
        return failed(words)
    if conf.select_type not in (None, _SHARES_NODES):
        return warned(f"SelectType is {conf.select_type}: each job gets whole nodes")
    if parameters is not None:
        return passed(f"SelectTypeParameters is {','.join(parameters)}")
    if not own:
        raise NotKnown(
            "slurmrestd reports no SelectTypeParameters before API v0.0.45, and"
            " SLURM_EXTENDER_SELECT_TYPE_PARAMETERS is not set"
        )
    return passed(f"SLURM_EXTENDER_SELECT_TYPE_PARAMETERS is {','.join(own)}")


def min_job_age(facts: Facts) -> Finding:
    seconds = reported(known(facts.slurm.configuration).min_job_age_s, "MinJobAge")
    words = f"MinJobAge is {seconds} s"
    if 0 < seconds < _MIN_JOB_AGE_S:  # 0: slurmctld keeps all jobs
        return warned(f"{words}: slurmctld may forget jobs that end while no extender is up")
    return passed(words)


def max_job_count(facts: Facts) -> Finding:
    limit, settings = known(facts.slurm.configuration).max_job_count, facts.settings
    if limit is None and "max_job_count" not in settings.model_fields_set:
        raise NotKnown("slurmrestd reports no MaxJobCount before API v0.0.45")
    count = settings.max_job_count if limit is None else limit
    whose = "SLURM_EXTENDER_MAX_JOB_COUNT" if limit is None else "MaxJobCount"
    words = f"{whose} is {count}: at most {count // 2} placeholders wait"
    return passed(words) if count >= _MAX_JOB_COUNT else warned(words)


def default_time(facts: Facts) -> Finding:
    partitions = known(facts.slurm.partitions)
    endless = sorted(
        each.name
        for each in partitions
        if each.up and each.default_time_minutes is None and each.max_time_minutes is None
    )
    if endless:
        return warned(f"without DefaultTime a job may run forever: partitions {some(endless)}")
    return passed("each partition limits the time of jobs without a time limit")


def backfill(facts: Facts) -> Finding:
    parameters = reported(known(facts.slurm.configuration).scheduler_parameters, "SchedulerParameters")
    given = {each.partition("=")[0] for each in parameters}
    missing = [each for each in _BACKFILL if each not in given]
    waiting = known(facts.slurm.waiting_jobs)
    if missing and waiting >= _MANY_JOBS:
        return warned(f"{waiting} jobs wait, and SchedulerParameters has no {some(missing)}")
    return passed(f"{waiting} jobs wait")


def accounting_store_flags(facts: Facts) -> Finding:
    conf = known(facts.slurm.configuration)
    if not reported(conf.accounting_storage_type, "AccountingStorageType"):
        return passed("Slurm has no accounting")
    if "job_comment" in reported(conf.accounting_store_flags, "AccountingStoreFlags"):
        return passed("AccountingStoreFlags has job_comment")
    return warned("AccountingStoreFlags has no job_comment: sacct does not show how a Pod ended")


def pools(facts: Facts) -> Finding:
    if facts.settings.pools_file is None:
        return passed("SLURM_EXTENDER_POOLS_FILE is not set: there are no pools")
    conf = known(facts.slurm.configuration)
    parameters = reported(conf.slurmctld_parameters, "SlurmctldParameters")
    wrong = [] if "enable_configless" in parameters else ["SlurmctldParameters has no enable_configless"]
    nodes = len(known(facts.slurm.nodes))
    if (conf.max_node_count or 0) <= nodes:
        wrong.append(f"MaxNodeCount is {conf.max_node_count or 0}, and Slurm has {nodes} nodes")
    if wrong:
        return failed(f"{' and '.join(wrong)}: slurmds of new Pods end")
    if conf.return_to_service != "all":
        return warned("ReturnToService is not 2: after an absence, a node stays DOWN until a resume")
    seconds = reported(conf.slurmd_timeout_s, "SlurmdTimeout")
    if 0 < seconds < _SLURMD_TIMEOUT_S:  # 0: slurmctld never sets a silent node DOWN
        return warned(
            f"SlurmdTimeout is {seconds} s: if Pods are on a node, a new slurmd has a third to register"
        )
    return passed(f"slurmds in Pods may register; MaxNodeCount is {conf.max_node_count}")


SLURM_CONF_CHECKS: Final = (
    Check(
        "select-type-parameters",
        "SelectType is select/cons_tres, and SelectTypeParameters counts memory, for the cluster and for"
        " each partition with Nodes that jobs share. Without memory, Slurm gives a Pod and a native job"
        " the same memory.",
        FIX,
        "`scontrol show config | grep SelectType`, and set SLURM_EXTENDER_SELECT_TYPE_PARAMETERS to"
        " SelectTypeParameters.",
        select_type,
    ),
    Check(
        "min-job-age",
        f"MinJobAge is {_MIN_JOB_AGE_S} s or more: after an outage of the extender, slurmctld still"
        " knows the jobs that ended during the outage.",
        f"Set MinJobAge={_MIN_JOB_AGE_S} in slurm.conf, or longer than the outages you expect.",
        "`scontrol show config | grep MinJobAge`",
        min_job_age,
    ),
    Check(
        "max-job-count",
        f"MaxJobCount is {_MAX_JOB_COUNT} or more: half of the jobs may be waiting placeholders.",
        f"Set MaxJobCount={_MAX_JOB_COUNT} or more in slurm.conf, and restart slurmctld.",
        "`scontrol show config | grep MaxJobCount`, and set SLURM_EXTENDER_MAX_JOB_COUNT to this value.",
        max_job_count,
    ),
    Check(
        "default-time",
        "Each partition has a DefaultTime or a MaxTime: Slurm cannot plan after a job without a limit.",
        "Set DefaultTime for the partition in slurm.conf.",
        "`scontrol show partition | grep -E 'PartitionName|DefaultTime'`",
        default_time,
    ),
    Check(
        "backfill",
        f"If {_MANY_JOBS} jobs or more wait, SchedulerParameters has {', '.join(_BACKFILL)}.",
        "Add bf_continue,bf_yield_interval=100000,bf_yield_sleep=100000 to SchedulerParameters"
        " (docs/reference/sizing.md#slurm).",
        "`scontrol show config | grep SchedulerParameters`",
        backfill,
    ),
    Check(
        "accounting-store-flags",
        "With accounting, AccountingStoreFlags has job_comment: sacct shows how a Pod ended.",
        "Add job_comment to AccountingStoreFlags in slurm.conf.",
        "`scontrol show config | grep AccountingStoreFlags`",
        accounting_store_flags,
    ),
    Check(
        "pools",
        "With pools, SlurmctldParameters has enable_configless, MaxNodeCount is larger than the number"
        f" of nodes, ReturnToService is 2, and SlurmdTimeout is {_SLURMD_TIMEOUT_S} s or more.",
        "Set SlurmctldParameters=enable_configless, MaxNodeCount=1000, ReturnToService=2 and"
        f" SlurmdTimeout={_SLURMD_TIMEOUT_S} in slurm.conf (docs/tasks/pools.md#what-slurm-needs).",
        "`scontrol show config | grep -E 'SlurmctldPar|MaxNodeC|ReturnToS|SlurmdTimeout'`",
        pools,
    ),
)
