"""Reads names and health of the Node's devices from drivers, and reports them on the Node."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from node_agent.enforcement.keeper import Keeper
from node_agent.machine import names
from node_agent.machine.devices import Answers, Device, DriverWatch, GpuVendor
from node_agent.machine.gpu_vendors import VENDORS
from node_agent.machine.hang_safe_call import HangSafeCall, Unanswered
from node_agent.reporting import node_devices
from node_agent.reporting.node_condition import Condition, Reason, differences
from service.periodic import periodically
from wellknown.conditions import AGENT_HEARTBEAT_S
from wellknown.quoting import words_of

log = structlog.get_logger()

_LOOK_S: Final = 5.0
_ASK_S: Final = 30.0
"""Interval between calls of the drivers while no change is visible."""
_PATIENCE_S: Final = 10.0
"""Time for a driver's reply; a hanging driver never replies."""
_LISTEN_S: Final = 1.0
_TELL_S: Final = AGENT_HEARTBEAT_S
"""Interval at which the agent, while nothing changes, reads the kubelet's counts from the Node and
writes the same condition again."""

_WORDS: Final = {
    Reason.NOT_GUARDED: "the devices are not closed to other Pods",
    Reason.LIST_UNREADABLE: "slurmd's list of devices cannot be used",
    Reason.RENUMBERED: "slurmd has renumbered devices under jobs",
    Reason.CORES_UNKNOWN: "no further Pod can be held to the cores of its job",
    Reason.DEVICES_HELD: "slurmd's Pod lacks devices that processes of an earlier Pod have",
}
_FIRST: Final = {Reason.NOT_GUARDED, Reason.LIST_UNREADABLE}
"""The agent writes the first condition only after it has checked these reasons."""

Report = Callable[[str, Exception | str | None], object]


