"""Acts like users and administrators: creates, deletes and cancels Pods and native jobs."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from threading import Event, Thread
from typing import Any

import httpx

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.users import JOB_USERS
from tests.administrator import Kubernetes
from tests.chaos.checker import Causes
from tests.chaos.cluster_spec import ODD, PREFIX, RUNS_FOR, STOPS_AFTER
from tests.chaos.plan import Fate, GangFate, GangPlan, JobPlan, Odd, OddPlan, Outage, OutagePlan, PodPlan
from tests.end_to_end.actors import pod
from wellknown.job_key import job_name

BY_HAND = "disk is to be replaced"
PROCESSES = "processes"
"""File in a user's home to which native jobs report their running processes."""
_PODS = "/api/v1/namespaces/default/pods"
_PATIENCE_S = 60.0
_CLEANED_UP_AFTER_S = 12.0
_ANOTHER_AFTER_S = 1.0
_A_DAY_S = 86_400
BY_FORCE, SLOWLY = "delete by force", "delete slowly"
_DELETIONS: Mapping[int | None, str] = {0: BY_FORCE, _A_DAY_S: SLOWLY}
_SLOWLY_S = 3.0  # seconds from the deletion to the cancellation of the job
_LEFT_ALONE_S = 60.0  # time for the extender to shorten the grace period; not for adopted Pods
_RESUMES = 20
_NATIVE = """#!/bin/bash
end=$((SECONDS + {seconds}))
while
    echo "{name} $SLURM_JOB_ID.$$ $SLURMD_NODENAME $EPOCHREALTIME" >>{file}
    ((SECONDS < end))
do sleep 0.4; done
"""
_THREADS = 24
_BESIDE_NOBODY = {"labelSelector": {"matchLabels": {"nobody": "this"}}, "topologyKey": "nobody"}
_ODD_SPECS: Mapping[str, dict[str, Any]] = {
    Odd.CLAIM: {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]},
    Odd.NOWHERE: {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_BESIDE_NOBODY]}}
    },
}

Task = Callable[[], None]


