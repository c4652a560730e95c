"""The metrics of the node agent, and what they are read from. The log says which Pods they are about.

`METRICS` is one table, which the metrics and docs/metrics.md are made from; the metrics of the process
itself (`process_*`) are their library's own.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from node_agent.agent import Agent
from node_agent.reporting.device_holders import Holder
from service.metrics import Metric, Troubles, installed_version

_BUILD: Final = Metric(
    "node_agent_build_info",
    "gauge",
    "The version of the node agent; the value is always 1.",
    "Which version runs on which Node?",
    ("version",),
)
_DEGRADED: Final = Metric(
    "node_agent_component_degraded",
    "gauge",
    "Whether a component of the node agent is in trouble; the log says why.",
    "What is in trouble on this Node? These are the names that the agent's /readyz has.",
    ("component",),
)
_READY: Final = Metric(
    "node_agent_ready",
    "gauge",
    "Whether the kernel takes what the node agent tells it, and the container runtime asks the agent.",
    "Are Pods kept to what their jobs have on this Node?",
)
_LOOKED: Final = Metric(
    "node_agent_last_look_timestamp_seconds",
    "gauge",
    "When the node agent last told the kernel who may open what, in UNIX seconds.",
    "Does the agent still work, or does it only answer?",
)
_LESS: Final = Metric(
    "node_agent_pods_with_less_than_their_jobs",
    "gauge",
    "Pods that have less than their Slurm jobs.",
    "Does a Pod lack devices, cores or memory of its job?",
)
_REPAIRED: Final = Metric(
    "node_agent_limits_repaired_total",
    "counter",
    "Limits of Pods that somebody else had changed, and that were put right.",
    "Does another program write the limits that the agent writes?",
)
_SHARED: Final = Metric(
    "node_agent_shared_cpus",
    "gauge",
    "CPUs of Pods that are also a native job's, or another Pod's, for 5 s or more.",
    "Do two jobs compute on one core?",
)
_STEPS: Final = Metric(
    "node_agent_steps_in_jobs_of_pods_total",
    "counter",
    "Steps that users started in the jobs of Pods.",
    "Does somebody use a Pod's resources by srun?",
)
_DEVICES: Final = Metric(
    "node_agent_devices",
    "gauge",
    "Devices that Slurm counts.",
    "What has the Node?",
    ("gres", "type"),
)
_FAILED: Final = Metric(
    "node_agent_devices_failed",
    "gauge",
    "Devices that Slurm counts and that cannot be used.",
    "Which devices have failed?",
    ("gres", "type"),
)
_MISMATCHES: Final = Metric(
    "node_agent_gres_mismatches",
    "gauge",
    "Resources of which the kubelet counts another number than Slurm.",
    "Do Kubernetes and Slurm believe the same of the Node's devices?",
)

_MISATTRIBUTED: Final = Metric(
    "node_agent_pods_with_other_devices",
    "gauge",
    "Pods with other devices by the kubelet's count than Slurm granted.",
    "Do programs that ask the kubelet name the right Pod of a device?",
    ("resource",),
)
_CHOSEN: Final = Metric(
    "node_agent_devices_chosen_by_kubelet_total",
    "counter",
    "Containers for which the kubelet chose devices by itself; the log says why.",
    "Does the kubelet follow Slurm's grants?",
    ("resource",),
)
_HOLDER: Final = Metric(
    "node_agent_device_holder",
    "gauge",
    "1 for each device and each Pod of a job that has the device. `UUID`, `gpu` and `GPU_I_ID` are the"
    " labels of dcgm-exporter.",
    "Which Pod and which job use a GPU?",
    ("gres", "index", "UUID", "gpu", "GPU_I_ID", "pod_namespace", "pod_name", "job_id"),
)

METRICS: Final[tuple[Metric, ...]] = tuple(
    each for each in tuple(globals().values()) if isinstance(each, Metric)
)
"""All of them, in this order."""


def registry_of(agent: Agent) -> CollectorRegistry:
    """Returns all metrics of an agent."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(Troubles(agent.health, _DEGRADED))
    registry.register(_Figures(agent))
    return registry


class _Figures(Collector):
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        agent = self._agent
        build = _BUILD.read()
        build.add_metric([installed_version("slurm-extender")], 1)
        yield build
        yield _READY.told(agent.health.ready)
        yield _LOOKED.told(agent.looked_at)
        yield _LESS.told(len(agent.problems))
        yield _REPAIRED.read_counter(agent.keeper.limits.repaired)
        yield _SHARED.told(sum(map(len, agent.shared_cpus.values())))
        yield _STEPS.read_counter(agent.steps.found)
        devices, failed = _DEVICES.read(), _FAILED.read()
        for kind, (number, broken) in agent.keeper.counted.items():
            devices.add_metric(kind, number)
            failed.add_metric(kind, broken)
        yield from (devices, failed)
        yield _MISMATCHES.told(len(agent.devices.differing))
        misattributed, chosen_by_kubelet = _MISATTRIBUTED.read(), _CHOSEN.read_counter(None)
        for each in agent.kubelet_devices:
            misattributed.add_metric([each.resource], len(each.differing))
            chosen_by_kubelet.add_metric([each.resource], each.chosen_by_kubelet)
        yield from (misattributed, chosen_by_kubelet)
        yield _holders(agent.holders.now())


def _holders(held: Iterable[Holder]) -> GaugeMetricFamily:
    family = _HOLDER.read()
    for each in held:
        gpu, uuid, instance = each.monitored
        namespace, _, name = each.pod.partition("/")
        job = str(each.job or "")
        family.add_metric([each.gres, str(each.number), uuid, gpu, instance, namespace, name, job], 1)
    return family
