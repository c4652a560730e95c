"""Answers the container runtime for the Pods of a Node: before a container is made, its Pod was let in
to the devices of its job, and then the container is given them. Where that cannot be, it is not made."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from node_agent.claims import Claim, claim_by
from node_agent.equipment import Equipment, equipment
from node_agent.keeper import Keeper
from node_agent.machine.numbered import Number, Part
from node_agent.nri import api_pb2 as api
from node_agent.nri.plugin import Refused


class Containers:
    """NRI's Handler."""

    def __init__(
        self,
        node: str,
        keeper: Keeper,
        begins: Callable[[Claim], str],
        ends: Callable[[str], object],
    ) -> None:
        """`begins` sees to it at once that a Pod has what it is to have, and returns why it has not;
        `ends` is called with the uid of one that has ended."""
        self._node = node
        self._keeper = keeper
        self._begins = begins
        self._ends = ends

    def run_pod(self, pod: api.PodSandbox) -> None:
        """Raises Refused."""
        if problem := self._begins(self._claim(pod)):
            raise Refused(problem)

    def stop_pod(self, pod: api.PodSandbox) -> None:
        self._ends(pod.uid)

    def create_container(self, pod: api.PodSandbox, container: api.Container) -> api.ContainerAdjustment:
        """Raises Refused."""
        given = self._equipment(self._parts(pod), container)
        adjust = api.ContainerAdjustment()
        adjust.env.extend(api.KeyValue(key=key, value=value) for key, value in given.variables.items())
        adjust.CDI_devices.extend(api.CDIDevice(name=name) for name in sorted(given.cdi))
        adjust.linux.devices.extend(_devices(given))
        return adjust

    def validate(
        self, pod: api.PodSandbox, container: api.Container, adjust: api.ContainerAdjustment
    ) -> None:
        """Refuses what has less than this gave, or a device of another job: another plugin's work."""
        parts = self._parts(pod)
        given = self._equipment(parts, container)
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
            if number in self._keeper.guarded and number not in own:
                words = "which its Slurm job does not have"
                raise Refused(f"another plugin gives it {device.path}, {words}")

    def _claim(self, pod: api.PodSandbox) -> Claim:
        return claim_by(pod.uid, f"{pod.namespace}/{pod.name}", pod.annotations, self._node)

    def _parts(self, pod: api.PodSandbox) -> list[Part]:
        claim = self._claim(pod)
        if claim.problem:
            raise Refused(claim.problem)
        try:
            return self._keeper.parts(claim)
        except ValueError as error:
            raise Refused(str(error)) from error

    def _equipment(self, parts: list[Part], container: api.Container) -> Equipment:
        variables = {text.partition("=")[0] for text in container.env}
        try:
            devices, counted = [part.device for part in parts], self._keeper.devices
            return equipment(devices, self._keeper.names, counted, variables)
        except ValueError as error:
            raise Refused(str(error)) from error


def _devices(given: Equipment) -> Iterator[api.LinuxDevice]:
    """Yields the files, as they are on the Node."""
    for file in sorted(given.files | given.common):
        try:
            told = Path(file).stat()
        except OSError as error:
            if file in given.common:
                continue
            raise Refused(f"{file}: {error.strerror}") from error
        yield api.LinuxDevice(
            path=file,
            type="c",
            major=os.major(told.st_rdev),
            minor=os.minor(told.st_rdev),
            file_mode=api.OptionalUInt32(value=stat.S_IMODE(told.st_mode)),
            uid=api.OptionalUInt32(value=told.st_uid),
            gid=api.OptionalUInt32(value=told.st_gid),
        )
