"""All checks in output order, and their results."""

from typing import Final

from extender.preflight.facts import Facts
from extender.preflight.kubernetes_checks import KUBERNETES_CHECKS
from extender.preflight.node_checks import NODE_CHECKS
from extender.preflight.result import Result, Verdict, outcome
from extender.preflight.settings_checks import SETTINGS_CHECKS
from extender.preflight.slurm_checks import SLURM_CHECKS
from extender.preflight.slurm_conf_checks import SLURM_CONF_CHECKS

CHECKS: Final = (*SETTINGS_CHECKS, *KUBERNETES_CHECKS, *SLURM_CHECKS, *SLURM_CONF_CHECKS, *NODE_CHECKS)


def results(facts: Facts) -> tuple[Result, ...]:
    """Returns the outcome of each check."""
    found = tuple(outcome(check, facts) for check in CHECKS)
    failing = {result.check for result in found if result.verdict is Verdict.FAIL}
    return tuple(each if each.because in failing else each._replace(because="") for each in found)


def status(found: tuple[Result, ...]) -> int:
    """Returns the exit status: 1 if any check fails, otherwise 0."""
    return int(any(result.verdict is Verdict.FAIL for result in found))
