"""Settings of a program, each from a variable of the environment."""

import json
import sys
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode

Port = Annotated[int, Field(ge=1, le=65535)]


def listed(given: object) -> object:
    """Returns the items of a text with commas as a tuple."""
    if not isinstance(given, str):
        return given
    return tuple(part.strip() for part in given.split(",") if part.strip())


def read_json(given: object) -> object:
    """Returns what a text says in JSON. Raises ValueError."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        raise ValueError('not JSON, like {"nvidia.com/gpu": "gpu"}') from error


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)]

_Settings = TypeVar("_Settings", bound=BaseSettings)


def from_environment(kind: type[_Settings]) -> _Settings:
    """Returns the settings. Prints what is wrong on standard error, a line for each variable, and ends
    the program with exit status 2."""
    try:
        return kind()
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        for wrong in error.errors():
            name = str(wrong["loc"][0]).upper() if wrong["loc"] else "*"
            print(f"{prefix}{name}: {wrong['msg']}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)
