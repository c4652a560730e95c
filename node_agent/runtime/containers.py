"""Answers the container runtime about the Pods of a Node. Before the runtime creates a container, the
kernel gives the Pod access to the devices of its job, and the container gets these devices. If this
fails, the runtime does not create the container. The cores of the job override the CPUs from the
kubelet's static CPU manager."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from node_agent.enforcement.keeper import Keeper
from node_agent.enforcement.limits import cpus_instead
from node_agent.machine.devices import Number
from node_agent.machine.numbered import Part
from node_agent.nri import api_pb2 as api
from node_agent.nri.plugin import Refused
from node_agent.pods.claims import Claim, claim_by
from node_agent.pods.node_pods import NodePods
from node_agent.runtime.container_devices import ContainerDevices
from node_agent.runtime.missing_devices import Made, MissingDevices, given_to
from wellknown import number_list

log = structlog.get_logger()

_LIVE: Final = (api.CONTAINER_CREATED, api.CONTAINER_PAUSED, api.CONTAINER_RUNNING)


class Containers:
    """Handles the calls of the container runtime (NRI)."""

    def __init__(
        self, node: str, keeper: Keeper, pods: NodePods, begins: Callable[[Claim], str]
    ) -> None:
        """Parameter `begins` gives a Pod its devices at once, and returns the reason of a failure."""
        self._node = node
        self._keeper = keeper
        self._pods = pods
        self._begins = begins
        self.missing = MissingDevices(keeper)
        self.begun = set[str]()
        """Uids of Pods for whose current sandbox the runtime has created a container."""
        self._overruled = set[str]()
        """Uids of Pods for which the log already says that the kubelet chose other CPUs."""

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> list[api.ContainerUpdate]:
        """Takes the list of all Pods and containers, and returns corrections of CPUs. The runtime may
        ignore the failure of a correction, because a container may end before its correction."""
        by_id = {pod.id: pod for pod in pods}
        live = [
            (by_id[c.pod_sandbox_id], c)
            for c in containers
            if c.state in _LIVE and c.pod_sandbox_id in by_id
        ]
        self.missing.listed(self._made(pod, container) for pod, container in live)
        self.begun = {pod.uid for pod, _ in live}
        self._overruled &= {pod.uid for pod in pods}
        instead = ((each, self._cpus_instead(pod, each, each.linux.resources)) for pod, each in live)
        return [_update(each, cpus, ignore_failure=True) for each, cpus in instead if cpus]

    def run_pod(self, pod: api.PodSandbox) -> None:
        """Gives the Pod its devices. Raises Refused if this fails."""
        if problem := self._begins(self._claim(pod)):
            raise Refused(problem)

    def stop_pod(self, pod: api.PodSandbox) -> None:
        self.missing.pod_removed(pod.uid)
        self.begun.discard(pod.uid)
        self._overruled.discard(pod.uid)

    def create_container(self, pod: api.PodSandbox, container: api.Container) -> api.ContainerAdjustment:
        """Returns the additions to a container. Also gives the Pod its devices, because the agent may
        have been away when the Pod started. Raises Refused if this fails."""
        self.run_pod(pod)
        self.missing.recreated(pod.uid, container.name)
        _, given = self._given(pod, container)
        adjust = api.ContainerAdjustment()
        adjust.env.extend(api.KeyValue(key=key, value=value) for key, value in given.variables.items())
        adjust.CDI_devices.extend(api.CDIDevice(name=name) for name in sorted(given.cdi))
        adjust.linux.devices.extend(_devices(given))
        if cpus := self._cpus_instead(pod, container, container.linux.resources):
            adjust.linux.resources.cpu.cpus = cpus
        self.begun.add(pod.uid)
        return adjust

    def update_container(
        self, pod: api.PodSandbox, container: api.Container, wanted: api.LinuxResources
    ) -> list[api.ContainerUpdate]:
        cpus = self._cpus_instead(pod, container, wanted)
        return [_update(container, cpus)] if cpus else []

    def stop_container(self, _pod: api.PodSandbox, container: api.Container) -> None:
        self.missing.removed(container.id)

    def validate(
        self, pod: api.PodSandbox, container: api.Container, adjust: api.ContainerAdjustment
    ) -> None:
        """Checks the finished container. Raises Refused if another plugin took devices away, or added a
        device of another job."""
        parts, given = self._given(pod, container)
        missing = given.missing(
            (device.path for device in adjust.linux.devices),
            (device.name for device in adjust.CDI_devices),
            {pair.key: pair.value for pair in adjust.env},
        )
        if missing:
            raise Refused(f"another plugin of the container runtime changed what it is given: {missing}")
        own = {number for part in parts for number in part.numbers}
        for device in adjust.linux.devices:
            number = Number(device.major, device.minor)
            if number in self._keeper.guarded - own:
                words = f"another plugin gives it {device.path}, which its Slurm job does not have"
                raise Refused(words)

    def _cpus_instead(
        self, pod: api.PodSandbox, container: api.Container, wanted: api.LinuxResources
    ) -> str:
        claim = self._claim(pod)
        granted = self._keeper.cpus(claim)
        cpus = cpus_instead(granted, wanted.cpu.cpus)
        if cpus and pod.uid not in self._overruled:
            self._overruled.add(pod.uid)
            log.warning(
                "the kubelet's CPU manager gave a container other CPUs than its job has: overruled",
                pod=claim.pod,
                container=container.name,
                gave=wanted.cpu.cpus,
                job_has=number_list.compress(granted),
            )
        return cpus

    def _made(self, pod: api.PodSandbox, container: api.Container) -> Made:
        variables = dict(text.partition("=")[::2] for text in container.env)
        numbers = frozenset(Number(each.major, each.minor) for each in container.linux.devices)
        return Made(self._claim(pod), container.id, container.name, variables, numbers)

    def _claim(self, pod: api.PodSandbox) -> Claim:
        """Returns the claim from kube-apiserver's data, if kube-apiserver has reported the Pod.
        Otherwise, returns the claim from the runtime's data. The runtime has the annotations only as of
        the Pod's start."""
        known = (self._pods.claims or {}).get(pod.uid)
        if known is not None:
            return known
        return claim_by(pod.uid, f"{pod.namespace}/{pod.name}", pod.annotations, self._node)

    def _given(
        self, pod: api.PodSandbox, container: api.Container
    ) -> tuple[list[Part], ContainerDevices]:
        claim = self._claim(pod)
        if claim.problem:
            raise Refused(claim.problem)
        try:
            return given_to(self._keeper, claim, {text.partition("=")[0] for text in container.env})
        except ValueError as error:
            raise Refused(str(error)) from error


def _update(container: api.Container, cpus: str, *, ignore_failure: bool = False) -> api.ContainerUpdate:
    resources = api.LinuxResources(cpu=api.LinuxCPU(cpus=cpus))
    linux = api.LinuxContainerUpdate(resources=resources)
    return api.ContainerUpdate(container_id=container.id, linux=linux, ignore_failure=ignore_failure)


def _devices(given: ContainerDevices) -> Iterator[api.LinuxDevice]:
    """Yields the device files, with the numbers and permissions of the files on the Node. Raises Refused
    if a needed file is missing."""
    for file in sorted(given.files | given.common):
        try:
            status = Path(file).stat()
        except OSError as error:
            if file in given.common:
                continue
            raise Refused(f"{file}: {error.strerror}") from error
        yield api.LinuxDevice(
            path=file,
            type="c",
            major=os.major(status.st_rdev),
            minor=os.minor(status.st_rdev),
            file_mode=api.OptionalUInt32(value=stat.S_IMODE(status.st_mode)),
            uid=api.OptionalUInt32(value=status.st_uid),
            gid=api.OptionalUInt32(value=status.st_gid),
        )
