"""The objects in slurmdbd, and the objects that a file requests. Each field has one canonical form, so
that the objects of slurmdbd and of the file can be compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from slurm_cluster.accounts import values
from slurm_cluster.accounts.document import NORMAL, ROOT, Account, Document, Limits, Membership, Qos


class Kind(StrEnum):
    """The kinds of sacctmgr's objects, in the order of their creation: no object needs an object of a
    later kind."""

    QOS = "qos"
    ACCOUNT = "account"
    ASSOCIATION = "association"
    USER = "user"
    COORDINATOR = "coordinator"


Key = tuple[str, ...]
"""The key of an object: a name. For an association: user, account and partition ("" for all). For a
coordinator: user and account."""
Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Entity:
    """An object with its fields."""

    kind: Kind
    key: Key
    fields: Fields

    def __str__(self) -> str:
        if self.kind is Kind.ASSOCIATION:
            user, account, partition = self.key
            return f"user {user} in account {account}" + (
                f", partition {partition}" if partition else ""
            )
        if self.kind is Kind.COORDINATOR:
            return f"coordinator {self.key[0]} of account {self.key[1]}"
        return f"{self.kind} {self.key[0]}"


State = Mapping[tuple[Kind, Key], Entity]


class WrongAccounts(Exception):
    """Raised for a file with invalid objects: duplicates, unknown names, cycles of parents, or invalid
    limits. `problems` lists all errors."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def wanted(document: Document, has: State) -> dict[tuple[Kind, Key], Entity]:
    """Returns the objects of a file. Raises WrongAccounts for an invalid file, so that nothing is
    applied."""
    problems = list(_problems(document, has))
    entities: dict[tuple[Kind, Key], Entity] = {}
    for entity in (*_entities(document, problems), *_coordinators(document, has)):
        if (entity.kind, entity.key) in entities:
            problems.append(f"{entity} occurs twice")
        entities[entity.kind, entity.key] = entity
    if problems:
        raise WrongAccounts(problems)
    return entities


def _entities(document: Document, problems: list[str]) -> Iterator[Entity]:
    for qos in document.qos:
        yield Entity(Kind.QOS, (qos.name,), _qos_fields(qos, problems))
    for account in document.accounts:
        yield Entity(Kind.ACCOUNT, (account.name,), _account_fields(account, problems))
    for user in document.users:
        default = user.default_account or user.accounts[0].name
        yield Entity(
            Kind.USER, (user.name,), {"AdminLevel": user.admin_level, "DefaultAccount": default}
        )
        for each in user.accounts:
            about = f"user {user.name} in account {each.name}"
            key = (user.name, each.name, each.partition)
            yield Entity(Kind.ASSOCIATION, key, _association_fields(about, each, problems))


def _coordinators(document: Document, has: State) -> Iterator[Entity]:
    """Yields the coordinators of the file's accounts, without inherited coordinators. An account of the
    file may inherit coordinators from an account that is only in slurmdbd (`has`)."""
    own = {each.name: frozenset(each.coordinators) for each in document.accounts}
    parents = {
        key[0]: each.fields.get("Parent", "")
        for (kind, key), each in has.items()
        if kind is Kind.ACCOUNT
    }
    parents |= {each.name: each.parent for each in document.accounts}
    old: dict[str, frozenset[str]] = {}
    for user, account in (key for kind, key in has if kind is Kind.COORDINATOR):
        old[account] = old.get(account, frozenset()) | {user}
    for each in coordinators(parents, old | own):
        if each.key[1] in own:
            yield each


def coordinators(parents: Mapping[str, str], named: Mapping[str, frozenset[str]]) -> Iterator[Entity]:
    """Yields each account's own coordinators. Inherited coordinators, which sacctmgr also shows, are
    left out."""
    for account, names in named.items():
        for name in sorted(names - _above(account, parents, named)):
            yield Entity(Kind.COORDINATOR, (name, account), {})


