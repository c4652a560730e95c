"""Tests that docs/concepts/security.md names every annotation, label, condition and taint of the
extender."""

from __future__ import annotations

import re

from deploy.local.layout import CHECKOUT
from wellknown import names

PAGE = (CHECKOUT / "docs" / "concepts" / "security.md").read_text()


def test_page_has_each_name_of_the_extender() -> None:
    own = {value.removeprefix(names.DOMAIN) for value in vars(names).values() if _is_own(value)}
    assert {"granted", "SlurmOutOfService"} <= own
    told = set(re.findall(r"`(?:slurm-extender\.io)?/([\w-]+)`", PAGE))
    assert own - {"", "Placeholder"} <= told  # the extender bases no decision on the condition of a Pod


def _is_own(value: object) -> bool:
    return isinstance(value, str) and value.startswith(names.DOMAIN)