class DeviceHealth:
    """Reads and reports the health of the devices that Slurm counts."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        node: str,
        keeper: Keeper,
        cdi: Sequence[Path],
        resources: Mapping[str, str],
        report: Report,
    ) -> None:
        """Parameter `resources` has the GRES of each extended resource that the kubelet and Slurm should
        count the same. Parameter `report` gets the name of a component and its problem. After the
        problem has ended, `report` gets None."""
        self._kubernetes = kubernetes
        self._node = node
        self._keeper = keeper
        self._cdi = cdi
        self._resources = resources
        self._report = report
        self._seen: object = None
        """State of the machine at the last call of the drivers; None if a reply is missing."""
        self._drivers = HangSafeCall(names.ask_drivers, "a driver", _PATIENCE_S)
        self._answers: Answers | None = None
        """Last replies of the drivers."""
        self._silence = ""
        """Reason why the last call of the drivers has no reply, or ""."""
        self._problems: dict[Reason, str] = {}
        """Problems that concern all devices or jobs, by reason. After a problem has ended, the text is
        ""."""
        self._reported: object = None
        """Failed devices, problems and list of devices in the last report on the Node."""
        self._ask_at = self._tell_at = 0.0
        self.differing: Sequence[str] = ()
        """Texts about resources that the kubelet and Slurm count differently."""
        self._watches: dict[str, DriverWatch] = {}
        """Watches of the drivers' complaints, by the name of the vendor."""

    @property
    def detected(self) -> Sequence[Device]:
        """Returns the GPUs that drivers report. slurmd's list is not needed for this."""
        return (self._answers or Answers()).devices

    @property
    def awaited(self) -> str:
        """Returns a message if no driver reports a GPU of this machine yet, or "" if drivers report all
        GPUs."""
        if not (buses := names.without_driver(self.detected)):
            return ""
        problems = (self._answers or Answers()).problems
        why = [*problems.values(), *filter(None, [self._silence])]
        return f"no driver reports the GPU at {buses[0]}" + (f" ({'; '.join(why)})" if why else "")

    def note(self, reason: Reason, problem: Exception | str | None) -> None:
        """Notes a problem that concerns all devices or jobs. `problem` is None after the problem has
        ended."""
        subject = f"{_WORDS[reason]}: " if reason in _WORDS else ""
        self._problems[reason] = f"{subject}{problem}" if problem else ""

    async def run(self) -> None:
        """For ever, asks the drivers, collects the drivers' complaints, and reports the results on the
        Node."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look())
            for vendor in VENDORS:
                if watch := await asyncio.to_thread(vendor.watch):
                    tasks.create_task(self._listen(vendor, watch))

    async def _look(self) -> None:
        async def look() -> None:
            await self.ask()
            await self._tell()

        report = partial(self._report, "condition of the Node")
        await periodically(look, _LOOK_S, outlives=KubernetesError, report=report)

    async def _listen(self, vendor: GpuVendor, watch: DriverWatch) -> None:
        self._watches[vendor.name] = watch
        driver = f"{vendor.name}'s driver"
        waiting = HangSafeCall(partial(watch.wait, _LISTEN_S), driver, _PATIENCE_S)
        report = partial(self._report, f"complaints of {driver}")

        async def listen() -> None:
            if await waiting.result():
                self._ask_at = 0.0

        await periodically(listen, 0.0, outlives=Exception, retry=_ASK_S, report=report)

    async def ask(self) -> None:
        """Calls the drivers, if a change is visible or the last call is long ago. Waits for the replies,
        but at most for a limited time. If a reply is missing, the last replies count, so that the agent
        continues even if a driver hangs."""
        now, devices = time.monotonic(), self._keeper.devices
        seen = devices, self._keeper.guarded, names.stamps(self._cdi)
        if seen == self._seen and now < self._ask_at:
            return
        await self._ask_drivers()
        complaints = {name: dict(watch.complaints) for name, watch in self._watches.items()}
        reading = asyncio.to_thread(names.read, devices, self._cdi, self._answers, complaints)
        self._keeper.names, problems = await reading
        problems += filter(None, [self._silence])
        self._problems[Reason.DEVICE_FAILED] = self._silence if devices else ""
        self._seen, self._ask_at = None if problems else seen, now + _ASK_S
        self._report("names of devices", "; ".join(problems) or None)

    async def _ask_drivers(self) -> None:
        try:
            self._answers = await self._drivers.result()
        except Unanswered as error:
            self._silence = str(error)
        except Exception as error:
            words = f"the drivers could not be asked: {words_of(error)}"
            if words != self._silence:
                log.exception("the drivers could not be asked")
            self._silence = words
        else:
            self._silence = ""

    async def _tell(self) -> None:
        failed, problems, now = self._keeper.failed, dict(self._problems), time.monotonic()
        devices = self._list(failed)
        known = failed, problems, devices
        if not problems.keys() >= _FIRST or (known == self._reported and now < self._tell_at):
            return
        node = await self._kubernetes.read_node(self._node)
        self.differing = self._differences(node)
        condition, before = Condition.of(failed, self.differing, problems), Condition.on(node)
        patch = condition.patch(before)
        if devices != node_devices.text_on(node):
            patch |= node_devices.patch(devices)
        await self._kubernetes.patch_node_status(self._node, patch)
        if condition != before:
            tell = log.warning if condition.problem else log.info
            tell("the Node has another condition", **condition._asdict())
        self._reported, self._tell_at = known, now + _TELL_S

    def _list(self, failed: Mapping[str, str]) -> str | None:
        """Returns the text of the annotation, or None while slurmd's list is unknown."""
        if self._keeper.machine is None:
            return None
        return node_devices.text_of(self._keeper.machine, self.detected, failed, self._keeper.core_map)

    def _differences(self, node: Manifest) -> list[str]:
        resources = self._resources.items()
        counted = {each: len(self._keeper.of_resource(each, gres)) for each, gres in resources}
        return differences(node, {each: number for each, number in counted.items() if number})
