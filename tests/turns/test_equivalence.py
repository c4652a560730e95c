"""Tests of the classes of equal Pods. Each field of a JobSpec is in exactly one group of `Decides`:
QUEUE, OWNER, DEMAND or NOTHING."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest

from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.equivalence import Owner, kind_of
from slurm_client.model import Decides, JobSpec, fields_that_decide
from tests.builders import placeholder_of, pod

OTHER: dict[str, Any] = {
    "gres": (("gpu", 2),),
    "required_nodes": ("n7",),
    "excluded_nodes": ("n8",),
    "shared": "user",
}
"""Other values of the fields for which `with_other` cannot compute a value."""


def with_other(name: str) -> Placeholder:
    """Returns a placeholder with another value in this field of the job."""
    plain = pod(name="p")
    value = getattr(plain.request.job, name)
    is_number = name.endswith(("_id", "_mb", "_minutes")) or name in ("cpus", "nodes", "priority")
    other: Any = OTHER.get(name) or ((value or 0) + 7 if is_number else f"{value}-other")
    request = replace(plain.request, job=replace(plain.request.job, **{name: other}))
    return placeholder_of(plain._replace(request=request), State.SEEN)


def owner_of(placeholder: Placeholder) -> Owner:
    return Owner.of(placeholder.workload.namespace, placeholder.request.job)


PLAIN = placeholder_of(pod(name="p"), State.SEEN)


def test_each_field_decides_one_thing() -> None:
    classified = Counter(name for what in Decides for name in fields_that_decide(what))
    assert classified == Counter(field.name for field in fields(JobSpec))


@pytest.mark.parametrize("name", fields_that_decide(Decides.DEMAND))
def test_pods_with_other_demands_are_not_alike(name: str) -> None:
    other = with_other(name)
    assert kind_of(other) != kind_of(PLAIN)
    assert owner_of(other) == owner_of(PLAIN)


@pytest.mark.parametrize("name", fields_that_decide(Decides.OWNER))
def test_pods_of_other_owners_may_be_alike(name: str) -> None:
    other = with_other(name)
    assert kind_of(other) == kind_of(PLAIN)
    assert owner_of(other) != owner_of(PLAIN)


@pytest.mark.parametrize(
    "name", [*fields_that_decide(Decides.NOTHING), *fields_that_decide(Decides.QUEUE)]
)
def test_pods_that_differ_in_other_fields_are_alike(name: str) -> None:
    other = with_other(name)
    assert (kind_of(other), owner_of(other)) == (kind_of(PLAIN), owner_of(PLAIN))