def _above(
    account: str, parents: Mapping[str, str], named: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    found, seen = frozenset[str](), {account}
    while (account := parents.get(account, "")) and account not in seen:
        seen.add(account)
        found |= named.get(account, frozenset())
    return found


def _qos_fields(qos: Qos, problems: list[str]) -> Fields:
    return {
        "Priority": str(qos.priority),
        "Flags": values.names(",".join(qos.flags)),
        "Preempt": values.names(",".join(qos.preempt)),
        "GraceTime": str(qos.grace_time),
        "PreemptMode": qos.preempt_mode,
        "PreemptExemptTime": _given(qos.preempt_exempt_time),
        "UsageFactor": _factor(qos.usage_factor),
        "UsageThreshold": _factor(qos.usage_threshold),
        "LimitFactor": _factor(qos.limit_factor),
        **_limits(f"qos {qos.name}", qos.limits, values.OF_QOS, problems),
    }


def _given(number: int | None) -> str:
    return values.UNSET if number is None else str(number)


def _factor(number: float | None) -> str:
    """Returns a factor in the form that sacctmgr prints."""
    return values.UNSET if number is None else f"{number:.6f}"


def _account_fields(account: Account, problems: list[str]) -> Fields:
    return {
        "Parent": account.parent,
        "Description": (account.description or account.name).lower(),
        "Organization": (account.organization or account.parent).lower(),
        **_association_fields(f"account {account.name}", account, problems),
    }


def _association_fields(about: str, given: Account | Membership, problems: list[str]) -> Fields:
    return {
        "Fairshare": str(given.fairshare),
        "Priority": _given(given.priority),
        "QOS": values.names(",".join(given.qos)),
        "DefaultQOS": given.default_qos or values.UNSET,
        **_limits(about, given.limits, values.OF_ASSOCIATION, problems),
    }


def _limits(
    about: str, given: Limits, known: Mapping[str, values.Form], problems: list[str]
) -> dict[str, str]:
    limits = dict.fromkeys(known, values.UNSET)
    for name, value in given.items():
        if name not in known:
            problems.append(f"{about}: {name} is not a limit here; the limits are {', '.join(known)}")
            continue
        try:
            limits[name] = known[name](str(value))
        except ValueError as error:
            problems.append(f"{about}: {name}: {error}")
    return limits


def _problems(document: Document, has: State) -> Iterator[str]:
    """Yields an error for each name in the file that belongs to no object, and for each cycle of
    parents."""
    kept = () if document.prune else tuple(key for kind, (key, *_) in has if kind is Kind.QOS)
    qos = {NORMAL, *kept, *(each.name for each in document.qos)}
    kept = () if document.prune else tuple(key for kind, (key, *_) in has if kind is Kind.ACCOUNT)
    accounts = {ROOT, *kept, *(each.name for each in document.accounts)}
    kept = () if document.prune else tuple(key for kind, (key, *_) in has if kind is Kind.USER)
    users = {ROOT, *kept, *(each.name for each in document.users)}
    for each in document.qos:
        yield from _unknown(f"qos {each.name}", "preempts the QOS", each.preempt, qos)
    for account in document.accounts:
        about = f"account {account.name}"
        yield from _unknown(about, "has the parent", [account.parent], accounts)
        yield from _of_qos(about, account, qos)
        yield from _unknown(about, "has the coordinator", account.coordinators, users)
    yield from _cycles({each.name: each.parent for each in document.accounts})
    for user in document.users:
        about, own = f"user {user.name}", {each.name for each in user.accounts}
        yield from _unknown(about, "is in the account", sorted(own), accounts)
        yield from _unknown(about, "has the default account", [user.default_account or ""], {*own, ""})
        for membership in user.accounts:
            yield from _of_qos(f"{about} in account {membership.name}", membership, qos)


def _of_qos(about: str, given: Account | Membership, known: set[str]) -> Iterator[str]:
    yield from _unknown(about, "may use the QOS", given.qos, known)
    default = given.default_qos
    if default is not None:
        yield from _unknown(about, "has the default QOS", [default], set(given.qos) or known)


def _unknown(about: str, what: str, given: Sequence[str], known: set[str]) -> Iterator[str]:
    for name in given:
        if name not in known:
            yield f"{about} {what} {name}, which does not exist"


def _cycles(parents: Mapping[str, str]) -> Iterator[str]:
    for name in parents:
        seen, above = {name}, parents[name]
        while above in parents and above not in seen:
            seen.add(above)
            above = parents[above]
        if above == name:
            yield f"account {name} is below itself"
