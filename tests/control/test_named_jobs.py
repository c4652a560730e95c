"""Jobs that are asked for by their names: what is found of them, whatever was lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import KeysView
from dataclasses import replace

import pytest

from extender.control.named_jobs import NamedJobs
from extender.placement.ledger import Ledger
from extender.record.config import PlacementConfig
from extender.record.events import Event, OrphanFound, SlurmRestarted
from extender.record.ownership import nobodys_key
from service.health import Health
from slurm_client.errors import NameTaken, NoRoomNow, OutcomeUnknown, Unreachable
from slurm_client.in_memory import InMemorySlurm
from slurm_client.model import (
    AllStates,
    Job,
    JobChanges,
    JobSpec,
)
from slurm_client.server import Configuration
from tests.slurm_client.bench import ALICE, BOB, GPUS, InMemoryBench, spec
from wellknown.job_key import JobIdRange, PlaceholderKey

RULES = PlacementConfig(cluster="c", ids=JobIdRange(first=20_000_000), secret=b"known to the replicas")
OWN = PlaceholderKey("c", "default", "p", "u1", 1)
ASKED = spec(name=OWN.own_name(RULES.secret), user_id=ALICE)


class KnownJobs(Ledger):
    """Knows some jobs."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self.known = set[int]()

    @property
    def job_ids(self) -> KeysView[int]:
        return dict.fromkeys(self.known).keys()


class Site(InMemoryBench):
    """A Slurm, and what is known of its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.told = KnownJobs(), list[Event]()
        self.left: str | None = None
        self.pods = dict[str, PlaceholderKey | None]()
        """The keys of the Pods that there are, by the names of their jobs; None: one is bound by it."""
        self.over = set[str]()
        self.jobs = self.next_leader()

    def next_leader(self) -> NamedJobs:
        self.jobs = NamedJobs(self.slurm, self.ledger, self.told.append)
        self.jobs.left = self.left
        return self.jobs

    async def job_named(self, name: str) -> Job:
        (job,) = [
            job for one in await self.slurm.all_states() if (job := await self.read(one)).name == name
        ]
        return job

    async def allocated(self) -> Job:
        """The job that was asked for."""
        return await self.jobs.allocate(ASKED)

    async def key_by_name(self, job: Job) -> PlaceholderKey | None:
        return self.pods.get(job.name, nobodys_key(job, RULES))

    async def sweep(self) -> None:
        await self.jobs.sweep(self.key_by_name, self.is_over)

    async def is_over(self, key: PlaceholderKey) -> bool:
        return key not in self.pods.values() or key.uid in self.over

    async def ends(self, job: JobSpec) -> bool:
        """Whether a late job of somebody's is ended."""
        await self.slurm.allocate_as_owner(job)
        await self.sweep()
        return bool(self.told)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_it_runs_by_its_name_alone(site: Site) -> None:
    job = await site.jobs.allocate(replace(ASKED, gres=(("gpu", 2),)))
    assert job == await site.read(job.id)
    assert job.state.running
    assert (job.name, job.user_id, job.admin_comment) == (ASKED.name, ALICE, "")
    with pytest.raises(NameTaken):
        await site.jobs.allocate(ASKED)
    assert await site.jobs.find(ASKED) == job


@pytest.mark.parametrize("lost", ["allocate_as_owner", "job"])
async def test_what_was_made_is_found(site: Site, lost: str) -> None:
    site.controls.lose_reply_of_next(lost)
    with pytest.raises(OutcomeUnknown):
        await site.jobs.allocate(ASKED)
    found = await site.jobs.find(ASKED)
    assert found is not None
    assert found.state.running


async def test_what_was_refused_is_not_found(site: Site) -> None:
    await site.fill()
    wants = replace(ASKED, gres=(("gpu", GPUS),))
    with pytest.raises(NoRoomNow):
        await site.jobs.allocate(wants)
    assert await site.jobs.find(wants) is None


async def test_a_job_of_another_user_name_or_workload_is_another(site: Site) -> None:
    await site.slurm.allocate_as_owner(replace(ASKED, user_id=BOB))
    await site.slurm.allocate_as_owner(replace(ASKED, name="p@default"))
    known = await site.slurm.allocate_as_owner(ASKED)
    site.ledger.known.add(known)
    assert await site.jobs.find(ASKED) is None


async def test_one_that_has_ended_meanwhile_is_found_as_that(site: Site) -> None:
    job = await site.allocated()
    site.controls.preempt(job.id)
    found = await site.jobs.find(ASKED)
    assert found is not None
    assert (found.id, found.state.base) == (job.id, "PREEMPTED")


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("bobs", BOB),
        ("alices-own", ALICE),
        (replace(OWN, name="q", uid="u2").own_name(RULES.secret), ALICE),
    ],
)
async def test_a_job_that_got_the_id_of_one_that_slurm_forgot_is_not_taken(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str, user: int
) -> None:
    """slurmctld is killed between the two calls."""
    read, before = InMemorySlurm.job, time.time()

    async def late(slurm: InMemorySlurm, job_id: int) -> Job | None:
        monkeypatch.setattr(InMemorySlurm, "job", read)
        slurm.forget_since(before)
        assert await slurm.allocate_as_owner(spec(name=name, user_id=user)) == job_id
        return await read(slurm, job_id)

    monkeypatch.setattr(InMemorySlurm, "job", late)
    with pytest.raises(OutcomeUnknown):
        await site.jobs.allocate(ASKED)
    assert (await site.job_named(name)).state.running
    assert await site.jobs.find(ASKED) is None


