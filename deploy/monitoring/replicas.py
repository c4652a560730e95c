"""Replicas that have to be in trouble for an alert: the leader, or all replicas. A standby in trouble
alone is a warning."""

from typing import Final

from deploy.monitoring.releases import by, on

LEADING: Final = "slurm_extender_leading"
"""1 of the leader, 0 of every other replica."""
_REPLICAS: Final = f"count {by()} ({LEADING})"


def degraded(components: str, *, but: bool = False) -> str:
    """Returns the expression that holds for each component in trouble of each replica, whose name
    matches a regular expression (RE2, of the whole name), or, with `but`, does not."""
    matches = "!~" if but else "=~"
    return f'slurm_extender_component_degraded{{component{matches}"{components}"}} == 1'


def of_leader_or_all(trouble: str, *labels: str) -> str:
    """Returns the expression that holds where the leader has a trouble, or all replicas have it.
    `trouble` has a series for each replica that has it; `labels` are those beside the replica's own, and
    are kept."""
    each = by(*labels)
    leaders = f"max {each} (({trouble}) and ignoring ({', '.join(labels)}) {LEADING} == 1)"
    everybody = f"count {each} ({trouble}) == {on()} group_left {_REPLICAS}"
    return f"{leaders} or (max {each} ({trouble}) and {everybody})"


def of_standby_alone(trouble: str, *labels: str) -> str:
    """Returns the expression of troubles of single replicas that are not the leader."""
    told = of_leader_or_all(trouble, *labels)
    return f"max {by('pod', 'instance', *labels)} ({trouble}) unless {on(*labels)} ({told})"
