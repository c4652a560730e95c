"""Reads and changes the objects of slurmdbd with sacctmgr(1)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from slurm_cluster.accounts import values
from slurm_cluster.accounts.difference import Action, Step
from slurm_cluster.accounts.document import NORMAL
from slurm_cluster.accounts.entities import Entity, Key, Kind, State, coordinators
from slurm_cluster.programs import ProgramFailed, run

_AWAY: Final = ("connect", "slurmdbd", "database", "unspecified error", "timed out")
"""Parts of sacctmgr's errors, in lower case. If an error has such a part, slurmdbd or the database does
not answer."""
_QOS: Final = (
    *("Priority", "Flags", "Preempt", "GraceTime", "PreemptMode", "PreemptExemptTime"),
    *("UsageFactor", "UsageThreshold", "LimitFactor"),
    *values.OF_QOS,
)
_ASSOCIATION: Final = ("Fairshare", "Priority", "QOS", "DefaultQOS", *values.OF_ASSOCIATION)
_OWN_VALUES: Final = ("WOPLimits", "WithRawQOSLevel")
"""Options of sacctmgr that exclude inherited values."""


class DatabaseAway(Exception):
    """Raised if slurmdbd, or the database, does not answer."""


def read(cluster: str) -> State:
    """Returns the objects of a cluster in slurmdbd. Raises DatabaseAway, ProgramFailed."""
    accounts = list(_accounts(cluster))
    entities = [*_qos(), *accounts, *_users(cluster), *_coordinators(accounts)]
    state = {(entity.kind, entity.key): entity for entity in entities}
    if (Kind.QOS, (NORMAL,)) not in state:  # the QOS normal always exists, so nothing was read
        raise DatabaseAway("slurmdbd reported no QOS")
    return state


def clusters() -> list[str]:
    """Returns the names of the clusters in slurmdbd. Raises DatabaseAway, ProgramFailed."""
    return [cluster for cluster, *_ in _show("cluster", ("Cluster",))]


def carry_out(batch: Sequence[Step], cluster: str) -> None:
    """Applies one group of `difference.batches`. Raises DatabaseAway, ProgramFailed."""
    _ask("-i", *_command(batch[0], ",".join(step.key[0] for step in batch), cluster))


def _command(step: Step, names: str, cluster: str) -> list[str]:
    if step.kind is Kind.COORDINATOR:
        user, account = step.key
        action = "delete" if step.action is Action.REMOVE else "add"
        return [action, "coordinator", f"accounts={account}", f"names={user}"]
    which = _which(step.kind, names, step.key, cluster)
    if step.action is Action.REMOVE:
        return ["delete", _entity(step.kind), "where", *which]
    given = [
        f"{name}={values.argument(name, value, step.before.get(name, values.UNSET))}"
        for name, value in sorted(step.fields.items())
    ]
    if step.action is Action.CHANGE or step.kind is Kind.USER:
        return ["modify", _entity(step.kind), "where", *which, "set", *given]
    return ["add", _entity(step.kind), *which, *given]


def _entity(kind: Kind) -> str:
    return "user" if kind is Kind.ASSOCIATION else kind.value


def _which(kind: Kind, names: str, key: Key, cluster: str) -> list[str]:
    if kind is Kind.ASSOCIATION:
        _, account, partition = key
        where = [f"name={names}", f"account={account}", f"cluster={cluster}"]
        return [*where, f"partition={partition}"] if partition else where
    return [f"name={names}", *([] if kind is Kind.QOS else [f"cluster={cluster}"])]


def _qos() -> Iterator[Entity]:
    for name, *found in _show("qos", ("Name", *_QOS)):
        fields = dict(zip(_QOS, found, strict=True))
        fields |= {each: values.names(fields[each]) for each in ("Flags", "Preempt")}
        fields["GraceTime"] = _seconds(fields["GraceTime"])
        fields["PreemptMode"] = fields["PreemptMode"].lower()
        if exempt := fields["PreemptExemptTime"]:
            fields["PreemptExemptTime"] = _seconds(exempt)
        yield Entity(Kind.QOS, (name,), fields | _limits(fields, values.OF_QOS))


def _accounts(cluster: str) -> Iterator[Entity]:
    about = {
        name: {"Description": description, "Organization": organization}
        for name, description, organization in _show("account", ("Account", "Descr", "Org"))
    }
    for name, user, _, parent, *found in _associations(cluster):
        if not user:
            fields = _association_fields(found) | {"Parent": parent}
            yield Entity(Kind.ACCOUNT, (name,), fields | about.get(name, {}))


def _coordinators(accounts: Iterable[Entity]) -> Iterator[Entity]:
    parents = {entity.key[0]: entity.fields["Parent"] for entity in accounts}
    shown = _show("account", ("Account", "Coordinators"), "WithCoordinators")
    named = {name: frozenset(filter(None, found.split(","))) for name, found in shown}
    return coordinators(parents, {name: named.get(name, frozenset()) for name in parents})


def _users(cluster: str) -> Iterator[Entity]:
    here = set[str]()
    for account, user, partition, _, *found in _associations(cluster):
        if user:
            here.add(user)
            yield Entity(Kind.ASSOCIATION, (user, account, partition), _association_fields(found))
    for name, account, level in _show("user", ("User", "DefaultAccount", "AdminLevel")):
        if name in here:
            yield Entity(Kind.USER, (name,), {"DefaultAccount": account, "AdminLevel": level})


def _associations(cluster: str) -> list[list[str]]:
    columns = ("Account", "User", "Partition", "ParentName", *_ASSOCIATION)
    return _show("association", columns, *_OWN_VALUES, f"cluster={cluster}")


def _association_fields(found: Sequence[str]) -> dict[str, str]:
    fields = dict(zip(_ASSOCIATION, found, strict=True))
    fields["QOS"] = values.names(fields["QOS"])
    return fields | _limits(fields, values.OF_ASSOCIATION)


def _limits(fields: Mapping[str, str], known: Mapping[str, values.Form]) -> dict[str, str]:
    return {name: form(fields[name]) if fields[name] else values.UNSET for name, form in known.items()}


def _seconds(text: str) -> str:
    """Returns seconds for a time that sacctmgr prints as HH:MM:SS."""
    parts = [int(part) for part in text.replace("-", ":").split(":") if part]
    scales = (1, 60, 3600, 86400)
    return str(sum(part * scale for part, scale in zip(reversed(parts), scales, strict=False)))


def _show(entity: str, columns: Sequence[str], *options: str) -> list[list[str]]:
    shown = _ask("-nP", "show", entity, *options, f"format={','.join(columns)}")
    return [line.split("|") for line in shown.splitlines() if line.count("|") == len(columns) - 1]


def _ask(*arguments: str) -> str:
    try:
        return run("sacctmgr", *arguments)
    except ProgramFailed as failed:
        message = failed.message.lower()
        if any(each in message for each in _AWAY):
            raise DatabaseAway(failed.message) from failed
        raise
