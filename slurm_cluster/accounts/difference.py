"""Finds the changes that make slurmdbd match a file, in a valid order. This module does no I/O.

QOS come first, then accounts (parents before children), associations (the first association creates the
user), fields of users, and coordinators. After all of these, objects are removed, in the reverse order
of kinds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slurm_cluster.accounts import values
from slurm_cluster.accounts.document import NORMAL, ROOT
from slurm_cluster.accounts.entities import Entity, Fields, Key, Kind, State

_STAYS: Final = {
    (Kind.QOS, (NORMAL,)),
    (Kind.ACCOUNT, (ROOT,)),
    (Kind.USER, (ROOT,)),
    (Kind.ASSOCIATION, (ROOT, ROOT, "")),
}
"""Objects that Slurm creates itself."""
_OF_USERS: Final = (Kind.ASSOCIATION, Kind.USER)
_MOST: Final = 100
"""Maximum number of users in one command."""
_OF_A_USER: Final = (Kind.ASSOCIATION, Kind.COORDINATOR)
_LATER: Final = {"Preempt": values.UNSET}
"""Fields that name other objects of the same kind. These fields are set after all objects exist."""


class Action(StrEnum):
    """The kind of a change of an object. The value is the symbol in a diff."""

    ADD = "+"
    CHANGE = "~"
    REMOVE = "-"


@dataclass(frozen=True, slots=True)
class Step:
    """One change of an object, with the new fields and the fields before the change."""

    action: Action
    kind: Kind
    key: Key
    fields: Fields
    before: Fields

    def lines(self) -> list[str]:
        """Returns the step as lines of a diff."""
        lines = [f"{self.action} {Entity(self.kind, self.key, {})}"]
        for name, value in sorted(self.fields.items()):
            before = self.before.get(name, values.UNSET)
            old = f"{before or 'not set'} -> " if self.action is Action.CHANGE else ""
            lines.append(f"    {name}: {old}{value or 'not set'}")
        return lines


def steps(has: State, wants: State, *, prune: bool) -> list[Step]:
    """Returns the changes in a valid order."""
    gone = [*_taken_back(has, wants), *(others(has, wants) if prune else ())]
    return [*_made(has, wants), *_removed(gone)]


def batches(todo: Iterable[Step]) -> Iterator[Sequence[Step]]:
    """Yields groups of steps. A group has equal changes of several users, so one command can carry out
    the whole group. The order of kinds stays the same."""
    alike: dict[object, list[Step]] = {}
    for step in todo:
        alike.setdefault(_command(step), []).append(step)
    for group in alike.values():
        for first in range(0, len(group), _MOST):
            yield group[first : first + _MOST]


def _command(step: Step) -> object:
    """Returns a key of a step. Steps with equal changes of different users have equal keys."""
    where = step.key[1:] if step.kind in _OF_USERS else step.key
    fields = (tuple(sorted(each.items())) for each in (step.fields, step.before))
    return (step.action, step.kind, where, *fields)


def others(has: State, wants: State) -> list[Entity]:
    """Returns the objects of slurmdbd that the file lacks. Slurm's own objects are left out, and so are
    coordinators that the file's accounts no longer have."""
    back = _taken_back(has, wants)
    return [
        entity
        for name, entity in has.items()
        if name not in wants and name not in _STAYS and entity not in back
    ]


def _taken_back(has: State, wants: State) -> list[Entity]:
    """Returns coordinators that the file's accounts no longer have."""
    found = (entity for name, entity in has.items() if name not in wants)
    return [
        entity
        for entity in found
        if entity.kind is Kind.COORDINATOR and (Kind.ACCOUNT, entity.key[1:]) in wants
    ]


def _made(has: State, wants: State) -> Iterator[Step]:
    for kind in Kind:
        entities = [entity for entity in wants.values() if entity.kind is kind]
        if kind is Kind.ACCOUNT:
            entities = list(_parents_first(entities))
        first, then = list[Step](), list[Step]()
        for entity in entities:
            old = has.get((kind, entity.key))
            first += _new(entity) if old is None else _changed(entity, old, entity.fields.keys())
            if old is None:
                then += _changed(entity, Entity(kind, entity.key, _LATER), _LATER.keys() & entity.fields)
        yield from (*first, *then)


def _new(entity: Entity) -> list[Step]:
    given = {
        name: value
        for name, value in entity.fields.items()
        if value != values.UNSET and name not in _LATER
    }
    return [Step(Action.ADD, entity.kind, entity.key, given, {})]


def _changed(entity: Entity, old: Entity, names: Iterable[str]) -> list[Step]:
    given = {
        name: entity.fields[name]
        for name in names
        if entity.fields[name] != old.fields.get(name, values.UNSET)
    }
    return [Step(Action.CHANGE, entity.kind, entity.key, given, old.fields)] if given else []


def _parents_first(accounts: Sequence[Entity]) -> Iterator[Entity]:
    by_name = {entity.key[0]: entity for entity in accounts}
    return iter(sorted(accounts, key=lambda entity: _depth(entity, by_name)))


def _depth(entity: Entity, by_name: Mapping[str, Entity]) -> int:
    depth, above = 0, entity.fields["Parent"]
    while above in by_name:
        depth, above = depth + 1, by_name[above].fields["Parent"]
    return depth


def _removed(gone: Sequence[Entity]) -> Iterator[Step]:
    users = {entity.key[0] for entity in gone if entity.kind is Kind.USER}
    for kind in reversed(Kind):
        entities = [entity for entity in gone if entity.kind is kind]
        if kind is Kind.ACCOUNT:
            entities = list(_parents_first(entities))[::-1]
        for entity in entities:
            if kind in _OF_A_USER and entity.key[0] in users:
                continue  # sacctmgr removes these objects with the user
            yield Step(Action.REMOVE, kind, entity.key, {}, entity.fields)
