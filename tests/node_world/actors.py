"""Actors that disturb a `NodeWorld` at random: owners of jobs and Pods, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from slurm_client.errors import SlurmError, Unreachable
from slurm_client.model import Job
from tests.node_world.world import NODES, REPLICAS, NodeWorld

_MAX_PODS = 8
"""Number of Pods, and of native jobs, at a time."""
_NOTICES_S = 5.0  # more than `binder._FRESH_S`, as a person needs to see a job and to type its id
USER = 1000
Acts = tuple[Callable[[], Awaitable[None]], ...]


class Actor:
    """Performs random actions, with pauses, until a given time."""

    LONGEST_PAUSE_S = 1.5

    def __init__(self, world: NodeWorld, until: float) -> None:
        self._world, self._until, self._random = world, until, world.random
        self.did: list[str] = []

    def acts(self) -> Acts:
        raise NotImplementedError

    async def act(self) -> None:
        """Acts until the given time, and then calls `end`."""
        while self._world.now < self._until:
            await asyncio.sleep(self._random.uniform(0.0, self.LONGEST_PAUSE_S))
            act = self._random.choice(self.acts())
            with suppress(SlurmError):
                await act()
        await self.end()

    async def end(self) -> None:
        """Undoes changes that would last for ever."""


class Owner(Actor):
    """Changes the user's own jobs and Pods. The jobs of other Pods belong to the user of the extender's
    token. Only an administrator may change such a job, and the administrator first needs a moment to see
    the job."""

    def acts(self) -> Acts:
        creates, suspends = (self._create_pod, self._create_job) * 2, (self._suspend,) * 3
        changes = self._requeue, self._shrink, self._hold, self._cancel, self._delete
        return *creates, *suspends, *changes

    def _may_change(self, job: Job) -> bool:
        return job.user_id == USER or self._world.now - (job.start_time or 0) > _NOTICES_S

    async def _create_pod(self) -> None:
        if len(self._world.kubernetes.objects("pods")) < _MAX_PODS:
            cpus, gpus = self._random.choice((1, 2, 4)), self._random.choice((0, 0, 1, 2))
            grace_s, user = self._random.choice((0, 1, 5)), self._random.choice((None, USER))
            name = self._world.create_pod(cpus, gpus, grace_s, user)
            self.did.append(f"{name} for {cpus} CPUs and {gpus} GPUs")

    async def _create_job(self) -> None:
        """Creates a native job, sometimes with the name of a placeholder, because users may choose any
        name."""
        if sum(job.id in self._world.natives for job in self._world.jobs()) < _MAX_PODS:
            cpus, gpus = self._random.choice((1, 4, 8)), self._random.choice((0, 0, 1, 2))
            names = ["native", *(job.name for job in self._world.jobs() if job.id in self._world.ids)]
            name, seconds = self._random.choice(names), self._random.uniform(1.0, 10.0)
            job_id = await self._world.create_native_job(cpus, gpus, seconds, name, USER)
            self.did.append(f"job {job_id} ({name}) for {cpus} CPUs and {gpus} GPUs")

    async def _requeue(self) -> None:
        """Requeues a job. Mostly makes the job smaller before the next start, and may hold the job for a
        moment."""
        running = [job for job in self._world.placeholders() if job.state.running]
        found = list(filter(self._may_change, running))
        if found:
            job = self._random.choice(found)
            with suppress(ValueError):  # the job is no batch job
                self._world.slurm.requeue(job.id)
                self.did.append(f"requeues {job.name}")
                if self._random.random() < 0.8:
                    self._world.slurm.resize(job.id, 1)
                if self._random.random() < 0.3:
                    await self._hold_for_a_moment(job)

    async def _hold(self) -> None:
        found = [job for job in self._world.waiting() if job.user_id == USER]
        if found:
            await self._hold_for_a_moment(self._random.choice(found))

    async def _hold_for_a_moment(self, job: Job) -> None:
        self.did.append(f"holds {job.name}")
        self._world.slurm.hold(job.id)
        await asyncio.sleep(self._random.choice((0.3, 2.0, 5.0)))
        with suppress(ValueError):  # the extender has ended the job
            self._world.slurm.release(job.id)

    async def _shrink(self) -> None:
        found = [job for job in self._world.waiting() if job.user_id == USER]
        if found:
            job = self._random.choice(found)
            self.did.append(f"makes {job.name} smaller")
            self._world.slurm.resize(job.id, 1)

    async def _suspend(self) -> None:
        """Suspends a job. Mostly resumes the job soon, perhaps between two polls."""
        placeholders = filter(self._may_change, self._world.placeholders())
        running = [job for job in placeholders if job.state.running]
        if running:
            job = self._random.choice(running)
            self.did.append(f"suspends {job.name}")
            self._world.slurm.suspend(job.id)
            if self._random.random() < 0.8:
                await asyncio.sleep(self._random.choice((0.3, 0.6, 0.9, 2.0)))
                await self._resume()

    async def _resume(self) -> None:
        """Resumes all jobs, native jobs too."""
        for job in self._world.jobs():
            if job.state.suspended:
                self.did.append(f"resumes {job.name}")
                self._world.slurm.resume(job.id)

    async def _cancel(self) -> None:
        found = self._world.placeholders()
        if found:
            job = self._random.choice(found)
            self.did.append(f"cancels {job.name}")
            await self._world.slurm.cancel(job.id)

    async def _delete(self) -> None:
        """Deletes a Pod, in a fifth of the cases by force."""
        pods = self._world.kubernetes.objects("pods")
        if pods:
            name = self._random.choice(pods)["metadata"]["name"]
            # No replica knows of Pods that are deleted by force while no replica leads
            # (docs/concepts/endings.md).
            if self._random.random() < 0.2 and self._world.is_led:
                self.did.append(f"deletes {name} by force")
                self._world.kubernetes.remove("pods", name)
            else:
                grace = self._random.choice((6, 600))
                self.did.append(f"deletes {name} with a grace of {grace} s")
                await self._world.kubernetes.delete_pod("default", name, {}, grace)


class SlowWrites(Actor):
    """Makes kube-apiserver slow for some Bindings, and for some notes on Nodes. During a slow Binding,
    the Pod's job may end."""

    LONGEST_PAUSE_S = 10.0

    def acts(self) -> Acts:
        return (self._hold,)

    async def _hold(self) -> None:
        self._world.kubernetes.hold(self._random.choice(("bind_pod", "patch_node_status")))
        await asyncio.sleep(self._random.uniform(0.0, 5.0))
        self._world.kubernetes.release()


