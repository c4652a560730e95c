"""Pods of PodGroups at admission: the gang of a Pod comes from its PodGroup."""

import asyncio
from typing import Any

import pytest

from extender.admission import pod_groups
from extender.admission.pod_groups import PodGroups
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from tests.builders import PREFIX, Manifest
from tests.verbs.callers import Listeners
from tests.verbs.test_mutate import call, stored

NATIVE = {"schedulingGroup": {"podGroupName": "train"}}
LABEL = {"scheduling.x-k8s.io/pod-group": "train"}
GANG, SIZE = f"{PREFIX}gang", f"{PREFIX}gang-size"


def pod_group(policy: Manifest) -> Manifest:
    """Returns a PodGroup of Kubernetes."""
    named = {"name": "train", "namespace": "ml"}
    spec = {"schedulingPolicy": policy}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "metadata": named, "spec": spec}


GANG_OF_8 = pod_group({"gang": {"minCount": 8}})
BASIC = pod_group({"basic": {}})
COSCHEDULED: Manifest = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "metadata": {"name": "train", "namespace": "ml"},
    "spec": {"minMember": 4},
}


async def response(
    *groups: Manifest,
    gang: Manifest | None = None,
    labels: Manifest | None = None,
    kubernetes: InMemoryKubernetes | None = None,
    **spec: Any,
) -> tuple[Manifest, Manifest]:
    """Creates a Pod beside these PodGroups. Returns the call, and the response."""
    kubernetes = kubernetes or InMemoryKubernetes()
    kubernetes.put("podgroups", *groups)
    sent = call({f"{PREFIX}partition": "main", **(gang or {})}, **spec)
    sent["request"]["object"]["metadata"]["labels"] = labels or {}
    answer = await Listeners(kubernetes).ask("mutate", sent)
    return sent, answer["response"]


async def gang_of(*groups: Manifest, **given: Any) -> tuple[str | None, str | None]:
    """Returns the annotations gang and gang-size of a new Pod."""
    annotations = stored(*await response(*groups, **given))["metadata"]["annotations"]
    return annotations.get(GANG), annotations.get(SIZE)


async def rejection(*groups: Manifest, **given: Any) -> str:
    _, answer = await response(*groups, **given)
    assert answer["allowed"] is False
    return str(answer["status"]["message"])


async def test_pod_of_a_pod_group_is_a_member_of_its_gang() -> None:
    assert await gang_of(GANG_OF_8, **NATIVE) == ("podgroup", "8")
    assert await gang_of(GANG_OF_8, gang={GANG: "podgroup"}, **NATIVE) == ("podgroup", "8")
    assert await gang_of(COSCHEDULED, labels=LABEL) == ("podgroup", "4")


async def test_pod_of_a_basic_pod_group_is_placed_by_itself() -> None:
    """With the feature gate WorkloadWithJob, the Pods of every Job have a PodGroup."""
    assert await gang_of(BASIC, **NATIVE) == ("none", None)


async def test_author_may_leave_a_group_that_only_the_plugin_coscheduling_knows() -> None:
    assert await gang_of(COSCHEDULED, labels=LABEL, gang={GANG: "none"}) == ("none", None)


async def test_gang_without_its_pod_group_is_rejected() -> None:
    told = await rejection(labels=LABEL, gang={GANG: "podgroup", SIZE: "8"})
    assert "there is no PodGroup train: create the PodGroup" in told


async def test_a_gang_that_the_author_names_stays() -> None:
    named = {GANG: "other", SIZE: "3"}
    assert await gang_of(GANG_OF_8, gang=named, **NATIVE) == ("other", "3")
    assert await gang_of(BASIC, gang=named, **NATIVE) == ("other", "3")


async def test_pod_without_a_pod_group_is_unchanged() -> None:
    assert await gang_of(GANG_OF_8) == (None, None)


@pytest.mark.parametrize(
    ("group", "gang", "words"),
    [
        (None, {}, "spec.schedulingGroup: there is no PodGroup train: create the PodGroup before"),
        (COSCHEDULED, {}, "there is no PodGroup train"),  # another API
        (GANG_OF_8, {GANG: "none"}, "PodGroup train starts 8 Pods together: remove"),
        (GANG_OF_8, {SIZE: "7"}, f"PodGroup train starts 8 Pods together: remove {SIZE}: 7"),
        (BASIC, {GANG: "podgroup"}, "PodGroup train has the policy basic, and is no gang"),
        (pod_group({"gang": {"minCount": 2049}}), {}, "is not a whole number from 1 to 2048"),
    ],
)
async def test_pod_that_does_not_fit_its_pod_group_is_rejected(
    group: Manifest | None, gang: dict[str, str], words: str
) -> None:
    groups = [] if group is None else [group]
    assert words in await rejection(*groups, gang=gang, **NATIVE)


async def test_label_without_a_pod_group_is_a_warning() -> None:
    """The plugin coscheduling schedules such a Pod by itself, too."""
    sent, answer = await response(labels=LABEL)
    assert GANG not in stored(sent, answer)["metadata"]["annotations"]
    assert "there is no PodGroup train: the Pod is placed by itself" in answer["warnings"][0]


@pytest.mark.parametrize("name", ["../../secrets/token", "Train", ".."])
async def test_name_that_no_pod_group_can_have_is_not_read(name: str) -> None:
    kubernetes = InMemoryKubernetes()
    group = {"schedulingGroup": {"podGroupName": name}}
    assert "there is no PodGroup" in await rejection(kubernetes=kubernetes, **group)
    assert "read_pod_group" not in kubernetes.calls


async def test_pod_is_rejected_with_the_error_of_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.outage(Unavailable(0, "kube-apiserver does not answer"), "read_pod_group")
    told = await rejection(kubernetes=kubernetes, **NATIVE)
    assert "PodGroup train could not be read: kube-apiserver does not answer" in told
    monkeypatch.setattr(pod_groups, "_LONGEST_S", 0.01)

    async def slow(*_: str) -> Manifest | None:
        await asyncio.sleep(1)
        return None

    pod: Manifest = {"metadata": {"namespace": "ml"}, "spec": NATIVE}
    (problem,) = (await PodGroups(slow).join(pod, PREFIX)).problems
    assert "no answer within" in problem


async def test_pods_that_come_together_share_a_read() -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.put("podgroups", GANG_OF_8)
    groups, pod = PodGroups(kubernetes.read_pod_group), {"metadata": {"namespace": "ml"}, "spec": NATIVE}
    joined = await asyncio.gather(*(groups.join(pod, PREFIX) for _ in range(20)))
    assert {each.pod["metadata"]["annotations"][SIZE] for each in joined} == {"8"}
    assert kubernetes.calls == ["read_pod_group"]


async def test_pod_group_of_an_unmanaged_pod_is_not_read() -> None:
    kubernetes = InMemoryKubernetes()
    sent = call({"example.com/owner": "ana"}, **NATIVE)
    answer = await Listeners(kubernetes).ask("mutate", sent)
    assert answer["response"]["allowed"] is True
    assert "read_pod_group" not in kubernetes.calls
