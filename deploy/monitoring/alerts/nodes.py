"""Alerts about Nodes, their node agents, and pools of slurmd Pods."""

from typing import Final

from deploy.monitoring.gpu_use import IDLE
from deploy.monitoring.releases import by
from deploy.monitoring.rule import Alert, Group, Severity

_OLDEST_DRAIN: Final = "slurm_extender_drained_oldest_timestamp_seconds"
_FOR_DAYS: Final = "cordoned|tainted|not-ready"
"""Causes for which a drain of up to three days is normal: an administrator has closed the Node, or the
Node is not ready. Administrators normally know about such drains."""
_LIMITS: Final = (
    "guard|cores of Pods of no job|Slurm's limits of its jobs|other device programs|numbers of devices"
)
"""Components of the node agent that keep Pods and jobs apart."""
_DEGRADED: Final = f'node_agent_component_degraded{{component=~"{_LIMITS}"}}'
_LOOKED: Final = "node_agent_last_look_timestamp_seconds"
_WATCHED: Final = f"max {by()} (last_over_time({_LOOKED}[1d]))"
"""Releases with at least one node agent in Prometheus within the last day."""
_AGENTS: Final = f"max {by()} (slurm_extender_agent_nodes)"
_AT_WORK: Final = f"count {by()} (time() - max {by('node')} (last_over_time({_LOOKED}[10m])) < 600)"
"""Number of Nodes with a check by their node agent within the last ten minutes. Ten minutes bridge a
restart of the agent in a rolling update."""

NODES: Final = Group(
    "slurm-extender-nodes",
    (
        Alert(
            "SlurmExtenderNodesDrainedLong",
            f'time() - min {by("cause")} ({_OLDEST_DRAIN}{{cause!~"{_FOR_DAYS}"}}) > 3600'
            f' or time() - min {by("cause")} ({_OLDEST_DRAIN}{{cause=~"{_FOR_DAYS}"}}) > 259200',
            "5m",
            Severity.WARNING,
            "The extender has kept a node drained for {{ $value | humanizeDuration }} ({{"
            " $labels.cause }})",
            "The limit is an hour for causes that end by themselves. The limit is three days for"
            " cordoned and tainted Nodes, and for Nodes that are not ready.",
        ),
        Alert(
            "SlurmExtenderNodeAgentSilent",
            f"{_AGENTS} - ({_AT_WORK} or 0 * {_AGENTS}) > 0 and {_WATCHED}",
            "5m",
            Severity.WARNING,
            "{{ $value }} node agents are silent: Pods with devices do not start there",
            "Nodes that are ready have an agent's condition. For ten minutes their agents have not"
            " answered Prometheus, or have not checked their Nodes. Active limits stay active. New"
            " Pods get no devices.",
        ),
        Alert(
            "SlurmExtenderNodeAgentsNotWatched",
            f"{_AGENTS} > 0 unless {_WATCHED}",
            "1h",
            Severity.INFO,
            "{{ $value }} Nodes have a node agent, and Prometheus reads no agent",
            "The alerts about missing limits, failed devices and silent agents cannot fire, because"
            " they need the agents' metrics. Prometheus reads these metrics by the chart's"
            " monitoring.podMonitor.",
        ),
        Alert(
            "SlurmExtenderLimitsNotApplied",
            f"max {by('component', 'node')} ({_DEGRADED}) == 1"
            f" or sum {by('node')} (node_agent_pods_with_less_than_their_jobs) > 0",
            "5m",
            Severity.CRITICAL,
            "Pods and jobs are not kept apart on Node {{ $labels.node }}{{ with $labels.component }}"
            " ({{ . }}){{ end }}",
            "The kernel or cgroups reject the agent's limits, Slurm does not limit its own jobs to"
            " their allocation, slurmd has renumbered devices while jobs run, or a Pod has less than"
            " its job. Pods and jobs may take each other's devices, cores or memory.",
        ),
        Alert(
            "SlurmExtenderCoresShared",
            f"sum {by('node')} (node_agent_shared_cpus) > 0",
            "1m",
            Severity.WARNING,
            "Two jobs use {{ $value }} CPUs of Node {{ $labels.node }} at the same time",
            "A Pod and a native job, or two Pods, compute on the same CPUs. The message of the Node's"
            " condition slurm-extender.io/DeviceProblem names them. In a partition with OverSubscribe,"
            " Slurm shares cores on purpose.",
        ),
        Alert(
            "SlurmExtenderGresMismatch",
            f"sum {by('node')} (node_agent_gres_mismatches) > 0",
            "10m",
            Severity.WARNING,
            "Kubernetes and Slurm count different numbers of devices on Node {{ $labels.node }}",
            "slurm.conf's Gres and the kubelet's capacity differ. The agent's condition drains the"
            " node.",
        ),
        Alert(
            "SlurmExtenderOtherDevices",
            f"sum {by('node', 'resource')} (node_agent_pods_with_other_devices) > 0",
            "5m",
            Severity.WARNING,
            "The kubelet names the wrong {{ $labels.resource }} for {{ $value }} Pods of Node"
            " {{ $labels.node }}",
            "Each Pod has the devices of its job. Programs that ask the kubelet, such as"
            " dcgm-exporter, report the use of these devices under the wrong Pod.",
        ),
        Alert(
            "SlurmExtenderDeviceIdle",
            IDLE,
            "1h",
            Severity.WARNING,
            "GPU {{ $labels.gpu }} of Node {{ $labels.node }} is idle, and allocated to Pod"
            " {{ $labels.pod_namespace }}/{{ $labels.pod_name }} (job {{ $labels.job_id }})",
            "The Pod does not use the GPU, and no other job can have the GPU. DCGM reports no use.",
        ),
        Alert(
            "SlurmExtenderDevicesFailed",
            f"sum {by('node', 'gres')} (node_agent_devices_failed) > 0",
            "5m",
            Severity.WARNING,
            "{{ $value }} {{ $labels.gres }} of Node {{ $labels.node }} cannot be used",
            "The driver reports an error, or a device's file is gone. The Node's condition names the"
            " device.",
        ),
        Alert(
            "SlurmExtenderKubeletRejectsPods",
            f"max {by('closed_to')} (max_over_time(slurm_extender_pods_rejecting_nodes[5m])) > 0",
            "10m",
            Severity.WARNING,
            "The kubelets of {{ $value }} Nodes reject {{ $labels.closed_to }} Pods",
            "The extender closes such a Node for 1 to 30 minutes, and then tries one Pod. An Event on"
            " the Node names the last Pod and the kubelet's reason. To Slurm the node looks healthy.",
        ),
        Alert(
            "SlurmExtenderPoolRollOutStopped",
            f"max {by('pool')} (slurm_extender_pool_stopped) == 1",
            "1m",
            Severity.WARNING,
            "The roll-out of pool {{ $labels.pool }} has stopped",
            "slurmd Pods of the newest revision fail. No other Node gets this revision.",
        ),
    ),
)
