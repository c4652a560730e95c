"""Tests of the policy at admission."""

from pathlib import Path
from typing import Any

import pytest

from tests.builders import PREFIX, Manifest
from tests.verbs.callers import Listeners
from tests.verbs.test_mutate import call

RULES = """\
rules:
- name: trainers
  namespaces: [team-a]
  serviceAccounts: [trainer]
  default: {user: 2001}
  allow: {maxPriority: 10}
"""


@pytest.fixture
def ruled(tmp_path: Path) -> Listeners:
    file = tmp_path / "policy.yaml"
    file.write_text(RULES)
    return Listeners(policy_file=file)


async def told(ruled: Listeners, sent: Manifest) -> str | None:
    """Returns the message of a rejection; None if the Pod is admitted."""
    response = (await ruled.ask("mutate", sent))["response"]
    return None if response["allowed"] else str(response["status"]["message"])


def of_team(annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    sent = call(annotations, **({"serviceAccountName": "trainer"} | spec))
    sent["request"]["namespace"] = "team-a"
    sent["request"]["object"]["metadata"].pop("namespace", None)
    return sent


async def test_namespace_and_service_account_select_the_rule(ruled: Listeners) -> None:
    assert await told(ruled, of_team({PREFIX + "priority": "10"})) is None
    refusal_of = await told(ruled, of_team({PREFIX + "priority": "11"}, serviceAccountName="default"))
    assert refusal_of is not None
    assert (
        "no rule of the policy is for Pods of namespace team-a and ServiceAccount default" in refusal_of
    )


async def test_policy_violations_are_reported_with_all_other_problems(ruled: Listeners) -> None:
    wrong = {PREFIX + "user-id": "2002", PREFIX + "priority": "11", PREFIX + "timeout": "soon"}
    message = await told(ruled, of_team(wrong))
    assert message is not None
    for part in ('user-id: "2002"', 'priority: "11"', 'rule "trainers"', "up to 10", '"soon"'):
        assert part in message


async def test_policy_uses_the_namespace_of_the_request(ruled: Listeners) -> None:
    sent = of_team()
    sent["request"]["namespace"] = "elsewhere"
    sent["request"]["object"]["metadata"]["namespace"] = "team-a"
    assert "namespace elsewhere" in str(await told(ruled, sent))


async def test_unmanaged_pod_needs_no_rule(ruled: Listeners) -> None:
    sent = of_team({"example.com/owner": "ana"}, serviceAccountName="default")
    assert await told(ruled, sent) is None


async def test_managed_pod_is_rejected_without_a_policy() -> None:
    assert "no rule of the policy" in str(await told(Listeners(policy=None), call()))
