"""All checks, in the order in which they are printed, and what they find."""

from typing import Final

from extender.preflight.facts import Facts
from extender.preflight.kubernetes_checks import KUBERNETES_CHECKS
from extender.preflight.node_checks import NODE_CHECKS
from extender.preflight.result import Result, Verdict, outcome
from extender.preflight.slurm_checks import SLURM_CHECKS
from extender.preflight.slurm_conf_checks import SLURM_CONF_CHECKS

CHECKS: Final = (*KUBERNETES_CHECKS, *SLURM_CHECKS, *SLURM_CONF_CHECKS, *NODE_CHECKS)


def results(facts: Facts) -> tuple[Result, ...]:
    """Returns the outcome of each check."""
    return tuple(outcome(check, facts) for check in CHECKS)


def status(found: tuple[Result, ...]) -> int:
    """Returns the exit status: 1 where something fails."""
    return int(any(result.verdict is Verdict.FAIL for result in found))
