"""Entries of slurm-extender in the `extenders` of a KubeSchedulerConfiguration."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import yaml

from deploy.local.layout import CHECKOUT


def entry(configuration: str) -> dict[str, Any] | None:
    """Returns the entry without the address; None if kube-scheduler calls no extender."""
    (asked,) = yaml.safe_load(configuration).get("extenders") or (None,)
    return asked and {key: value for key, value in asked.items() if key != "urlPrefix"}


def shown_for_others() -> dict[str, Any] | None:
    """Returns the entry that docs/concepts/scope.md shows for the kube-scheduler of unmanaged Pods."""
    page = (CHECKOUT / "docs/concepts/scope.md").read_text()
    (copied,) = re.findall(r"^ *extenders:.*?(?=^ *```)", page, re.DOTALL | re.MULTILINE)
    return entry(dedent(copied))
