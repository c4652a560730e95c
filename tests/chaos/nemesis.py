"""Carries out storms of attacks, and restarts killed components."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.processes.proxy import HEALTHY
from tests.chaos.canary import NEEDED_AFTER, Canary
from tests.chaos.checker import Causes
from tests.chaos.plan import KILL, PAUSE, Attack, victims
from tests.chaos.quiet_periods import QuietPeriods

_LOOK_S = 0.5
_STORM_THREADS = 32


@dataclass(slots=True)
class Nemesis:
    """Attacks a cluster, and counts the attacks and their consequences."""

    cluster: Cluster
    quiet: QuietPeriods
    canary: Canary
    causes: Causes
    log: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    """Number of attacks by `Attack.how`."""
    kills: Counter[str] = field(default_factory=Counter)
    """Number of kills by component."""
    ended_by_themselves: Counter[str] = field(default_factory=Counter)
    """Number of ends without a kill, by component."""
    _over: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)
    _held_down: Counter[str] = field(default_factory=Counter)
    _keepers: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)
    _kept: list[Future[None]] = field(default_factory=list)

    def start(self) -> None:
        """Starts a thread for each component. The thread restarts the component after each end, as a
        kubelet or systemd does."""
        components = list(victims(self.cluster.spec))
        self._keepers = ThreadPoolExecutor(len(components))
        self._kept = [self._keepers.submit(self._keep, name) for name in components]

    def stop(self) -> None:
        """Ends the threads. Raises the exception of a failed thread."""
        self._over.set()
        for kept in self._kept:
            kept.result()
        self._keepers.shutdown()

    def storm(self, attacks: Iterable[Attack]) -> None:
        """Carries out a storm. Returns after the end of the last attack."""
        with ThreadPoolExecutor(_STORM_THREADS) as pool:
            begin = time.monotonic()
            running: list[Future[None]] = []
            for attack in attacks:
                time.sleep(max(0.0, begin + attack.at - time.monotonic()))
                running.append(pool.submit(self._attack, attack))
            wait(running)
        for done in running:
            done.result()

    def hold_down(self, *names: str) -> None:
        """Kills components at the same time with `kill -9`, like a failure of a node. The components
        stay down until `let_up`."""
        for name in names:
            self._held_down[name] += 1
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(self._kill, names))

    def let_up(self, *names: str) -> None:
        for name in names:
            self._held_down[name] -= 1

    def _attack(self, attack: Attack) -> None:
        self.log(f"{attack.how} {attack.victim} for {attack.lasts:.1f} s")
        with self.quiet.disturbed(f"{attack.how} {attack.victim}"):
            match attack.how:
                case _ if attack.link:
                    self._disturb(attack)
                case how if how == PAUSE:
                    self._pause(attack)
                case how if how == KILL:
                    self.hold_down(attack.target)
                    time.sleep(attack.lasts)
                    self.let_up(attack.target)
                    time.sleep(_LOOK_S)  # until the component's thread has seen the kill

    def _disturb(self, attack: Attack) -> None:
        self.counts[attack.how] += 1
        self.cluster.disturb(attack.target, attack.link, attack.how)
        time.sleep(attack.lasts)
        self.cluster.disturb(attack.target, attack.link, HEALTHY)

    def _pause(self, attack: Attack) -> None:
        self.counts[PAUSE] += 1
        with suppress(ClusterError):  # the component may have ended by itself
            self.cluster.pause(attack.target)
        time.sleep(attack.lasts)
        with suppress(ClusterError):
            self.cluster.resume(attack.target)
        self._back(attack.target)

    def _kill(self, name: str) -> None:
        if name == "slurmctld":
            self.causes.slurmctld_killed.append(time.monotonic())
        if not self.cluster.is_running(name):
            return
        self.cluster.kill(name)
        with self._lock:
            self.counts[KILL] += 1
            self.kills[name] += 1

    def _keep(self, name: str) -> None:
        """Restarts a component after each end. The disturbance lasts until the component serves
        again."""
        while not self._over.is_set():
            code = self.cluster.wait_exit(name, _LOOK_S)
            if code is None:
                continue
            with self.quiet.disturbed(f"{name} down"):
                self._bring_back(name)

    def _bring_back(self, name: str) -> None:
        if not self._held_down[name]:
            self.ended_by_themselves[name] += 1
            self.log(f"{name} ended by itself")
        while self._held_down[name] and not self._over.is_set():
            time.sleep(0.05)
        try:
            self.cluster.start(name)
        except ClusterError as error:
            self.log(str(error).splitlines()[0])
        self._back(name)

    def _back(self, name: str) -> None:
        if name.startswith(NEEDED_AFTER):
            self.canary.ask()