async def test_all_who_ask_at_once_share_a_reading(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()
    all_states = InMemorySlurm.all_states

    async def counted(slurm: InMemorySlurm) -> AllStates:
        asked["all_states"] += 1
        await asyncio.sleep(0.01)
        return await all_states(slurm)

    monkeypatch.setattr(InMemorySlurm, "all_states", counted)
    await asyncio.gather(*(site.jobs.find(ASKED) for _ in range(100)))
    assert asked["all_states"] <= 2
    await site.jobs.find(ASKED)
    assert asked["all_states"] <= 3


async def test_when_slurm_does_not_answer_the_next_asks_anew(site: Site) -> None:
    site.controls.outage(Unreachable("slurmctld is down"))
    with pytest.raises(Unreachable):
        await site.jobs.find(ASKED)
    site.controls.outage(None)
    assert await site.jobs.find(ASKED) is None


async def test_a_job_that_comes_late_is_ended(site: Site) -> None:
    """Its Pod is gone by then: nobody asks for this one any more."""
    assert await site.ends(ASKED)
    job = await site.job_named(ASKED.name)
    assert site.told == [OrphanFound(nobodys_key(job, RULES), job.id, job)]


async def test_a_job_that_a_bound_pod_names_is_not_ended(site: Site) -> None:
    site.pods[ASKED.name] = None
    assert not await site.ends(ASKED)


async def test_a_job_that_is_being_asked_for_is_not_ended(site: Site) -> None:
    site.controls.lose_reply_of_next("allocate_as_owner")
    with pytest.raises(OutcomeUnknown):
        await site.jobs.allocate(ASKED)
    await site.sweep()
    assert (await site.job_named(ASKED.name)).state.running


async def test_a_job_that_is_known_is_not_ended(site: Site) -> None:
    job = await site.allocated()
    site.ledger.known.add(job.id)
    await site.sweep()
    assert (await site.read(job.id)).state.running
    assert site.told == []


@pytest.mark.parametrize("name", ["native", "p@default", "p@default#0123456789abcdef", ASKED.name + "x"])
async def test_a_job_that_the_extender_has_not_named_is_nobodys_to_end(site: Site, name: str) -> None:
    assert not await site.ends(replace(ASKED, name=name))


async def test_of_a_pods_job_the_ledger_is_told_once_the_pod_is_over(site: Site) -> None:
    job = await site.allocated()
    site.pods[ASKED.name] = OWN
    await site.sweep()
    assert site.told == []
    site.over.add(OWN.uid)
    await site.sweep()
    assert site.told == [OrphanFound(OWN, job.id, job)]


async def test_another_clusters_job_is_nobodys_to_end(site: Site) -> None:
    other = replace(OWN, cluster="d")
    site.over.add(OWN.uid)
    job_id = await site.slurm.allocate_as_owner(ASKED)
    await site.slurm.update(job_id, JobChanges(admin_comment=str(other)))
    await site.sweep()
    assert site.told == []
    assert not await site.ends(replace(ASKED, name=other.own_name(b"theirs")))


async def test_jobs_of_others_are_read_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await site.slurm.allocate_as_owner(spec(name=f"native-{number}", user_id=BOB))
    read, job = Counter[int](), InMemorySlurm.job

    async def counted(slurm: InMemorySlurm, job_id: int) -> Job | None:
        read[job_id] += 1
        return await job(slurm, job_id)

    monkeypatch.setattr(InMemorySlurm, "job", counted)
    for _ in range(3):
        await site.sweep()
    assert list(read.values()) == [1] * 5


async def test_a_restarted_slurmctld_is_told_of_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.control.named_jobs.RESTARTS_IN_S", -1.0)
    await site.jobs.begin()
    await site.jobs.look()
    assert site.told == []
    site.controls.forget_since(time.time())
    for _ in range(2):
        await site.jobs.look()
    assert site.told == [SlurmRestarted()]


async def test_a_job_whose_pod_was_deleted_while_nobody_led_is_ended(site: Site) -> None:
    """It was on its Pod since long, so that the mark has passed it: all are read in the background."""
    job = await site.allocated()
    site.left = f"{job.id + 1}@{(await site.slurm.configuration()).boot_time}"
    jobs = site.next_leader()
    assert job.id not in await jobs.begin()
    found = OrphanFound(nobodys_key(job, RULES), job.id, job)
    await site.sweep()
    assert site.told == [found]
    site.ledger.known.add(job.id)
    await site.sweep()
    assert site.told == [found]


async def test_a_name_that_is_taken_by_a_job_below_the_mark_is_found_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm has begun to count anew, and does not tell (24.11)."""
    told = Configuration(boot_time=(await site.slurm.configuration()).boot_time)
    monkeypatch.setattr(InMemorySlurm, "configuration", lambda _: asyncio.sleep(0, told))
    site.left = f"19000000@{told.boot_time}"
    jobs = site.next_leader()
    await jobs.begin()
    site.controls.lose_reply_of_next("allocate_as_owner")
    with pytest.raises(OutcomeUnknown):
        await jobs.allocate(ASKED)
    assert await jobs.find(ASKED) is None
    with pytest.raises(NameTaken):
        await jobs.allocate(ASKED)
    found = await jobs.find(ASKED)
    assert found is not None
    assert found.state.running


async def test_no_job_is_asked_for_whose_id_might_be_a_placeholders(site: Site) -> None:
    site.ledger.rules = replace(RULES, ids=JobIdRange(first=1))
    jobs = site.next_leader()
    with pytest.raises(NoRoomNow, match="placeholders' range"):
        await jobs.allocate(ASKED)
    (ended,) = (await site.slurm.all_states()).values()
    assert ended.ended
    with pytest.raises(NoRoomNow):
        await jobs.allocate(ASKED)
    assert len(await site.slurm.all_states()) == 1
    jobs = site.next_leader()
    await jobs.begin()
    with pytest.raises(NoRoomNow):
        await jobs.allocate(ASKED)
    assert len(await site.slurm.all_states()) == 1


async def test_all_who_look_for_a_restart_at_once_share_the_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, configuration = Counter[str](), InMemorySlurm.configuration

    async def counted(slurm: InMemorySlurm) -> Configuration:
        asked["configuration"] += 1
        await asyncio.sleep(0.01)
        return await configuration(slurm)

    await site.jobs.begin()
    site.controls.forget_since(time.time())
    monkeypatch.setattr(InMemorySlurm, "configuration", counted)
    await asyncio.gather(*(site.jobs.look() for _ in range(100)))
    assert asked["configuration"] <= 2
    assert site.told == [SlurmRestarted()]


async def test_a_look_counts_for_less_than_slurmctld_takes_to_make_a_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(NamedJobs, "_now", lambda _: now[0])
    await site.jobs.begin()
    await site.jobs.look()
    site.controls.forget_since(time.time())
    now[0] += 0.019  # the soonest that was measured
    await site.jobs.look()
    assert site.told == [SlurmRestarted()]


async def test_a_look_that_slurm_did_not_answer_is_not_shared(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration, down = InMemorySlurm.configuration, [True]

    async def slow(slurm: InMemorySlurm) -> Configuration:
        await asyncio.sleep(0.001)
        if down:
            down.clear()
            raise Unreachable("slurmctld is down")
        return await configuration(slurm)

    await site.jobs.begin()
    site.controls.forget_since(time.time())
    monkeypatch.setattr(InMemorySlurm, "configuration", slow)
    first, _ = await asyncio.gather(site.jobs.look(), site.jobs.look(), return_exceptions=True)
    assert isinstance(first, Unreachable)
    assert site.told == [SlurmRestarted()]


async def test_a_late_job_is_looked_for_until_slurm_has_answered_for_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld hangs for longer than a request takes, and then makes what it was asked for."""
    now = [asyncio.get_running_loop().time()]
    monkeypatch.setattr(NamedJobs, "_now", lambda _: now[0])
    monkeypatch.setattr("extender.control.named_jobs._INTERVAL_S", 0.0)
    site.controls.outage(OutcomeUnknown("no answer"))
    with pytest.raises(OutcomeUnknown):
        await site.jobs.allocate(ASKED)
    running = asyncio.ensure_future(site.jobs.run(Health(), site.key_by_name, site.is_over))
    await passes(now, 125)
    site.controls.outage(None)
    assert await site.jobs.find(ASKED) is None
    await passes(now, 4)
    late = await site.slurm.allocate_as_owner(ASKED)
    await passes(now, 30)
    assert {each.job_id for each in site.told if isinstance(each, OrphanFound)} == {late}
    running.cancel()


async def passes(now: list[float], seconds: int) -> None:
    for _ in range(seconds):
        now[0] += 1
        await asyncio.sleep(0.002)


async def test_the_next_leader_reads_only_newer_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.jobs.begin()
    old = await site.slurm.allocate_as_owner(spec(name="native", user_id=BOB))
    job = await site.allocated()
    site.ledger.known.add(job.id)
    monkeypatch.setattr("extender.control.job_mark.LATE_S", 0.0)
    site.left = site.jobs.mark
    newer = await site.next_leader().begin()
    assert old not in newer
    assert job.id + 1 in newer
    site.controls.forget_since(time.time())
    assert old in await site.next_leader().begin()
