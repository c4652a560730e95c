"""Settings of the node agent: read from the environment at the start, and validated together."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from node_agent.kernel.device_guard import FOLDER
from node_agent.machine.names import CDI_FOLDERS
from node_agent.pods.cgroups import ROOT, ROOTS
from service.settings import Names, Port, listed, read_json
from wellknown.names import GRES, NODE_NAME_LABEL

OptionalPath = Annotated[Path | None, BeforeValidator(lambda given: given or None)]


def _mapped(resources: dict[str, str]) -> dict[str, str]:
    """Returns the resources that are mapped to a GRES."""
    return {name: gres for name, gres in resources.items() if gres}


class Settings(BaseSettings):
    """All settings of the node agent. The setting `name` comes from the variable NODE_AGENT_NAME."""

    model_config = SettingsConfigDict(env_prefix="NODE_AGENT_", frozen=True, extra="forbid")

    node: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the agent's Node (spec.nodeName of the downward API)."""
    pod_uid: str = ""
    """Uid of the agent's Pod (metadata.uid of the downward API). The Pod gets access to all devices,
    because the agent queries their drivers. Blank: no Pod gets this access."""
    gres: Path
    """File with the output of `slurmd -G`. The file must be written again at each start and
    reconfiguration of slurmd."""
    kubeconfig: Path | None = None
    """Path of a kubeconfig. Absent: the agent uses its Pod's service account."""
    cgroups: Path = ROOT
    """Folder of the machine's cgroups (v2). In a Pod, the host's whole folder must be mounted here."""
    pods_cgroups: Names = ROOTS
    """Cgroups of the kubelet's Pods, as paths below the folder of NODE_AGENT_CGROUPS. The agent skips
    missing cgroups."""
    nri: OptionalPath = Path("/var/run/nri/nri.sock")
    """Socket for plugins of the container runtime. Blank: a Pod may start some milliseconds before the
    agent gives access, and gets all devices or none
    (docs/concepts/devices.md#what-the-kubelet-counts)."""
    cdi: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(listed)] = CDI_FOLDERS
    """Folders with the container runtime's specifications of devices (CDI)."""
    device_plugins: OptionalPath = Path("/var/lib/kubelet/device-plugins")
    """Folder of the kubelet's device plugins. Blank: other plugins report the devices to the
    kubelet."""
    pod_resources: OptionalPath = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Socket of the kubelet's PodResources API. Blank: the kubelet chooses the devices of Pods, and
    counts other devices than Slurm granted (docs/concepts/devices.md#what-the-kubelet-counts)."""
    job_mapping: OptionalPath = None
    """Folder in which dcgm-exporter reads the jobs of GPUs (`--hpc-job-mapping-dir`). Blank: the
    agent writes no job files (docs/reference/job-files.md)."""
    resources: Annotated[
        dict[str, str], NoDecode, BeforeValidator(read_json), AfterValidator(_mapped)
    ] = dict(GRES)
    """GRES of each extended resource: the same value as SLURM_EXTENDER_GRES."""
    slurmd_namespace: str = ""
    """Namespace of slurmd Pods: the same value as SLURM_EXTENDER_POOLS_NAMESPACE. Blank: the agent
    creates no slurmd Pods (docs/concepts/pools.md)."""
    node_name_label: str = NODE_NAME_LABEL
    """Label on a Node with the Slurm node's name: the same value as
    SLURM_EXTENDER_NODE_NAME_LABEL."""
    keep_others_off_cores: bool = False
    """`true` keeps Pods without a job off the cores that jobs have on this Node
    (docs/concepts/node-agent.md#pods-of-no-job)."""
    end_steps: bool = True
    """`true` ends steps that users start in the jobs of Pods (`srun --jobid=... --overlap`). `false`
    only reports these steps (docs/concepts/node-agent.md#steps-in-the-jobs-of-pods)."""
    bpf: Path = FOLDER
    """Folder in the host's BPF file system, for the agent's program and maps."""
    socket: OptionalPath = Path("/run/slurm-extender/node-agent.sock")
    """Socket on which the agent answers the gate in a Prolog. Set the same path as SLURM_EXTENDER_AGENT
    in the gate's configuration. Blank: no socket."""
    listen_address: str = "0.0.0.0"  # noqa: S104 -- for Prometheus and the kubelet, in a Pod
    """Address on which the agent opens both ports."""
    metrics_port: Port = 8080
    """Port of /metrics."""
    health_port: Port = 8081
    """Port of /healthz and /readyz."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level of the lines in the log."""
