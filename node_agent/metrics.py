"""Metrics of the node agent, and their sources. A metric about a problem is only a number, and the log
names the affected Pods.

The table `METRICS` is the source of the metrics and of docs/reference/metrics.md. The metrics of the
process (`process_*`) come from the library prometheus_client.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from node_agent.agent import Agent
from node_agent.reporting.device_holders import Holder
from service.metrics import Metric, Problems, installed_version

_BUILD: Final = Metric(
    "node_agent_build_info",
    "gauge",
    "The version of the node agent. The value is always 1.",
    "Which version runs on which Node?",
    ("version",),
)
_DEGRADED: Final = Metric(
    "node_agent_component_degraded",
    "gauge",
    "1 if a component of the node agent is degraded. The log has the reason.",
    "Which components have a problem on this Node? The agent's /readyz has the same names.",
    ("component",),
)
_READY: Final = Metric(
    "node_agent_ready",
    "gauge",
    "1 if the kernel accepts the node agent's limits, and the container runtime calls the agent.",
    "Are Pods limited to the resources of their jobs on this Node?",
)
_LOOKED: Final = Metric(
    "node_agent_last_look_timestamp_seconds",
    "gauge",
    "When the node agent last checked its Node and wrote the limits, in UNIX seconds.",
    "Does the agent still work, or does it only answer requests?",
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
    "Limits of Pods that another program changed and the agent restored.",
    "Does another program write the limits that the agent writes?",
)
_SHARED: Final = Metric(
    "node_agent_shared_cpus",
    "gauge",
    "CPUs that a Pod shares with a native job or another Pod for at least 5 s.",
    "Do two jobs compute on the same core?",
)
_STEPS: Final = Metric(
    "node_agent_steps_in_jobs_of_pods_total",
    "counter",
    "Steps that users started in the jobs of Pods.",
    "Do users run srun on the resources of a Pod?",
)
_DEVICES: Final = Metric(
    "node_agent_devices",
    "gauge",
    "Devices that Slurm counts.",
    "Which devices does the Node have?",
    ("gres", "type"),
)
_FAILED: Final = Metric(
    "node_agent_devices_failed",
    "gauge",
    "Devices that Slurm counts, but that do not work.",
    "Which devices have failed?",
    ("gres", "type"),
)
_MISMATCHES: Final = Metric(
    "node_agent_gres_mismatches",
    "gauge",
    "Resources with different counts by the kubelet and by Slurm.",
    "Do Kubernetes and Slurm agree on the Node's devices?",
)

_MISATTRIBUTED: Final = Metric(
    "node_agent_pods_with_other_devices",
    "gauge",
    "Pods for which the kubelet counts other devices than Slurm granted.",
    "Do programs that ask the kubelet report the right Pod of a device?",
    ("resource",),
)
_CHOSEN: Final = Metric(
    "node_agent_devices_chosen_by_kubelet_total",
    "counter",
    "Containers for which the kubelet chose devices by itself. The log has the reason.",
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
"""All metrics, in the order of their definition."""


def registry_of(agent: Agent) -> CollectorRegistry:
    """Returns all metrics of an agent."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(Problems(agent.health, _DEGRADED))
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
        yield _READY.with_value(agent.health.ready)
        yield _LOOKED.with_value(agent.looked_at)
        yield _LESS.with_value(len(agent.problems))
        yield _REPAIRED.read_counter(agent.keeper.limits.repaired)
        yield _SHARED.with_value(sum(map(len, agent.shared_cpus.values())))
        yield _STEPS.read_counter(agent.steps.found)
        devices, failed = _DEVICES.read(), _FAILED.read()
        for kind, (number, broken) in agent.keeper.counted.items():
            devices.add_metric(kind, number)
            failed.add_metric(kind, broken)
        yield from (devices, failed)
        yield _MISMATCHES.with_value(len(agent.devices.differing))
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