class RollOuts(Actor):
    """Ends the node agents, and starts new agents later. Only for worlds in which the gate can ask
    agents."""

    LONGEST_PAUSE_S = 10.0

    def acts(self) -> Acts:
        return (self._roll_out,)

    async def _roll_out(self) -> None:
        self.did.append("the node agents end")
        self._world.agents_away = True
        await asyncio.sleep(self._random.uniform(0.0, 15.0))
        self._world.agents_away = False


class Failures(Actor):
    """Crashes of slurmctld, the extender's replicas, nodes and connections."""

    LONGEST_PAUSE_S = 20.0

    def acts(self) -> Acts:
        nodes = self._fail_node, self._cut_off_kubelet
        return self._outage, self._kill_slurmctld, self._end_replica, *nodes

    async def _outage(self) -> None:
        self.did.append("slurmctld does not answer")
        self._world.slurm.outage(Unreachable("slurmctld was not reached"))
        await asyncio.sleep(self._random.uniform(0.0, 5.0))
        self._world.slurm.outage(None)

    async def _kill_slurmctld(self) -> None:
        """Kills slurmctld. slurmctld forgets the changes of up to 5 s. After up to 5 s, slurmctld starts
        again, or a standby leads."""
        self.did.append("slurmctld is killed")
        forgets_since = self._world.now - self._random.uniform(0.0, 5.0)
        await self._outage()
        self._world.slurm.forget_since(forgets_since)

    async def _end_replica(self) -> None:
        """Ends the leader or the other replica, or both."""
        some = self._random.sample(REPLICAS, self._random.choice((1, 1, 2)))
        for name in some:
            kill = self._random.random() < 0.5
            self.did.append(f"{name} {'is killed' if kill else 'ends'}")
            await self._world.end(name, kill=kill)
        await asyncio.sleep(self._random.uniform(0.0, 10.0))
        for name in some:
            self._world.start(name)

    async def _fail_node(self) -> None:
        """Fails a node in Slurm, as if slurmd did not answer for SlurmdTimeout. Later, the node comes
        back."""
        name = self._random.choice(NODES)
        self.did.append(f"{name} fails")
        self._world.slurm.fail_node(name)
        await asyncio.sleep(self._random.uniform(0.0, 10.0))
        self._world.slurm.resume_node(name)

    async def _cut_off_kubelet(self) -> None:
        """Cuts off a kubelet. The Pods run on, and the kubelet sees no deletions. In this model,
        Kubernetes notices the outage at once. In a real cluster, this takes 40 s."""
        name = self._random.choice(NODES)
        self.did.append(f"the kubelet of {name} is cut off")
        self._world.cut_off_kubelet(name, lasts=True)
        await asyncio.sleep(self._random.uniform(0.0, 20.0))
        self._world.cut_off_kubelet(name, lasts=False)

    async def end(self) -> None:
        """Ends outages. A killed slurmctld may have forgotten that a node is up again."""
        self._world.slurm.outage(None)
        for name in NODES:
            self._world.slurm.resume_node(name)
