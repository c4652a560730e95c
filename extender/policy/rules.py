"""Decides which values a Pod may request from Slurm, by namespace and ServiceAccount.

The first matching rule applies, as in a firewall. A Pod that requests a forbidden value is invalid, and
a message gives the reason. The policy also removes the forbidden value from the Pod's job.
`extender.policy.file` reads the rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from extender.explain.sentences import sentence
from extender.pod_request.annotations import FIELD_NAMES
from extender.pod_request.devices.shared_gpus import shared_gpus, uncounted_gpus
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Pod
from extender.pod_request.translation import TranslationConfig
from slurm_client.model import HIGHEST_PRIORITY, JobSpec
from wellknown.quoting import quoted

_SHOWN = 80
_LISTED = ("account", "partition", "qos", "reservation")
_JUDGED = ("user_id", "group_id", "priority", *_LISTED)
_OTHERWISE = {"user_id": "nobody", "group_id": "the user's number"} | dict.fromkeys(_LISTED, "Slurm's")
"""The value of each field of a job, in words, if neither the Pod nor a rule gives a value."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The possible values of one field of a job. `default` is None if Slurm's default applies. `allowed`
    has patterns of the values that the Pod may request."""

    default: int | str | None = None
    allowed: tuple[str, ...] = ()

    def permits(self, asked: int | str) -> bool:
        """Returns True if a Pod may request a value. Each item of a list ("a,b") must be allowed. Items
        of the default are always allowed."""
        own = _parts(self.default)
        return all(
            part in own or any(fnmatchcase(part, one) for one in self.allowed) for part in _parts(asked)
        )

    def __str__(self) -> str:
        default = () if self.default is None else (str(self.default),)
        return ", ".join(dict.fromkeys((*default, *self.allowed))) or "none"


def _parts(value: int | str | None) -> list[str]:
    return [] if value is None else [part.strip() for part in str(value).split(",")]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for the Pods of some namespaces and ServiceAccounts. All patterns are patterns as in a
    shell, like `gpu-*`."""

    name: str
    namespaces: tuple[str, ...]
    service_accounts: tuple[str, ...] = ("*",)
    token: bool = False  # jobs belong to the token's user if the Pod names no user
    user: Choice = Choice()
    group: Choice = Choice()
    """If the rule has no default group, the job's group has the same number as the job's user. In this
    case, the Pod may also request this number."""
    fields: dict[str, Choice] = field(default_factory=dict)  # account, partition, qos, reservation
    max_priority: int | None = None
    timeout_minutes: int | None = None
    """The default time limit. If None, `max_timeout_minutes` is the default. If both are None, the
    partition decides."""
    max_timeout_minutes: int | None = None  # None: any time limit

    def matches(self, namespace: str, service_account: str) -> bool:
        """Returns True if the rule applies to Pods of this namespace and ServiceAccount."""
        here = any(fnmatchcase(namespace, one) for one in self.namespaces)
        return here and any(fnmatchcase(service_account, one) for one in self.service_accounts)

    @property
    def gives_user(self) -> bool:
        """Returns True if the rule gives a user, so that a Pod need not name a user."""
        return self.token or self.user.default is not None

    @property
    def default_minutes(self) -> int | None:
        """Returns the time limit of a Pod that names no limit; None if the partition decides."""
        return self.max_timeout_minutes if self.timeout_minutes is None else self.timeout_minutes


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules. For a Pod without a rule, all requests are allowed if `open` is True, and otherwise no
    request is allowed."""

    rules: tuple[Rule, ...] = ()
    open: bool = False
    pod_users: frozenset[int | None] = frozenset()
    """Users that only Pods have: no native job belongs to these users. None stands for the token's own
    user."""

    @property
    def preset(self) -> str:
        """Returns the name of the preset: "open" or "restricted"."""
        return "open" if self.open else "restricted"

    def rule_for(self, namespace: str, service_account: str) -> Rule | None:
        """Returns the rule for Pods of this namespace and ServiceAccount; None if no rule matches."""
        return next((r for r in self.rules if r.matches(namespace, service_account)), None)

    def adopts(self, namespace: str, service_account: str) -> bool:
        """Returns True if a Pod of this namespace and ServiceAccount may have a job although another
        scheduler bound the Pod."""
        rule = self.rule_for(namespace, service_account)
        return self.open if rule is None else rule.gives_user


OPEN = Policy(open=True)  # any annotation is allowed; jobs belong to the token's user by default
RESTRICTED = Policy()  # nothing is allowed without a rule


def for_adopted(job: JobSpec, rule: Rule | None) -> JobSpec:
    """Returns the job of a Pod that another scheduler has bound. The job gets the rule's default owner,
    account, QOS and time limit, and the highest priority that the rule allows. Without a rule (preset
    `open`), the job belongs to the token's user, and has Slurm's highest priority."""
    if rule is None:
        return replace(job, priority=HIGHEST_PRIORITY)
    given = {name: rule.fields.get(name, Choice()).default for name in ("account", "qos")}
    user, minutes = rule.user.default, rule.default_minutes
    limits = [each for each in (minutes, job.time_limit_minutes) if each is not None]
    owner = {"user_id": user, "group_id": user if rule.group.default is None else rule.group.default}
    rest = {"priority": rule.max_priority, "time_limit_minutes": min(limits, default=None)}
    changes: dict[str, Any] = {**given, **owner, **rest}
    return replace(job, **changes)


def judged(pod: Pod, policy: Policy, translation: TranslationConfig) -> Pod:
    """Returns the Pod with the job that the policy allows. The job has the policy's defaults, and no
    forbidden value. Each forbidden value is a problem of the request."""
    request = _apart(_permitted(pod, policy, translation), policy, translation)
    return pod if request is pod.request else pod._replace(request=request)


def _permitted(pod: Pod, policy: Policy, translation: TranslationConfig) -> Request:
    rule, request = policy.rule_for(pod.namespace, pod.service_account), pod.request
    if rule is None and policy.open:
        return request
    if rule is None:
        changes: dict[str, Any] = dict.fromkeys(_JUDGED)
        problems = [_no_rule(pod)]
    else:
        verdict = _Verdict(rule, request, translation.annotation_prefix)
        changes, problems = verdict.changes, verdict.problems
    job = replace(request.job, **changes)
    given = frozenset(name for name in changes if getattr(request.job, name) is None)
    all_problems = (*request.problems, *problems)
    return replace(request, job=job, problems=all_problems, by_policy=given)


def _apart(request: Request, policy: Policy, translation: TranslationConfig) -> Request:
    """Returns the request after the rule for GPUs that native jobs could also use (`shared_gpus`). By
    this rule, the job may get --exclusive=user, the Pod may need a node agent, or the request gets a
    problem or a warning."""
    job, prefix = request.job, translation.annotation_prefix
    uncounted = uncounted_gpus(request.uncounted_gpus, translation.gres, prefix)
    found = shared_gpus(job, translation.shared_gpus, policy.pod_users, prefix, uncounted)
    if found is None:
        return request
    constraints = request.constraints
    return replace(
        request,
        job=replace(job, shared=found.shared),
        constraints=constraints.with_agent() if found.needs_agent else constraints,
        problems=(*request.problems, *translation.see("shared-gpus", found.problem)),
        warnings=(*request.warnings, *translation.see("shared-gpus", found.warning)),
    )


def _no_rule(pod: Pod) -> str:
    return (
        f"no rule of the policy is for Pods of namespace {pod.namespace} and ServiceAccount"
        f" {pod.service_account}: the administrator of slurm-extender must add a rule with a Slurm user"
    )


class _Verdict:
    """The result of one rule for one job: the changed fields, and the problems."""

    def __init__(self, rule: Rule, request: Request, prefix: str) -> None:
        job = request.job
        self._rule, self._request, self._prefix = rule, request, prefix
        self.problems: list[str] = []
        self.changes: dict[str, Any] = self._owner(job)
        for name in _LISTED:
            self.changes[name] = self._chosen(name, getattr(job, name), rule.fields.get(name, Choice()))
        self.changes["priority"] = self._priority(job.priority)
        self.changes["time_limit_minutes"] = self._time_limit(job.time_limit_minutes)

    def _owner(self, job: JobSpec) -> dict[str, int | str | None]:
        rule = self._rule
        user = self._chosen("user_id", job.user_id, rule.user)
        if user is None and job.user_id is None and not rule.token:
            self.problems.append(
                f"{self._label()} gives no user: set the annotation {self._prefix}user-id, of which it"
                f" allows {rule.user}"
            )
        own = user if rule.group.default is None else None
        group = self._chosen("group_id", job.group_id, rule.group, own)
        return {"user_id": user, "group_id": group}

    def _chosen(
        self, name: str, asked: int | str | None, choice: Choice, own: int | str | None = None
    ) -> int | str | None:
        """Returns the value that a field has by the rule. `own` is a value that is allowed in
        addition."""
        if asked is None:
            return choice.default
        if asked == own or choice.permits(asked):
            return asked
        self._forbid(name, asked, str(choice))
        return choice.default

    def _priority(self, asked: int | None) -> int | None:
        most = self._rule.max_priority
        if asked is None or (most is not None and asked <= most):
            return asked
        self._forbid("priority", asked, _priorities(self._rule))
        return None

    def _time_limit(self, asked: int | None) -> int | None:
        default, most = self._rule.timeout_minutes, self._rule.max_timeout_minutes
        if asked is None:
            return self._rule.default_minutes
        if most is None or asked <= max(most, default or 0):
            return asked
        self.problems.append(
            f"a time limit of {asked} minutes ({self._asker('time_limit_minutes')}) is not allowed by"
            f" {self._label()}, which allows {_time_limits(self._rule)}"
        )
        return most

    def _forbid(self, name: str, asked: int | str, allowed: str) -> None:
        self.problems.append(
            f"{self._asker(name)}: {quoted(str(asked), _SHOWN)} is not allowed by {self._label()}, which"
            f" allows {allowed}"
        )

    def _asker(self, name: str) -> str:
        return sentence(self._request.asker(name, self._prefix))

    def _label(self) -> str:
        return f"the policy's rule {quoted(self._rule.name)}"


def described(rule: Rule) -> Iterator[str]:
    """Yields a line for each annotation. The line has the default and the allowed values."""
    choices = {"user_id": rule.user, "group_id": rule.group, **rule.fields}
    for name, otherwise in _OTHERWISE.items():
        choice = choices.get(name, Choice())
        default = otherwise if choice.default is None else str(choice.default)
        if name == "user_id" and rule.token:
            default = "the token's own user"
        yield f"{FIELD_NAMES[name]}: {default}; allowed: {choice}"
    yield f"priority: Slurm's; allowed: {_priorities(rule)}"
    minutes = rule.default_minutes
    limit = "the partition's" if minutes is None else f"{minutes} minutes"
    yield f"timeout: {limit}; allowed: {_time_limits(rule)}"


def _priorities(rule: Rule) -> str:
    return "none" if rule.max_priority is None else f"up to {rule.max_priority}"


def _time_limits(rule: Rule) -> str:
    most = rule.max_timeout_minutes
    return "any" if most is None else f"up to {max(most, rule.timeout_minutes or 0)} minutes"
