"""Checks of the settings themselves."""

from typing import Final

from extender.preflight.facts import Facts
from extender.preflight.result import Check, Finding, failed, passed, some, warned


def variables(facts: Facts) -> Finding:
    meant = {name: setting for name, setting in facts.variables.items() if setting is not None}
    if meant:
        words = [f"{name} is no setting; {setting} is probably meant" for name, setting in meant.items()]
        return failed("; ".join(words), "Correct the name of the environment variable.")
    if facts.variables:
        return warned(f"no setting: {some(list(facts.variables))}")
    return passed("all SLURM_EXTENDER_ variables of the environment are settings")


SETTINGS_CHECKS: Final = (
    Check(
        "settings",
        "Each environment variable with the prefix SLURM_EXTENDER_ is a setting.",
        "Correct the name of the environment variable, or unset the variable:"
        " docs/reference/configure.md lists all settings.",
        "`env | grep SLURM_EXTENDER_`",
        variables,
    ),
)
