"""Reports the devices of an extended resource to the kubelet, and proposes the devices of each Pod.

The kubelet chooses the devices of a Pod at admission, and monitoring programs rely on this choice. So
the agent proposes the devices that Slurm granted to the Pod. The choice gives no access, because the
kernel lets a Pod open only the devices of its job.

Without NRI, the container runtime does not ask the agent, and the kubelet gives the devices. If a
container requests all devices of a Node, the agent knows that the job has the same devices. If a
container requests fewer devices, the agent makes the kubelet reject the Pod, because the Pod could get
other devices than its job.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from node_agent.enforcement.keeper import Keeper
from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.kubelet.checkpoint import Checkpoint
from node_agent.machine.numbered import Unit
from node_agent.pods.node_pods import NodePods
from node_agent.runtime.admission import (
    Grant,
    Listed,
    admitted,
    differences,
    grants,
    may_be_of_no_job,
    preferred,
)
from node_agent.runtime.container_devices import container_devices
from service.periodic import periodically

log = structlog.get_logger()

_READ_AND_WRITE = "rw"
_COUNT_S = 5.0
_COMPARE_S: Final = 10.0
PATIENCE_S: Final = 0.9
"""Time for an answer to the kubelet. The kubelet's loop waits for the answer."""
_REPORT_WITHIN_S: Final = 0.5
"""Time within which kube-apiserver should report a Pod that PodResources lists."""
_LIST_S: Final = 0.1
"""Interval between two calls of PodResources for the same answer. The kubelet allows all programs
together 100 calls a second, and 10 at once (pkg/kubelet/apis/podresources)."""

Report = Callable[[Exception | str | None], object]


