"""Reads a KubeSchedulerConfiguration: the file of kube-scheduler's --config."""

from pathlib import Path

import yaml
from pydantic import ValidationError

from extender.kube_scheduler.configuration import SchedulerConfiguration

_KIND = "KubeSchedulerConfiguration"


class NoConfiguration(Exception):
    """Raised if a file is no KubeSchedulerConfiguration, or cannot be read. The message names the
    file."""


def read(path: Path) -> SchedulerConfiguration:
    """Returns the configuration in a file. Raises NoConfiguration."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("kind") != _KIND:
            raise NoConfiguration(f"{path} is no {_KIND}")
        return SchedulerConfiguration.model_validate(document)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        raise NoConfiguration(f"{path}: {place}: {wrong['msg']}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        cause = getattr(error, "strerror", None) or error
        raise NoConfiguration(f"{path} cannot be read: {cause}") from error
