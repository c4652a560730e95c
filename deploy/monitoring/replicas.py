"""Expressions for problems of the leader or of all replicas. A problem that only standby replicas have
causes only a warning."""

from typing import Final

from deploy.monitoring.releases import by, on

LEADING: Final = "slurm_extender_leading"
"""1 for the leader, 0 for every other replica."""
_REPLICAS: Final = f"count {by()} ({LEADING})"


def degraded(components: str, *, but: bool = False) -> str:
    """Returns the expression for the degraded components of each replica. `components` is a regular
    expression (RE2) for the whole name. With `but`, returns the expression for all components whose name
    does not match."""
    matches = "!~" if but else "=~"
    return f'slurm_extender_component_degraded{{component{matches}"{components}"}} == 1'


def of_leader_or_all(problem: str, *labels: str) -> str:
    """Returns the expression for a problem of the leader or of all replicas. `problem` has a series
    for each replica with the problem. The result keeps `labels`, but no label of a replica."""
    each = by(*labels)
    leaders = f"max {each} (({problem}) and ignoring ({', '.join(labels)}) {LEADING} == 1)"
    everybody = f"count {each} ({problem}) == {on()} group_left {_REPLICAS}"
    return f"{leaders} or (max {each} ({problem}) and {everybody})"


def of_standby_alone(problem: str, *labels: str) -> str:
    """Returns the expression for problems that some standby replicas have, but neither the leader nor
    all replicas."""
    reported = of_leader_or_all(problem, *labels)
    return f"max {by('pod', 'instance', *labels)} ({problem}) unless {on(*labels)} ({reported})"