class KubeletDevices:
    """The devices of one extended resource."""

    def __init__(
        self,
        keeper: Keeper,
        pods: NodePods,
        resource: str,
        gres: str,
        folder: Path,
        pod_resources: Path | None,
    ) -> None:
        """Parameter `folder` is the kubelet's folder for plugins. Parameter `pod_resources` is the
        socket of PodResources. Without the socket, the kubelet chooses the devices."""
        self.resource = resource
        self._keeper, self._pods, self._gres, self._folder = keeper, pods, gres, folder
        self._pod_resources = pod_resources
        self._checkpoint = Checkpoint(folder)
        self._answered: dict[str, int] = {}
        """Number of devices that the agent has proposed for a Pod, by uid."""
        self._unreported = frozenset[str]()
        """Pods that PodResources lists, but that kube-apiserver did not report within
        `_REPORT_WITHIN_S`."""
        self._problem = ""
        """Problem of the last call of PodResources for an answer, or "" if the call succeeded."""
        self.chosen_by_kubelet = 0
        """Number of containers whose devices the kubelet chose by itself."""
        self.differing: Mapping[str, str] = {}
        """Pods for which the kubelet counts devices that Slurm did not grant, with a text about the
        difference."""

    def units(self) -> dict[str, Unit]:
        """Returns the devices by the kubelet's names. A device that a Pod has keeps the name from the
        Pod's admission."""
        kept = self._checkpoint.of_pods(self.resource)
        return self._keeper.of_resource(self.resource, self._gres, kept)

    def usable(self) -> dict[str, bool]:
        """Returns for each device, by the kubelet's name, whether the device is usable."""
        return self._keeper.usable(self.units())

    async def stay(self, report: Report, *, gives: bool) -> None:
        """Waits until the Node has a device, and then serves the kubelet for ever. Parameter `gives` is
        True if the agent runs without NRI. Then the kubelet gives the devices, and a container must
        request all devices of the Node."""
        while not self.units():  # noqa: ASYNC110 -- slurmd's list, or its first device, may come later
            await asyncio.sleep(_COUNT_S)
        from node_agent.kubelet import device_plugin  # noqa: PLC0415 -- gRPC takes 2 MB of memory

        give = self.whole_node if gives else None
        prefer = self.prefer if self._pod_resources is not None else None
        await device_plugin.stay(self._folder, self.resource, self.usable, report, give, prefer)

    # The kubelet's choice

    async def prefer(self, asked: api.ContainerPreferredAllocationRequest) -> list[str]:
        """Returns the devices to prefer for a container, or [] if the kubelet must choose by itself.
        Raises ValueError with a message for the Pod's author if the kubelet must reject the Pod."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                grant = await self._admitted()
        except TimeoutError:
            words = self._problem or "the Pod of the admission is not known"
            return self._leave_to_kubelet(asked, words)
        chosen = preferred(asked, self.units(), grant)
        self._answered[grant.uid] = self._answered.get(grant.uid, 0) + asked.size
        if len(chosen) < asked.size:
            words = f"devices of Pod {grant.pod} are not free by the kubelet's count"
            return self._leave_to_kubelet(asked, words, chosen)
        took_ms = round(1000 * (time.monotonic() - began))
        log.info("devices preferred", pod=grant.pod, devices=chosen, ms=took_ms)
        return chosen

    def _leave_to_kubelet(
        self, asked: api.ContainerPreferredAllocationRequest, why: str, chosen: Sequence[str] = ()
    ) -> list[str]:
        self.chosen_by_kubelet += 1
        log.warning("the kubelet chooses devices", resource=self.resource, size=asked.size, why=why)
        return list(chosen)

    async def _admitted(self) -> Grant:
        """Waits until the Pod in admission is known, and returns the Pod's grant. Raises ValueError if a
        Pod without a job is in admission."""
        reported_by = time.monotonic() + _REPORT_WITHIN_S
        while True:
            try:
                listed = await self._listed()
                self._problem = ""
                async with asyncio.timeout(_LIST_S):
                    return await self._granted(listed, reported_by)
            except TimeoutError:
                continue  # no Pod has changed
            except OSError as error:  # the kubelet may be starting, or may have too many calls
                self._problem = str(error)
                await asyncio.sleep(_LIST_S)

    async def _granted(self, listed: Listed, reported_by: float) -> Grant:
        """Waits for changes of Pods until only a single Pod may be in admission, and returns the grant
        of this Pod. kube-apiserver must first report all Pods that PodResources lists. After
        `reported_by` (monotonic clock), the agent no longer waits for unreported Pods. Raises ValueError
        if a Pod without a job is in admission."""
        while True:
            claims, asks = self._pods.claims or {}, self._pods.requests(self.resource)
            reported = {claim.pod for claim in claims.values()}
            unreported = frozenset(pod for pod, _ in listed if pod not in reported)
            if time.monotonic() > reported_by:
                self._unreported = unreported
            if unreported <= self._unreported:
                self._answered = {uid: n for uid, n in self._answered.items() if uid in claims}
                own = grants(claims.values(), self.units(), asks)
                found = admitted(listed, own, self._answered)
                if len(found) == 1:
                    return found[0]
                if not found and may_be_of_no_job(listed, claims.values(), asks):
                    raise ValueError(
                        f"no job of Slurm placed this Pod, and Slurm gives the {self.resource} of this"
                        " Node: name the scheduler of slurm-extender in the Pod"
                    )
            await self._pods.news()

    async def _listed(self) -> Listed:
        from node_agent.kubelet import pod_resources  # noqa: PLC0415 -- gRPC takes 2 MB of memory

        assert self._pod_resources is not None
        return await pod_resources.devices_of_pods(self._pod_resources, self.resource)

    async def compare_often(self, report: Report) -> None:
        """Compares the kubelet's counts with the grants at regular intervals. If the agent has no socket
        of PodResources, returns at once."""
        if self._pod_resources is not None:
            await periodically(self.compare, _COMPARE_S, outlives=OSError, report=report)

    async def compare(self) -> None:
        """Finds the Pods for which the kubelet counts devices that Slurm did not grant. Raises
        OSError."""
        listed = await self._listed()
        found = differences(listed, (self._pods.claims or {}).values(), self.units())
        for pod in found.keys() - self.differing.keys():
            log.warning("the kubelet counts other devices", pod=pod, why=found[pod])
        self.differing = found

    # The devices of whole Nodes, without NRI

    def whole_node(self, asked: Collection[str]) -> api.ContainerAllocateResponse:
        """Returns the devices for a container that requests the resource. Parameter `asked` has the
        kubelet's names of the devices. Raises ValueError with a message for the Pod's author in two
        cases: `asked` does not have all usable devices, or the UUID of a device is unknown."""
        units = self.units()
        usable = self._keeper.usable(units)
        of_use = {name: unit.part for name, unit in units.items() if usable[name]}
        if {*asked} != of_use.keys():
            raise ValueError(
                f"it asks for {len(asked)} of the {len(of_use)} {self.resource} that are of use here: on"
                " a Node without NRI (NODE_AGENT_NRI) a container has all of them, or none"
            )
        devices = list({part.device.files: part.device for part in of_use.values()}.values())
        keeper = self._keeper
        parts = {self._gres.partition(":")[0]: len(asked)}
        given = container_devices(devices, keeper.names, keeper.devices, (), parts)
        files = sorted([*given.files, *(file for file in given.common if Path(file).exists())])
        return api.ContainerAllocateResponse(
            envs=given.variables,
            devices=[
                api.DeviceSpec(container_path=file, host_path=file, permissions=_READ_AND_WRITE)
                for file in files
            ],
            cdi_devices=[api.CDIDevice(name=name) for name in sorted(given.cdi)],
        )