class Workload:
    """Carries out plans of Pods and jobs. The times of a plan count from `start`."""

    def __init__(self, cluster: Cluster, causes: Causes) -> None:
        self._cluster = cluster
        self._causes = causes
        self._kubernetes = Kubernetes(cluster)
        self._tasks: list[tuple[float, int, Task]] = []
        self._numbers = itertools.count()
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._pool = ThreadPoolExecutor(_THREADS)
        self.native_cpus: dict[str, int] = {}
        """CPUs of the native jobs, by name."""
        self.done: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()

    def plan_pod(self, plan: PodPlan) -> None:
        manifest = _manifest(plan)
        end = plan.at + plan.after
        self.at(plan.at, lambda: self.create(manifest))
        match plan.fate:
            case Fate.DELETE:
                self.at(end, lambda: self.delete(plan.name))
            case Fate.FINISH:
                self.at(end + _CLEANED_UP_AFTER_S, lambda: self.delete(plan.name))
            case Fate.CANCEL:
                self.at(end, lambda: self._cancel(plan.name))
                self.at(end + _CLEANED_UP_AFTER_S, lambda: self.delete(plan.name))
            case Fate.FORCE:
                self.at(end, lambda: self.delete(plan.name, 0))
            case Fate.SLOWLY:
                self.at(end, lambda: self.delete(plan.name, _A_DAY_S))
                self.at(end + _SLOWLY_S, lambda: self._cancel(plan.name))
                later = _LEFT_ALONE_S if plan.partition else _CLEANED_UP_AFTER_S
                self.at(end + later, lambda: self.delete(plan.name, plan.grace_s))

    def plan_gang(self, plan: GangPlan) -> None:
        names = [f"{plan.name}-{number}" for number in range(plan.size)]
        end, last = plan.at + plan.after, plan.at + plan.after + _CLEANED_UP_AFTER_S
        for name, comes in zip(names, plan.comes, strict=True):
            self._at_create(plan.at + comes, _member(plan, name))
        match plan.fate:
            case GangFate.DELETE:
                last = end
            case GangFate.CANCEL:
                self.at(end, lambda: self._cancel(plan.name))
            case GangFate.LOSE:
                self.at(end, lambda: self.delete(names[0]))
                another = f"{plan.name}-again"
                self._at_create(end + _ANOTHER_AFTER_S, _member(plan, another))
                names.append(another)
        for name in names:
            self.at(last, partial(self.delete, name))

    def _at_create(self, at: float, manifest: dict[str, Any]) -> None:
        self.at(at, lambda: self.create(manifest))

    def plan_odd_pod(self, plan: OddPlan) -> None:
        manifest = _odd_manifest(plan)
        self.at(plan.at, lambda: self.create(manifest))
        self.at(plan.at + plan.lasts, lambda: self.delete(plan.name))

    def plan_job(self, plan: JobPlan) -> None:
        self.at(plan.at, lambda: self.submit(plan))
        if plan.cancel_after is not None:
            self.at(plan.at + plan.cancel_after, lambda: self._cancel_native(plan))

    def plan_outage(self, plan: OutagePlan) -> None:
        self.at(plan.at, lambda: self._take_out(plan))
        self.at(plan.at + plan.lasts, lambda: self._put_back(plan))

    def at(self, at: float, task: Task) -> None:
        """Schedules a task for a time, in seconds after the start."""
        heapq.heappush(self._tasks, (at, next(self._numbers), task))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drops the tasks that are not due yet, and finishes all other tasks."""
        self._over.set()
        self._thread.join()
        self._pool.shutdown()

    def close(self) -> None:
        self._kubernetes.close()

    def create(self, manifest: dict[str, Any]) -> None:
        """Creates a Pod. Repeats a failed request for up to _PATIENCE_S."""
        self._insist("create", lambda: self._kubernetes.ask("POST", _PODS, manifest))

    def delete(self, name: str, grace_s: int | None = None) -> None:
        """Deletes a Pod, with the Pod's own grace period (None), with another, or by force (0). Repeats
        a failed request."""
        self._causes.deleted.setdefault(name, time.monotonic())
        if grace_s == 0:
            self._causes.forced.add(name)
        how = "" if grace_s is None else f"?gracePeriodSeconds={grace_s}"
        self._insist(
            _DELETIONS.get(grace_s, "delete"),
            lambda: self._kubernetes.ask("DELETE", f"{_PODS}/{name}{how}"),
        )

    def _cancel(self, name: str) -> None:
        self._causes.cancelled.setdefault(name, time.monotonic())
        self._slurm("cancel", "scancel", f"--name={job_name('default', name)}")

    def submit(self, plan: JobPlan) -> None:
        """Submits a native job at once."""
        self.native_cpus[plan.name] = plan.cpus
        asked = ("-J", plan.name, "-p", plan.partition, "-c", str(plan.cpus), "--mem", "100")
        where = ("-o", "/dev/null", "-D", f"/home/{plan.user}")
        script = _NATIVE.format(name=plan.name, seconds=plan.seconds, file=PROCESSES)
        self._slurm("sbatch", "sbatch", *asked, *where, user=plan.user, stdin=script)

    def _cancel_native(self, plan: JobPlan) -> None:
        self._causes.native_cancelled.add(plan.name)
        self._slurm("native cancel", "scancel", "--name", plan.name, user=plan.user)

    def _take_out(self, plan: OutagePlan) -> None:
        self._causes.held_out[plan.node] = (plan.how, inf)
        if plan.how is Outage.CORDON:
            self._insist(plan.how, lambda: self._schedulable(plan.node, wanted=False))
        else:
            state = "DOWN" if plan.how is Outage.DOWN else "DRAIN"
            self._slurm(plan.how, "scontrol", *_update(plan.node, state), f"reason={BY_HAND}")
            if not self.is_out(plan.node):
                return
        self._causes.held_out[plan.node] = (plan.how, time.monotonic())

    def _put_back(self, plan: OutagePlan) -> None:
        self._causes.held_out.pop(plan.node, None)
        if plan.how is Outage.CORDON:
            self._insist("uncordon", lambda: self._schedulable(plan.node, wanted=True))
            return
        for _ in range(_RESUMES):
            self._slurm("resume", "scontrol", *_update(plan.node, "RESUME"))
            if self.is_out(plan.node) is False:
                return
            time.sleep(1.0)

    def is_out(self, node: str) -> bool | None:
        """Returns True if a node is out of service in Slurm; None if slurmctld does not answer."""
        try:
            shown = self._cluster.run_slurm("scontrol", "-o", "show", "node", node).stdout
        except ClusterError:
            return None
        state = shown.partition(" State=")[2].split()[0]
        return "DRAIN" in state or "DOWN" in state

    def _schedulable(self, node: str, *, wanted: bool) -> None:
        patch = {"spec": {"unschedulable": not wanted}}
        self._kubernetes.ask("PATCH", f"/api/v1/nodes/{node}", patch)

    def _slurm(self, what: str, program: str, *arguments: str, **how: str) -> None:
        """Runs a program of Slurm, without a second try: without a reply, a client cannot know if the
        request took effect."""
        try:
            self._cluster.run_slurm(program, *arguments, **how)
        except ClusterError:
            self.given_up[what] += 1
        else:
            self.done[what] += 1

    def _insist(self, what: str, ask: Callable[[], object]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            try:
                ask()
            except httpx.HTTPStatusError as error:
                if error.response.status_code in (404, 409):  # an earlier try took effect
                    return
            except httpx.HTTPError:
                pass
            else:
                self.done[what] += 1
                return
            time.sleep(0.2)
        self.given_up[what] += 1

    def _run(self) -> None:
        begin = time.monotonic()
        while self._tasks and not self._over.is_set():
            due = begin + self._tasks[0][0] - time.monotonic()
            if due <= 0:
                self._pool.submit(heapq.heappop(self._tasks)[2])
            else:
                self._over.wait(min(due, 1.0))


def _manifest(plan: PodPlan) -> dict[str, Any]:
    """Returns the manifest of a planned Pod. kwok ends the Pod as the annotations say."""
    takes = _A_DAY_S if plan.fate is Fate.SLOWLY else plan.grace_s
    annotations = {STOPS_AFTER: str(takes)}
    if plan.fate is Fate.FINISH:
        annotations[RUNS_FOR] = str(int(plan.after))
    if plan.partition:
        annotations[PREFIX + "partition"] = plan.partition
        annotations |= _owned_by(plan.owner)
    return pod(
        plan.name,
        cpu=str(plan.cpus),
        gpus=plan.gpus,
        own_annotations=annotations,
        scheduler="slurm-scheduler" if plan.partition else "default-scheduler",
        terminationGracePeriodSeconds=plan.grace_s,
    )


def _member(plan: GangPlan, name: str) -> dict[str, Any]:
    """Returns the manifest of a member of a gang."""
    annotations = {
        PREFIX + "gang": plan.name,
        PREFIX + "gang-size": str(plan.size),
        PREFIX + "partition": plan.partition,
        STOPS_AFTER: "1",
        **_owned_by(plan.owner),
    }
    if plan.fate is GangFate.FINISH:
        annotations[RUNS_FOR] = str(int(plan.after))
    return pod(name, cpu="1", own_annotations=annotations, terminationGracePeriodSeconds=1)


def _odd_manifest(plan: OddPlan) -> dict[str, Any]:
    annotations = {PREFIX + "partition": plan.partition, **_owned_by(plan.owner)}
    if plan.comment:
        annotations[PREFIX + "comment"] = plan.comment
    spec = {"terminationGracePeriodSeconds": 1, **_ODD_SPECS.get(plan.why, {})}
    return pod(plan.name, own_annotations=annotations, labels={ODD: plan.why}, **spec)


def _owned_by(user: str) -> dict[str, str]:
    """Returns the annotation for the user of a Pod's job. Without the annotation, the job belongs to
    root."""
    return {} if user == "root" else {PREFIX + "user-id": str(JOB_USERS[user])}


def _update(node: str, state: str) -> tuple[str, ...]:
    return ("update", f"nodename={node}", f"state={state}")
