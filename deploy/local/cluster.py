"""Starts a cluster, uses the cluster, and stops the cluster. See `Cluster.up`."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from deploy.local.blueprint import port_names, prepare_directory, shared_ports, start_plan
from deploy.local.chart import needs_helm
from deploy.local.components import Component
from deploy.local.errors import AlreadyRunningError, ClusterError, GuestGoneError
from deploy.local.guest.connection import Connection
from deploy.local.guest.image import GuestImage, guest_image
from deploy.local.guest.nodes import guest_binds
from deploy.local.kubernetes.components import extender_environment
from deploy.local.kubernetes.config import api_server_url, kubeconfig_of
from deploy.local.kubernetes_objects import create_objects
from deploy.local.layout import Layout, Record
from deploy.local.links import disturb, link_name
from deploy.local.prerequisites import check_prerequisites
from deploy.local.processes.ports import PortLease, lease_ports
from deploy.local.processes.supervision import ComponentStatus, Owner, Supervision, tail
from deploy.local.programs.helm_binary import helm
from deploy.local.programs.kubernetes_binaries import kubernetes_binaries
from deploy.local.progress import Report, silent
from deploy.local.slurm.components import nodes_are_up
from deploy.local.slurm.config import clients, mint_token, slurm_binds
from deploy.local.slurm.tree import require_release, slurm_tree
from deploy.local.spec import GUEST, KUBERNETES_RELEASES, ClusterSpec

_POLL_S: Final = 0.03
_GUEST_ANSWERS_WITHIN_S: Final = 20.0


class Cluster:
    """A cluster in a directory of its own. As a context manager, stops the cluster at the end.

    Names of components:

    * always: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, slurmctld,
      slurmrestd, slurmd-NODE and extender
    * with replicas: extender-N, kube-scheduler-N and service, the stand-in for a Service in front
      of the extenders
    * with links: links
    * with accounting: slurmdbd and mariadbd
    * with `own_scheduler`: default-scheduler
    * with a guest: guest, the virtual machine, and its programs containerd, kubelet, slurmd-guest
      and node-agent. A caller can kill these programs like any other component. They end with the
      guest.
    """

    def __init__(self, layout: Layout, record: Record) -> None:
        self._layout = layout
        self._record = record
        self.spec: Final = record.spec
        self.ports: Final[Mapping[str, int]] = record.ports
        """Every port of the cluster, by purpose. All are on 127.0.0.1."""
        self.directory: Final = layout.directory
        self.logs: Final = layout.logs
        """The folder of the logs: a file COMPONENT.log for each component."""
        self.kubeconfig: Final = layout.kubeconfig
        """Kubeconfig of the administrator."""
        self.extender_kubeconfig: Final = kubeconfig_of("slurm-extender", layout)
        """Kubeconfig of the user slurm-extender. The roles of this user allow exactly the
        extender's calls."""
        self.slurmrestd_socket: Final = layout.slurmrestd_socket
        self.token_file: Final = layout.token_file
        """Holds a JWT for Slurm's root."""
        self.policy_file: Final = layout.policy_file
        self.pools_file: Final = layout.pools_file
        """The files with the policy and with the pools. The extender reads both files again after a
        change."""
        self.job_submit_lua: Final = layout.job_submit_lua
        """The script job_submit.lua. slurmctld reads the file again if its modification time is at least
        a second newer."""
        self.guest: Final = Connection(record.ports[GUEST]) if record.spec.guest else None
        """The connection to the guest, if the cluster has a guest."""
        self._supervision = Supervision(layout)
        self._supervisor: subprocess.Popen[str] | None = None
        self._owner: Owner | None = None
        self._plan = start_plan(layout, record)

    @classmethod
    def up(
        cls, spec: ClusterSpec, directory: Path | str, *, tied: bool = True, report: Report = silent
    ) -> Self:
        """Starts a cluster, and returns the cluster after all components serve. The cluster ends with
        this process. If `tied` is False, a cluster that serves outlives this process. Raises
        MissingPrerequisitesError, AlreadyRunningError, GuestGoneError, or ClusterError with a log."""
        layout = Layout(Path(directory).resolve())
        layout.check()
        if Supervision(layout).is_alive():
            raise AlreadyRunningError(f"a cluster is already running in {layout.directory}")
        if spec.slurm_of and not cls.attach(spec.slurm_of).is_up():
            raise ClusterError(f"the cluster in {spec.slurm_of}, whose Slurm is shared, is not running")
        tree, binaries = cls.prepare(spec, report=report)
        return cls._up_from(tree, binaries, spec, layout, tied=tied, report=report)

    @classmethod
    def _up_from(
        cls,
        tree: Path,
        binaries: dict[str, str],
        spec: ClusterSpec,
        layout: Layout,
        *,
        tied: bool = True,
        report: Report = silent,
    ) -> Self:
        guest = asdict(cls._guest_image(spec, report)) if spec.guest else {}
        shared = shared_ports(spec)
        lease = lease_ports(port_names(spec))
        record = Record(
            spec=spec, ports=lease.ports | shared, tree=str(tree), binaries=binaries, guest=guest
        )
        cluster = cls(layout, record)
        try:
            prepare_directory(layout, record)
            cluster._supervise(lease)
            try:
                cluster._bring_up(report)
            except ClusterError as error:
                raise cluster._blamed(error) from error
            if not tied:
                cluster._supervision.release()
        except BaseException:
            cluster.down()
            raise
        finally:
            lease.close()  # the supervisor has inherited the locks of the ports
        return cluster

    @staticmethod
    def _guest_image(spec: ClusterSpec, report: Report) -> GuestImage:
        images, newest = spec.guest_images, spec.guest_nri
        return guest_image(
            spec.release, images, report, services=spec.services, newest_containerd=newest
        )

    @classmethod
    def prepare(cls, spec: ClusterSpec, *, report: Report = silent) -> tuple[Path, dict[str, str]]:
        """Returns the folder of Slurm's tree ("." if the cluster has no Slurm), and the Kubernetes
        binaries by name. Downloads or builds the programs that this machine lacks. If the spec has a
        guest, also builds the guest's disk. The binaries include Helm if the cluster needs Helm
        (`needs_helm`)."""
        check_prerequisites(spec, helm=needs_helm(spec))
        # The guest's kubelet must not be newer than kube-apiserver.
        release = KUBERNETES_RELEASES[0] if spec.guest else spec.kubernetes_release
        binaries = kubernetes_binaries(release, report) if spec.kubernetes else {}
        if needs_helm(spec):
            binaries["helm"] = str(helm(report))
        if spec.guest:
            cls._guest_image(spec, report)

        def trial(tree: Path, accounting: bool) -> None:
            cls.try_slurm(tree, spec.release, accounting=accounting)

        tree = slurm_tree(spec, trial, report) if spec.slurm else Path()
        return tree, binaries

    @classmethod
    def try_slurm(cls, tree: Path, release: str, *, accounting: bool) -> None:
        """Starts Slurm from a tree, with slurmdbd if `accounting`. Raises ClusterError if a daemon does
        not serve, or if a client program is of another release of Slurm."""
        spec = ClusterSpec(
            nodes=1, kubernetes=False, extender=False, accounting=accounting, release=release
        )
        with TemporaryDirectory(prefix="slurm-trial-") as directory:
            layout = Layout(Path(directory).resolve())
            with cls._up_from(tree, {}, spec, layout) as cluster:
                for client in clients(spec):
                    version = cluster.run_slurm(client, "--version").stdout
                    require_release(release, client, version)

    @classmethod
    def attach(cls, directory: Path | str) -> Self:
        """Returns the cluster in `directory`. Another process may have started the cluster, and the
        cluster may already have stopped."""
        layout = Layout(Path(directory).resolve())
        return cls(layout, Record.load(layout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # Addresses and files.

    @property
    def extender_environment(self) -> Mapping[str, str]:
        """Returns the settings with which an extender serves this cluster (needs `extender=True`)."""
        return extender_environment("extender", self.spec, self._record.ports, self._layout)

    @property
    def probes(self) -> Mapping[str, tuple[str, str]]:
        """Returns the URLs of readiness and of metrics for each extender."""
        return {
            name: (
                f"http://127.0.0.1:{self.ports[f'{name}-health']}/readyz",
                f"http://127.0.0.1:{self.ports[f'{name}-metrics']}/metrics",
            )
            for name in self.spec.extender_names
        }

    @property
    def slurmrestd_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['slurmrestd']}"

    @property
    def api_server_url(self) -> str:
        return api_server_url(self._record.ports)

    def mint_token(self, user: str, lifetime_s: int = 3600) -> str:
        """Returns a JWT for `user`, signed with the cluster's key. If `lifetime_s` is negative, the JWT
        has already expired."""
        return mint_token(self._layout, user, lifetime_s)

    # Components.

    def start(
        self,
        name: str,
        *,
        argv: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> int:
        """Starts a component, and returns its process id. `argv` replaces the component's command
        line, `env` is added to its environment. Returns after the component serves, unless `wait`
        is False. Raises ClusterError with the end of the log if the component does not serve."""
        component = self._component(name)
        pid = self._launch(component, argv or component.argv, env or {})
        if wait:
            self._await_ready(component)
        return pid

    def register(self, node: str, conf: str, *options: str) -> int:
        """Starts the slurmd of one of `spec.dynamic_names`, and returns its process id. The slurmd
        registers its node. `conf` is the content of a line of slurm.conf for the node, without the
        port."""
        component = self._component(f"slurmd-{node}")
        conf_option = ("--conf", f"Port={self.ports[component.name]} {conf}")
        return self.start(component.name, argv=[*component.argv, *conf_option, *options])

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM, *, within_s: float = 15.0) -> int:
        """Sends a signal to a component, waits until the component ends, and returns its return code.
        Raises ClusterError if the component still runs after `within_s`. kube-apiserver needs up to a
        minute to stop, so use `kill` for kube-apiserver."""
        self._supervision.signal(name, number)
        code = self._supervision.wait(name, within_s)
        if code is None:
            raise ClusterError(f"{name} still runs {within_s:.0f} s after {number.name}")
        return code

    def restart(self, name: str) -> None:
        """Stops a component, and starts the component again with its first command line. A component
        that does not stop in time is killed."""
        if self.is_running(name):
            with suppress(ClusterError):
                self.stop(name)
        if self.is_running(name):
            self.kill(name)
        self.start(name)

    def kill(self, name: str) -> None:
        """Sends SIGKILL, and waits for the end."""
        self.stop(name, signal.SIGKILL)

    def pause(self, name: str) -> None:
        """Sends SIGSTOP. The component keeps its connections and answers nothing."""
        self._supervision.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._supervision.signal(name, signal.SIGCONT)

    def disturb(self, extender: str, target: str, fault: str) -> None:
        """Sets the fault of an extender's link to `target`. See links.TARGETS and proxy.FAULTS."""
        disturb(self._layout, link_name(extender, target), fault)

    def wait_exit(self, name: str, timeout_s: float = 15.0) -> int | None:
        """Waits for a component to end by itself. Returns the return code, or None after the
        timeout."""
        return self._supervision.wait(name, timeout_s)

    def pid(self, name: str) -> int:
        """Returns the process id of a running component in the PID namespace of the machine."""
        known = self.status().get(name)
        if known is None or known.returncode is not None:
            raise ClusterError(f"{name} is not running")
        return known.pid

    def is_running(self, name: str) -> bool:
        known = self.status().get(name)
        return known is not None and known.returncode is None

    def is_up(self) -> bool:
        """Returns whether the supervisor of the cluster runs."""
        return self._supervision.is_alive()

    def status(self) -> dict[str, ComponentStatus]:
        """Returns the state of every component that was started at least once."""
        return self._supervision.status()

    # Client programs.

    def run_slurm(
        self, program: str, *arguments: str, user: str = "root", stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a client of Slurm, such as squeue, as root, alice or bob. Raises ClusterError on
        failure."""
        command = [str(self._layout.bin / program), *arguments]
        return _run(command, {**os.environ, "SLURM_AS": user}, stdin)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the administrator. Raises ClusterError on failure."""
        return _run([str(self._layout.bin / "kubectl"), *arguments], os.environ, stdin)

    # The end of the cluster.

    def down(self) -> None:
        """Ends every process of the cluster and frees the ports. Logs stay. The cluster may be
        stopped already."""
        with suppress(ClusterError):  # the cluster has already stopped
            self._supervision.shutdown()
        if self._supervisor is not None:
            self._supervisor.wait()
        if self._owner is not None:
            self._owner.let_go()
            self._owner = None

    # Start of the cluster.

    def _supervise(self, lease: PortLease) -> None:
        self._owner = Owner()
        try:
            self._supervision, self._supervisor = Supervision.begin(
                self._layout,
                [
                    *slurm_binds(self.spec, Path(self._record.tree), self._layout),
                    *guest_binds(self.spec, self._layout),
                ],
                [Path("/proc"), *([self._layout.root / "proc"] if self.spec.own_slurm else [])],
                lease.filenos(),
                self._owner,
            )
        finally:
            self._owner.handed_over()

    def _bring_up(self, report: Report) -> None:
        """Starts the components of each phase together, then waits until they serve. After the phases in
        `first`, creates the first objects in Kubernetes."""
        for phase in self._plan.first:
            self._start_together(phase, report)
        if not self.spec.guest_in_pool and not _poll(lambda: nodes_are_up(self._layout), 30.0):
            raise ClusterError(f"Slurm's nodes did not register: see the logs in {self.logs}")
        if not self.spec.kubernetes:
            return
        report("Slurm, etcd and the API server serve")
        create_objects(self.spec, self._record.ports, self._layout)
        for phase in self._plan.then:
            self._start_together(phase, report)
            report(f"{', '.join(component.name for component in phase)}: serving")

    def _blamed(self, error: ClusterError) -> ClusterError:
        """Returns the error, or GuestGoneError with the end of the guest's console if the guest is
        gone."""
        if self.guest is None or _poll(self.guest.is_up, _GUEST_ANSWERS_WITHIN_S):
            return error
        return GuestGoneError(f"the guest is gone: {error}\n{tail(self._layout.log(GUEST))}")

    def _start_together(self, components: Sequence[Component], report: Report) -> None:
        for component in components:
            self._launch(component, component.argv, {})
        for component in components:
            self._await_first(component, report)

    def _await_first(self, component: Component, report: Report) -> None:
        """Waits until the component serves. If the component ends first, starts the component
        again, at most `component.starts` times in all."""
        for more in reversed(range(component.starts)):
            try:
                self._await_ready(component)
            except ClusterError:
                if not more or self.is_running(component.name):
                    raise
                report(f"{component.name} ended before serving, and is started again")
                self._launch(component, component.argv, {})
            else:
                break

    def _component(self, name: str) -> Component:
        components = self._plan.components
        if name not in components:
            raise ClusterError(f"no component {name}; the cluster has {', '.join(components)}")
        return components[name]

    def _launch(self, component: Component, argv: Sequence[str], env: Mapping[str, str]) -> int:
        environment = {**component.env, **env}
        return self._supervision.start(component.name, argv, environment, component.cwd)

    def _await_ready(self, component: Component) -> None:
        def ready() -> bool:
            code = self._supervision.wait(component.name, 0)
            if code is not None:
                raise ClusterError(f"{component.name} ended ({code}):\n{self._tail(component)}")
            return component.is_ready()

        if not _poll(ready, component.ready_within_s):
            raise ClusterError(f"{component.name} does not serve:\n{self._tail(component)}")

    def _tail(self, component: Component) -> str:
        return tail(self._layout.log(component.name))


def _run(
    command: Sequence[str], env: Mapping[str, str], stdin: str | None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env=env, input=stdin or "", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} ({done.returncode}): {done.stderr.strip()}")
    return done


def _poll(condition: Callable[[], bool], within_s: float) -> bool:
    """Returns whether the condition became true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
