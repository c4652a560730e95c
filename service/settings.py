"""Settings of a program, each from a variable of the environment."""

import json
import os
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeVar

import structlog
from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode

Port = Annotated[int, Field(ge=1, le=65535)]


def listed(given: object) -> object:
    """Splits a text at the commas, and returns the items as a tuple."""
    if not isinstance(given, str):
        return given
    return tuple(part.strip() for part in given.split(",") if part.strip())


def read_json(given: object) -> object:
    """Returns the value of a text in JSON. Raises ValueError."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        raise ValueError('not JSON, like {"nvidia.com/gpu": "gpu"}') from error


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)]

log = structlog.get_logger()

_Settings = TypeVar("_Settings", bound=BaseSettings)

_OF_A_SERVICE: Final = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)=|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=|_PORT=\w+://"
)
"""Matches NAME=VALUE of the variables that the kubelet sets for Services (enableServiceLinks). For a
Service slurm-extender, these variables have the settings' prefix."""
_MOST_SHOWN: Final = 60
_ALIKE: Final = 0.85
"""The least likeness (difflib) of a wrong name to the intended setting."""


def from_environment(kind: type[_Settings], **given: Any) -> _Settings:
    """Returns the settings; `given` overrides the environment. For wrong settings, prints a line for
    each variable on standard error and ends the program with exit status 2."""
    try:
        return kind(**given)
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        for wrong in error.errors():
            name = str(wrong["loc"][0]).upper() if wrong["loc"] else "*"
            print(f"{prefix}{name}: {_problem(wrong)}", file=sys.stderr)  # noqa: T201
    for name, meant in unknown_variables(kind, os.environ).items():
        hint = f"; {meant} is probably meant" if meant else ""
        print(f"{name} is no setting{hint}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)


def _problem(wrong: ErrorDetails) -> str:
    """Returns the message for pydantic's report of a wrong value."""
    given = f'"{" ".join(str(wrong["input"]).split())[:_MOST_SHOWN]}"'
    match wrong["type"]:
        case "missing":
            return "not set, and without a default"
        case "int_parsing" | "int_type":
            return f"{given} is not a whole number"
        case "float_parsing" | "float_type" | "decimal_parsing":
            return f"{given} is not a number"
        case "bool_parsing" | "bool_type":
            return f"{given} is neither true nor false"
        case "string_pattern_mismatch":
            return f"{given} does not match {wrong['ctx']['pattern']}"
    return wrong["msg"].removeprefix("Value error, ")


def log_unknown_variables(kind: type[BaseSettings]) -> None:
    """Logs a warning for each unknown variable of the environment."""
    for name, meant in unknown_variables(kind, os.environ).items():
        log.warning("an environment variable is no setting", variable=name, probably_meant=meant)


def unknown_variables(kind: type[BaseSettings], environment: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the unknown variables with the settings' prefix. The value for each variable is the
    setting that is probably meant, or None."""
    prefix = kind.model_config["env_prefix"]
    settings = {name.upper(): field for name, field in kind.model_fields.items()}
    found: dict[str, str | None] = {}
    for name, value in sorted(environment.items()):
        own = name.upper().removeprefix(prefix)
        if own == name.upper():
            own = _after_prefix(own, prefix)
            if own in settings:  # the prefix is misspelt
                found[name] = f"{prefix}{own}"
        elif own not in settings and not _OF_A_SERVICE.search(f"_{own}={value}"):
            meant = _meant(own, settings)
            found[name] = f"{prefix}{meant}" if meant else None
    return found


def _after_prefix(name: str, prefix: str) -> str:
    """Returns the part of a name after a misspelt prefix; "" for a name without such a prefix."""
    words = prefix.count("_")
    head, rest = "_".join(name.split("_")[:words]), "_".join(name.split("_")[words:])
    return rest if get_close_matches(f"{head}_", [prefix], 1, _ALIKE) else ""


def _meant(own: str, settings: Mapping[str, FieldInfo]) -> str | None:
    """Returns the setting with a similar name. If no name is similar, returns the only setting whose
    name contains the wrong name. If several names contain the wrong name, returns the only setting
    without a default among these settings."""
    alike = get_close_matches(own, settings, 1, _ALIKE)
    if alike:
        return alike[0]
    longer = [each for each in settings if own.replace("_", "") in each.replace("_", "")]
    required = [each for each in longer if settings[each].is_required()]
    return next((one[0] for one in (longer, required) if len(one) == 1), None)
