"""/bind of gangs: no member is bound before kube-scheduler has called for each member."""

import asyncio
from dataclasses import replace

import pytest

from extender.bind import gang_barrier
from slurm_client.job_state import JobState
from slurm_client.model import Job
from tests.builders import PREFIX, RULES, Manifest, kube_node, pod, pod_manifest, view
from tests.verbs.callers import BoundPods, FakeSlurm, Listeners
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey, generation_of
from wellknown.lingering import LingeringNote
from wellknown.names import ATTEMPT, GRANTED, JOB_ID

ANNOTATIONS = {f"{PREFIX}gang": "train", f"{PREFIX}gang-size": "3"}
NAMES = ("train-0", "train-1", "train-2")
_GANG = pod("train-0", annotations=ANNOTATIONS).workload
_KEY = PlaceholderKey(
    RULES.cluster, "default", "train", _GANG.uid, 1, generation=generation_of(["uid-train-0"])
)
JOB = Job(
    _KEY.job_id(RULES.ids),
    JobState("RUNNING"),
    name="train@default",
    admin_comment=str(_KEY),
    nodes=("n1", "n2"),
    cores=("0-3", "0-1"),
    cpus=(4, 2),
    memory_allocated_mb=(2048, 1024),
    cpus_allocated=6,
    tasks=3,
)
SLOTS = (("n1", "0-1"), ("n1", "2-3"), ("n2", "0-1"))


def member(number: int, cores: str | None = None) -> Manifest:
    """Returns a member with its slot, or with other cores."""
    node, cores = SLOTS[number][0], cores or SLOTS[number][1]
    slot = Allocation(JOB.id, node, cores=cores, memory_mb=1024).annotations()
    annotations = {**ANNOTATIONS, **slot, ATTEMPT: "1", JOB_ID: str(JOB.id)}
    return pod_manifest(NAMES[number], cpu="2", gates=(), annotations=annotations)


class Gang:
    """Three members, and the listeners of a replica that does not lead."""

    def __init__(self, job: Job = JOB, **cores: str) -> None:
        """`cores` has other cores than SLOTS for some members: `_1` for the member 1."""
        self.kubernetes = BoundPods(*(member(n, cores.get(f"_{n}")) for n in range(3)))
        self.slurm = FakeSlurm(job, calls=self.kubernetes.calls)
        nodes = view(kube_node("n1"), kube_node("n2"))
        self.listeners = Listeners(self.kubernetes, self.slurm, nodes)

    async def bind(self, *numbers: int) -> list[str]:
        """Returns the error messages of simultaneous calls; "" for a success."""
        return await asyncio.gather(*(self._bind(number) for number in numbers))

    async def _bind(self, number: int) -> str:
        call = {"PodName": NAMES[number], "PodNamespace": "default", "PodUID": f"uid-{NAMES[number]}"}
        answer = await self.listeners.ask("bind", call | {"Node": SLOTS[number][0]})
        return str(answer["Error"])


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_barrier, "HOLD_S", 0.5)
    monkeypatch.setattr(gang_barrier, "_LOOKS_S", (0.05,))


async def test_all_members_are_bound_by_one_read_of_the_job() -> None:
    gang = Gang()
    assert await gang.bind(0, 1, 2) == ["", "", ""]
    bound = gang.kubernetes.bindings
    assert sorted(node for node, _ in bound) == ["n1", "n1", "n2"]
    assert len({(node, annotations[GRANTED]) for node, annotations in bound}) == 3
    assert gang.slurm.calls.count("read job") == 1


async def test_no_member_is_bound_while_a_member_has_no_node() -> None:
    gang = Gang()
    words = "the Pod's gang waits for 1 more Pods at kube-scheduler"
    assert await gang.bind(0, 2) == [words, words]
    assert gang.kubernetes.bindings == []
    assert await gang.bind(0, 1, 2) == ["", "", ""]


async def test_members_follow_a_member_that_is_already_bound() -> None:
    """A kube-scheduler was killed between two Bindings."""
    gang = Gang()
    await gang.kubernetes.bind_pod("default", NAMES[1], "n1", {"uid": f"uid-{NAMES[1]}"})
    assert await gang.bind(0) == [""]
    assert await gang.bind(2) == [""]


async def test_a_job_with_fewer_tasks_binds_no_member() -> None:
    gang = Gang(replace(JOB, tasks=2, cpus_allocated=4))
    assert all("the job has 2 tasks instead of 3" in error for error in await gang.bind(0, 1, 2))
    assert gang.kubernetes.bindings == []


async def test_no_member_is_bound_on_the_cores_of_another_member() -> None:
    """The job was started again on other cores, and the bound member still has its old cores."""
    gang = Gang(_1="1-2")
    await gang.kubernetes.bind_pod("default", NAMES[1], "n1", {"uid": f"uid-{NAMES[1]}"})
    assert "still use the resources of this Pod's job" in (await gang.bind(0))[0]
    assert await gang.bind(2) == [""]


async def test_no_member_is_bound_beside_containers_of_the_lost_member() -> None:
    gang = Gang()
    await gang.kubernetes.bind_pod("default", NAMES[1], "n1", {"uid": f"uid-{NAMES[1]}"})
    note = LingeringNote(JOB.id, "default/lost", 0.5, cores="0-1")
    gang.listeners.lingering_notes.add("n1", note)
    assert "deleted by force still end there: default/lost" in (await gang.bind(0))[0]
    await asyncio.sleep(0.6)
    assert await gang.bind(0) == [""]
