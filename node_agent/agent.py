"""The agent of one Node. The agent follows the Node's Pods, and keeps each Pod to the resources of the
Pod's job."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog

from kubernetes_client.protocol import Kubernetes
from node_agent.enforcement import overlaps
from node_agent.enforcement.decision import Decision
from node_agent.enforcement.gone_pods import GonePod, gone_pods
from node_agent.enforcement.keeper import Keeper
from node_agent.enforcement.lasting import Lasting
from node_agent.enforcement.native_jobs import NativeJobs, has_run_slurmd
from node_agent.enforcement.pod_steps import PodSteps
from node_agent.kernel.inotify import FolderWatch
from node_agent.nri import plugin
from node_agent.pods.cgroups import EVENTS, LIMITS, PodCgroup, PodCgroups, write
from node_agent.pods.claims import Claim
from node_agent.pods.gate import lingering
from node_agent.pods.node_pods import NodePods
from node_agent.reporting.device_health import DeviceHealth
from node_agent.reporting.device_holders import DeviceHolders
from node_agent.reporting.node_condition import Reason
from node_agent.runtime.containers import Containers
from node_agent.runtime.kubelet_devices import KubeletDevices
from node_agent.settings import Settings
from node_agent.slurmd.manifest import gres_of
from node_agent.slurmd.runner import Here, SlurmdRunner
from service.health import Health
from service.periodic import periodically
from wellknown.names import DEVICE_PROBLEM

log = structlog.get_logger()

_LOOK_S = 10.0
"""Interval between two checks of the Node if no change is reported."""
_DEAF_S = 1.0
"""Interval between two checks if the kernel does not report new cgroups."""
_AWAITED_S = 0.2
"""Shortest interval between two checks while a Pod has no cgroup yet, or waits for devices or cores. The
kernel reports a new cgroup only if the agent already watches the folder above, and this folder may be as
new as the cgroup."""
_STEPS_S = 1.0
"""Interval between two searches for steps in the jobs of Pods."""
_PATIENCE = 20
"""Divisor for the interval between two checks while a Pod waits. The interval is the waiting time so
far, divided by this number, so the interval grows."""
_TOGETHER_S = 0.02
"""Pause between a reported change and the check, so that one check covers several changes."""
_WATCH = "watch of Pods"
_DEVICES = "slurmd's list of devices"
_NO_DEVICES_YET = "slurmd has not reported its devices yet"
_STARTS = "the agent starts"
_CPUS = "map of cores"
_RUNTIME = "container runtime"
_OTHERS = "cores of Pods of no job"
_PROGRAMS = "other device programs"
_NATIVE = "Slurm's limits of its jobs"
_SHARED = "cores of two jobs"
_STEPS = "steps in jobs of Pods"
_MEMORY = "lower limits of memory"
_JOB_FILES = "job files"
_GONE = "cores of Pods that are gone"
_CORES_HELD = (
    "processes of a Pod that is gone run on its cores: wait until the processes end, or have an"
    " administrator kill the processes on the Node"
)
_NUMBERS = "numbers of devices"
_NUMBERS_FILE = "file of the numbers of devices"
_CORES_LOST = f"the CPUs of its cores are not known (see the Node's condition {DEVICE_PROBLEM})"


class Agent:
    """Follows the Pods of a Node, and runs the keeper after each change."""

    def __init__(
        self, kubernetes: Kubernetes, cgroups: PodCgroups, keeper: Keeper, settings: Settings
    ) -> None:
        self.health = Health()
        self.keeper = keeper
        self._cgroups = cgroups
        self._settings = settings
        self._native = NativeJobs(cgroups)
        self.steps = PodSteps(ends=settings.end_steps)
        self._overlaps = Lasting[overlaps.Holders]()
        self.shared_cpus: Mapping[overlaps.Holders, list[int]] = {}
        """CPUs that a Pod shares with another Pod or with a native job, by the names of the holders."""
        self._news = asyncio.Event()
        self._reduces = asyncio.Event()
        """Set if limits of memory must be lowered in steps (`Limits.reduction`)."""
        node, namespace = settings.node, settings.slurmd_namespace
        report = partial(self.health.says, _WATCH)
        self._pods = NodePods(kubernetes, node, self._pods_changed, report, namespace)
        plugins = settings.device_plugins
        counted = settings.resources if plugins is not None else {}
        self.devices = DeviceHealth(kubernetes, node, keeper, settings.cdi, counted, self.health.says)
        self.kubelet_devices = [
            KubeletDevices(keeper, self._pods, resource, gres, plugins, settings.pod_resources)
            for resource, gres in settings.resources.items()
            if plugins is not None
        ]
        self.holders = DeviceHolders(keeper, self._pods, settings.job_mapping)
        self._awaits_runtime = settings.nri is not None
        self._containers = Containers(node, keeper, self._pods, self._begins)
        here = Here(
            pod=lambda: self._pods.slurmd,
            pull=lambda: self._pods.pull,
            jobs=self._native.jobs_in,
            orphans=self._orphaned_slurmds,
            machine=self._machine,
            awaited=lambda: self.devices.awaited,
        )
        label = settings.node_name_label
        self._slurmd = SlurmdRunner(kubernetes, node, namespace, label, here, self.health.says)
        self.problems: dict[str, str] = {}
        """Reasons why Pods have less than their jobs, by the Pod's namespace and name."""
        self.looked_at: float | None = None
        """Time of the last check that brought the limits of all Pods in the kernel up to date, in UNIX
        seconds."""

    async def run(self) -> None:
        """Runs for ever. Until the agent has listed the Pods, each Pod keeps the device access that an
        earlier agent gave."""
        self._look()  # gives the agent's own Pod access to devices, for calls of drivers
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep())
            tasks.create_task(self._pods.follow())
            tasks.create_task(self.health.run())
            tasks.create_task(self._watch_native_jobs())
            tasks.create_task(self._watch_steps())
            tasks.create_task(self.holders.run(partial(self.health.says, _JOB_FILES)))
            report = partial(self.health.says, _MEMORY)
            tasks.create_task(
                periodically(
                    self._reduce, self._reduces.wait, outlives=OSError, retry=_LOOK_S, report=report
                )
            )
            await self.devices.ask()  # the first container needs the devices' names from the drivers
            tasks.create_task(self.devices.run())
            if self._settings.nri is not None:
                tasks.create_task(plugin.stay(self._settings.nri, self._containers, self._note_runtime))
            for devices in self.kubelet_devices:
                report = partial(self.health.says, f"the kubelet's plugin for {devices.resource}")
                tasks.create_task(devices.stay(report, gives=self._settings.nri is None))
                report = partial(self.health.says, f"count of {devices.resource}")
                tasks.create_task(devices.compare_often(report))
            if self._settings.slurmd_namespace:
                tasks.create_task(self._slurmd.run())

    def lingering(self) -> tuple[str, ...]:
        """Returns the Pods for which the gate in Slurm's Prolog must wait (node_agent.pods.gate). If no
        kubelet has run here, returns no Pods. Before the answer, slurmd's Pod gets access to the devices
        of ended Pods, because the job whose Prolog asks the gate may start right after the answer.
        Raises OSError."""
        if self._pods.slurmd is not None:
            self._look()
        try:
            cgroups = list(self._cgroups.pods())
        except FileNotFoundError:
            return ()
        removals = self._pods.removals({cgroup.uid for cgroup in cgroups})
        removed = {uid: claim.pod for uid, claim in removals.items() if claim.of_job}
        removed |= {each.uid: each.name for each in self._gone(cgroups)}
        return lingering(self._pods.claims or {}, removed, cgroups)

    async def _keep(self) -> None:
        folders, waits_since = self._folders(), time.monotonic()
        try:
            while True:
                self._news.clear()
                watched = self._watch_folders(folders)  # before `_look`, so that no change is missed
                decision = self._look()
                pause = _LOOK_S if watched else _DEAF_S
                if decision is None or not decision.awaited:
                    waits_since = time.monotonic()
                else:  # the interval grows with the waiting time
                    pause = min(pause, max(_AWAITED_S, (time.monotonic() - waits_since) / _PATIENCE))
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                await asyncio.sleep(_TOGETHER_S)
        finally:
            if folders is not None:
                folders.close()

    def _look(self) -> Decision | None:
        self._look_at_machine()
        try:
            self.keeper.put_on()
            jobs = partial(self._native.present, self._pods.claims or {})
            decision = self.keeper.keep(self._pods.claims, self._native.known, jobs)
        except OSError as error:
            self.health.says("guard", error, alarm=True)
            self.devices.note(Reason.NOT_GUARDED, error)
            self.health.ready = False  # a new Pod would have no limits, so no Pod should come
            return None
        if self.keeper.limits.reductions:
            self._reduces.set()
        self.health.says("guard", None)
        self.devices.note(Reason.NOT_GUARDED, None)
        self.health.says(_OTHERS, self.keeper.others or None)
        self.health.says(_PROGRAMS, self._other_programs(), alarm=True)
        self._tell_of_numbers()
        if decision is not None:
            decision = decision.with_waits(self._waits_for_cores())
            self.looked_at = time.time()
            self._tell(self._containers.missing.problems() | decision.problems)
            self.devices.note(Reason.DEVICES_HELD, self._devices_held())
            self.health.ready = not self._awaits_runtime
        return decision

    def _tell_of_numbers(self) -> None:
        numbering = self.keeper.numbering
        self.devices.note(Reason.RENUMBERED, numbering.words)
        self.health.says(_NUMBERS, numbering.words or None, alarm=True)
        self.health.says(_NUMBERS_FILE, numbering.problem or None)

    def _waits_for_cores(self) -> dict[str, str]:
        """Returns the reasons, by uid, why Pods of jobs must not begin on their cores yet. A Pod that
        has begun continues to run. If the cores of gone Pods cannot be read, no Pod with cores may
        begin."""
        taken, unread = set[int](), ""
        try:
            taken = {cpu for each in self._gone(self.keeper.cgroups) for cpu in each.cpus}
        except OSError as error:
            unread = f"the cores of Pods that are gone cannot be read: {error}"
        self.health.says(_GONE, unread or None, alarm=True)
        waits = dict[str, str]()
        for uid, claim in (self._pods.claims or {}).items():
            cpus = self.keeper.cpus(claim)
            if claim.cores and self.keeper.cores_lost:
                waits[uid] = _CORES_LOST
            elif cpus and unread:
                waits[uid] = unread
            elif not taken.isdisjoint(cpus):
                waits[uid] = _CORES_HELD
        begun = self._begun()
        return {uid: why for uid, why in waits.items() if uid not in begun}

    def _begun(self) -> Collection[str]:
        """Returns the uids of Pods that have begun. While the agent has no connection to the container
        runtime (NRI), each Pod with processes counts as begun."""
        if self._settings.nri is not None and not self._awaits_runtime:
            return self._containers.begun
        return {each.uid for each in self.keeper.cgroups if each.populated}

    def _gone(self, cgroups: Sequence[PodCgroup]) -> list[GonePod]:
        """Returns the gone Pods that still have processes on the cores of their jobs. Before the first
        list of Pods, each Pod counts as gone. Raises OSError."""
        removals = self._pods.removals({each.uid for each in cgroups})
        return gone_pods(self._pods.claims or {}, removals, cgroups, self._has_slurmd)

    def _has_slurmd(self, cgroup: PodCgroup) -> bool:
        return cgroup.uid in self._pods.slurmds or has_run_slurmd(cgroup.place)

    def _devices_held(self) -> str:
        """Returns the devices that slurmd's Pod lacks because processes of a gone Pod still hold the
        devices. Devices of a job's Pod are left out, because the gate keeps native jobs away from these
        devices."""
        held = self.keeper.held_by_gone.items()
        lacks = [each for uid, of in held if not self._pods.is_of_job(uid) for each in of]
        return ", ".join(sorted(lacks))

    async def _reduce(self) -> None:
        """Lowers each limit of memory in `keeper.limits.reductions` by one step. Each write runs in a
        thread, so that the event loop can answer the container runtime while the kernel frees memory.
        The next check finds the next step of each limit. Raises OSError."""
        self._reduces.clear()
        while self.keeper.limits.reductions:
            file, limit = self.keeper.limits.reductions.popitem()
            with suppress(FileNotFoundError, NotADirectoryError):  # the cgroup was removed just now
                await asyncio.to_thread(write, file, str(limit), waits=True)
            self._news.set()

    def _other_programs(self) -> str | None:
        if not (found := self.keeper.other_programs):
            return None
        return (
            f"program {found}: if the program is of an agent whose files in the BPF file system were"
            " removed, no new Pod can open a device until the Node is booted"
        )

    async def _watch_native_jobs(self) -> None:
        while True:
            claims = self._pods.claims
            if claims is not None:  # only claims show which Pod is slurmd's
                self._look_at_native_jobs(claims)
            await asyncio.sleep(_AWAITED_S if claims is None else _LOOK_S)

    def _look_at_native_jobs(self, claims: Mapping[str, Claim]) -> None:
        before = self._native.known
        try:
            problem = self._native.look(claims, self.keeper.devices) or None
            self._compare_cores(claims)
        except OSError as error:
            self.health.says(_NATIVE, error, alarm=True)
            return
        self.health.says(_NATIVE, problem, alarm=True)
        if self._native.known != before:
            self._news.set()

    def _compare_cores(self, claims: Mapping[str, Claim]) -> None:
        """Finds the cores that a Pod with processes shares with another Pod or with a native job. Raises
        OSError."""
        cgroups = list(self._cgroups.pods())
        here = [claims[each.uid] for each in cgroups if each.populated and each.uid in claims]
        pods = [(claim.pod, self.keeper.cpus(claim)) for claim in here]
        pods += [(each.name, each.cpus) for each in self._gone(cgroups)]
        found = overlaps.overlaps(pods, self._native.cpus)
        self.shared_cpus = {each: found[each] for each in self._overlaps.of(found)}
        words = overlaps.words(self.shared_cpus)
        self.health.says(_SHARED, words or None)
        self.devices.note(Reason.CORES_SHARED, words)

    async def _watch_steps(self) -> None:
        while True:
            claims = self._pods.claims or {}
            try:
                scopes = self._native.search(claims) if any(of.job for of in claims.values()) else ()
                words = self.steps.look(scopes, claims.values())
            except OSError as error:
                self.health.says(_STEPS, error, alarm=True)
            else:
                self.health.says(_STEPS, words or None)
                self.devices.note(Reason.STEP_IN_JOB_OF_POD, words)
            await asyncio.sleep(_STEPS_S)

    def _look_at_machine(self) -> None:
        error = _error_of(lambda: self.keeper.read_cpus(self._pods.sockets))
        self.health.says(_CPUS, error, alarm=True)
        self.devices.note(Reason.CORES_UNKNOWN, error if self.keeper.cores_lost else None)
        starts, since = self._slurmd.starts, self._slurmd.began
        error = _error_of(lambda: self.keeper.read_devices(list_may_come=starts, since=since))
        self.devices.note(Reason.LIST_UNREADABLE, error)
        problems = self.keeper.machine.problems if self.keeper.machine else {}
        broken = "; ".join(f"{of}: {why}" for of, why in problems.items())
        self.health.says(_DEVICES, error or broken or None, alarm=True)

    def _begins(self, claim: Claim) -> str:
        """Gives a Pod access to its devices before the first container starts. Returns the reason of a
        failure, or "".

        The container runtime has the Pod's annotations only as of the start of the Pod, so the newer
        data from kube-apiserver count instead. If kube-apiserver has removed the Pod, the Pod must not
        begin. A Pod without a job always starts, because such a Pod may be needed to reach
        kube-apiserver.
        """
        if claim.problem or not claim.of_job:
            return claim.problem
        claims = self._pods.claims
        if claims is not None and claim.uid not in claims:
            self._pods.doubt()
            return "kube-apiserver no longer has the Pod, or has not reported it to the node agent yet"
        decision = self._look()
        if decision is None:
            problems = {} if self.keeper.machine else {_DEVICES: _NO_DEVICES_YET}
            problems |= self.health.problems()
            reasons = "; ".join(f"{part}: {words}" for part, words in problems.items())
            return f"the node agent does not know the devices of all Pods yet ({reasons or _STARTS})"
        waits = "the Pod has no cgroup yet" if claim.uid in decision.awaited else ""
        return decision.problems.get(claim.uid, waits)

    def _pods_changed(self) -> None:
        self._news.set()
        self._slurmd.wake()

    def _orphaned_slurmds(self) -> list[str] | None:
        claims = self._pods.claims
        if claims is None:
            return None
        gone = (each for each in self._cgroups.pods() if each.populated and each.uid not in claims)
        return [each.uid for each in gone if self._has_slurmd(each)]

    def _machine(self) -> tuple[str, int]:
        """Returns the GPUs in the form of slurmd's Gres=, and the number of CPUs per core."""
        cores = self.keeper.cores
        return gres_of(self.devices.detected), len(cores.cores[0]) if cores else 1

    def _note_runtime(self, problem: Exception | str | None) -> None:
        self.health.says(_RUNTIME, problem)
        if problem is None:
            self._awaits_runtime = False
            self._news.set()

    def _tell(self, problems: Mapping[str, str]) -> None:
        """Logs each change in the problems of Pods. Parameter `problems` has the reasons by uid."""
        claims = self._pods.claims or {}
        named = {claims[uid].pod if uid in claims else uid: why for uid, why in problems.items()}
        for pod, why in named.items():
            if self.problems.get(pod) != why:
                log.warning("a Pod has less than its job", pod=pod, why=why)
        here = {claim.pod for claim in claims.values()}
        for pod in self.problems.keys() - named.keys():
            words = "a Pod has what its job has" if pod in here else "a Pod that had less is gone"
            log.info(words, pod=pod)
        self.problems = named

    def _folders(self) -> FolderWatch | None:
        try:
            return FolderWatch(self._news.set, (*LIMITS, EVENTS))
        except OSError as error:
            self.health.says("inotify", error)
            return None

    def _watch_folders(self, folders: FolderWatch | None) -> bool:
        """Asks the kernel to report new cgroups of Pods, and changed limits. Returns False if the kernel
        cannot report them. Then the agent checks more often."""
        if folders is None:
            return False
        try:
            for folder in (*self._cgroups.parents(), *self._cgroups.folders()):
                folders.add(folder)
            for cgroup in self._cgroups.pods():
                with suppress(FileNotFoundError):  # the cgroup was removed just now
                    folders.add(cgroup.place)
        except OSError as error:
            self.health.says("inotify", error)
            return False
        self.health.says("inotify", None)
        return True


def _error_of(read: Callable[[], object]) -> Exception | None:
    """Calls `read`. Returns the error if the call fails, otherwise None."""
    try:
        read()
    except (OSError, ValueError) as error:
        return error
    return None
