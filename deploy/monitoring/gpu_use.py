"""Expressions for the use of the devices of Pods.

The expressions join two metrics by the labels `UUID` and `GPU_I_ID`. The node agents' metric
node_agent_device_holder names the Pod that has a device. dcgm-exporter's metrics have the use of each
GPU. The expressions do not use dcgm-exporter's own labels of a Pod, because these labels get other names
if Prometheus adds `namespace` and `pod` to the target. Without dcgm-exporter, the expressions return no
series.
"""

from typing import Final

from deploy.monitoring.releases import by

_OF_DEVICE: Final = ("UUID", "GPU_I_ID")
"""Labels of a GPU, or of a MIG instance, in the metrics of both programs."""
_OF_POD: Final = ("pod_namespace", "pod_name", "job_id")
_DEVICE: Final = f"(cluster, {', '.join(_OF_DEVICE)})"
_POD: Final = f"(cluster, {', '.join(_OF_POD)})"
_DEVICE_AND_POD: Final = f"(cluster, {', '.join((*_OF_DEVICE, *_OF_POD))})"

_HOLDER: Final = "node_agent_device_holder"
_UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
"""Percentage of the time in which a GPU was in use. MIG instances do not have this metric."""
_ENGINE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""Share of the time in which a GPU or a MIG instance was in use. GPUs without profiling metrics do not
have this metric."""
_RECENT: Final = "[5m]"
"""Range for the recent use of a device. A range of five minutes bridges a missed scrape, and includes
use between two evaluations."""

_USE: Final = f"(max by {_DEVICE} ({_UTIL}) / 100 or max by {_DEVICE} ({_ENGINE}))"
_HELD: Final = f"max by {_DEVICE_AND_POD} ({_HOLDER})"
_JOB: Final = f"topk by {_POD} (1, slurm_extender_job_info)"
"""Expression with one series for each Pod, even if two replicas have series during a change of the
leader."""

OF_PODS: Final = f"{_HELD} * on {_DEVICE} group_left () {_USE}"
"""Expression for the use of each device of each Pod, from 0 to 1."""

IDLE: Final = (
    f"max {by('node', 'gpu', *_OF_DEVICE, *_OF_POD)} (max_over_time({_HOLDER}{_RECENT}))"
    f" and on {_DEVICE} (max by {_DEVICE} (max_over_time({_UTIL}{_RECENT}))"
    f" or max by {_DEVICE} (max_over_time({_ENGINE}{_RECENT}))) == 0"
)
"""Expression for the Pods' devices without any use within the last five minutes. A device without
metrics does not count as idle."""


def used_by(label: str) -> str:
    """Returns the expression for the sum of the devices' use (0 to 1 for each device), for each value of
    a label of the jobs."""
    return _summed(label, OF_PODS)


def held_by(label: str) -> str:
    """Returns the expression for the number of allocated devices with metrics of their use, for each
    value of a label of the jobs."""
    return _summed(label, f"{_HELD} and on {_DEVICE} {_USE}")


def _summed(label: str, expr: str) -> str:
    return f"sum by ({label}) (({expr}) * on {_POD} group_left ({label}) {_JOB})"
