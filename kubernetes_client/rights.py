"""Finds the rights that an account lacks, with few requests.

A SelfSubjectRulesReview returns the account's rules in one namespace. The rules of RBAC are complete. If
another authorizer, such as a webhook, takes part, the review says `incomplete`: the authorizer may allow
more than the rules, or less. A SelfSubjectAccessReview is about one right, and is always exact.
"""

from asyncio import gather
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from kubernetes_client.protocol import Manifest, Right

Review = Callable[[str, Manifest], Awaitable[Manifest]]
"""Sends a review of this kind with this spec. Returns the status of the review."""

_ALL: Final = "*"


async def denied(rights: Iterable[Right], review: Review) -> tuple[Right, ...]:
    """Returns the rights that the account lacks. Several rights in a namespace share one request for the
    account's rules. Each right that these rules do not prove costs another request. A right without a
    namespace, or alone in its namespace, costs one request."""
    by_namespace = defaultdict[str, list[Right]](list)
    for right in rights:
        by_namespace[right.namespace].append(right)
    lacking: list[Right] = []
    for namespace, asked in by_namespace.items():
        rules = await _rules(namespace, review) if namespace and len(asked) > 1 else ()
        unproven = [right for right in asked if not any(_gives(rule, right) for rule in rules)]
        allowed = await gather(*(_allows(right, review) for right in unproven))
        lacking += [right for right, allows in zip(unproven, allowed, strict=True) if not allows]
    return tuple(lacking)


async def _rules(namespace: str, review: Review) -> Iterable[Manifest]:
    status = await review("SelfSubjectRulesReview", {"namespace": namespace})
    return () if status["incomplete"] else status["resourceRules"]


async def _allows(right: Right, review: Review) -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked = right._asdict() | {"resource": resource, "subresource": subresource}
    status = await review("SelfSubjectAccessReview", {"resourceAttributes": asked})
    return bool(status["allowed"])


def _gives(rule: Manifest, right: Right) -> bool:
    return (
        _has(rule["verbs"], right.verb)
        and _has(rule.get("apiGroups") or (), right.group)
        and _has(rule.get("resources") or (), right.resource)
        and right.name in (rule.get("resourceNames") or [right.name])
    )


def _has(listed: Iterable[Any], value: str) -> bool:
    return any(each in (_ALL, value) for each in listed)
