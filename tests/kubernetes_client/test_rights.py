"""Tests that the client checks rights with few requests, and that a list of rules never counts as a
denial."""

from typing import Any

import pytest

from kubernetes_client.protocol import Manifest, Right
from kubernetes_client.rights import denied

PATCH, DELETE = Right("patch", "pods", namespace="a"), Right("delete", "pods", namespace="a")
STATUS = Right("patch", "pods/status", namespace="a")
LEASE = Right("update", "leases", "coordination.k8s.io", "a", "extender")
RULES = {"verbs": ["get", "patch", "delete"], "apiGroups": [""], "resources": ["pods", "pods/status"]}
ANY = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
NAMED = {"verbs": ["update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}


class Reviews:
    """Answers the reviews of an account. In each namespace, the account's list of rules is `rules`. The
    authorizers deny exactly the rights in `lacking`."""

    def __init__(self, *rules: Any, lacking: frozenset[Right], incomplete: bool = False) -> None:
        self._rules = {"resourceRules": list(rules), "incomplete": incomplete}
        self._lacking = lacking
        self.sent: list[str] = []

    async def __call__(self, kind: str, spec: Manifest) -> Manifest:
        self.sent.append(kind.removeprefix("SelfSubject").removesuffix("Review"))
        if kind == "SelfSubjectRulesReview":
            return self._rules
        asked = spec["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        right = Right(asked["verb"], resource, asked["group"], asked["namespace"], asked["name"])
        return {"allowed": right not in self._lacking}


@pytest.mark.parametrize("rule", [RULES, ANY])
async def test_rules_prove_all_rights_of_a_namespace_at_once(rule: Manifest) -> None:
    reviews = Reviews(rule, lacking=frozenset())
    assert await denied([PATCH, DELETE, STATUS], reviews) == ()
    assert reviews.sent == ["Rules"]


async def test_each_namespace_has_rules_of_its_own() -> None:
    reviews = Reviews(RULES, lacking=frozenset())
    others = [right._replace(namespace="b") for right in (PATCH, DELETE)]
    assert await denied([PATCH, *others, DELETE], reviews) == ()
    assert reviews.sent == ["Rules", "Rules"]


@pytest.mark.parametrize("right", [PATCH._replace(resource="secrets"), PATCH._replace(verb="create")])
@pytest.mark.parametrize("lacks", [True, False])
async def test_right_that_no_rule_gives_is_asked_for(right: Right, lacks: bool) -> None:
    lacking = frozenset({right}) if lacks else frozenset[Right]()
    reviews = Reviews(RULES, lacking=lacking)
    assert await denied([PATCH, right, DELETE], reviews) == tuple(lacking)
    assert reviews.sent == ["Rules", "Access"]


async def test_incomplete_rules_prove_nothing() -> None:
    """The list of rules is incomplete if kube-apiserver has another authorizer beside RBAC. This
    authorizer may deny a right that RBAC grants."""
    reviews = Reviews(RULES, lacking=frozenset({DELETE}), incomplete=True)
    assert await denied([PATCH, DELETE], reviews) == (DELETE,)
    assert reviews.sent == ["Rules", "Access", "Access"]


@pytest.mark.parametrize(("names", "lacking"), [(["extender"], []), (["other"], [LEASE]), ([], [])])
async def test_rule_for_named_objects_proves_these_alone(names: list[str], lacking: list[Right]) -> None:
    named = NAMED | {"resourceNames": names}
    reviews = Reviews(named, RULES, lacking=frozenset({LEASE}))
    assert list(await denied([LEASE, PATCH], reviews)) == lacking


async def test_rights_to_the_cluster_need_no_rules() -> None:
    cluster = [PATCH._replace(namespace=""), DELETE._replace(namespace="")]
    reviews = Reviews(RULES, lacking=frozenset({cluster[1]}))
    assert await denied([*cluster, STATUS], reviews) == (cluster[1],)
    assert reviews.sent == ["Access"] * 3
