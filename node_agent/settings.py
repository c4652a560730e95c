"""Settings of the node agent: read once from the environment, validated together."""

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
    """Returns the resources without those that are mapped to no GRES."""
    return {name: gres for name, gres in resources.items() if gres}


class Settings(BaseSettings):
    """NODE_AGENT_*, one for each field."""

    model_config = SettingsConfigDict(env_prefix="NODE_AGENT_", frozen=True, extra="forbid")

    node: Annotated[str, Field(min_length=1, max_length=253)]
    """The Kubernetes Node that this agent is on: the downward API's spec.nodeName."""
    pod_uid: str = ""
    """The uid of the agent's own Pod: the downward API's metadata.uid. The agent asks drivers about all
    devices, and so lets its own Pod in to them. Blank: it runs outside of Pods."""
    gres: Path
    """The file with the output of `slurmd -G`, renewed at each start and reconfiguration of slurmd."""
    kubeconfig: Path | None = None
    """Absent: the service account."""
    cgroups: Path = ROOT
    """The machine's cgroups (v2), all of them; in a Pod the host's, mounted whole."""
    pods_cgroups: Names = ROOTS
    """The cgroups below these in which the kubelet keeps Pods, those that there are."""
    nri: OptionalPath = Path("/var/run/nri/nri.sock")
    """The socket on which the container runtime takes plugins; blank: it has none. Then a Pod may start
    some milliseconds before it is let in, and only whole Nodes of devices are given
    (docs/node-agent.md#what-the-kubelet-counts)."""
    cdi: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(listed)] = CDI_FOLDERS
    """The folders of specifications of devices that the container runtime knows."""
    device_plugins: OptionalPath = Path("/var/lib/kubelet/device-plugins")
    """The folder in which the kubelet takes plugins; blank: others tell it of the devices."""
    pod_resources: OptionalPath = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """The socket of the kubelet's PodResources; blank: the kubelet chooses the devices of Pods by
    itself, and counts other devices than Slurm granted
    (docs/node-agent.md#what-the-kubelet-counts)."""
    job_mapping: OptionalPath = None
    """The folder from which dcgm-exporter reads the jobs of GPUs (`--hpc-job-mapping-dir`); blank: the
    agent writes no job files (docs/node-agent.md#the-use-of-gpus)."""
    resources: Annotated[
        dict[str, str], NoDecode, BeforeValidator(read_json), AfterValidator(_mapped)
    ] = dict(GRES)
    """Extended resource name -> GRES, as JSON, as the extender's SLURM_EXTENDER_GRES."""
    slurmd_namespace: str = ""
    """Where slurmd Pods are (SLURM_EXTENDER_POOLS_NAMESPACE); blank: the agent makes none
    (docs/pools.md)."""
    node_name_label: str = NODE_NAME_LABEL
    """The label by which a Node names its Slurm node: SLURM_EXTENDER_NODE_NAME_LABEL."""
    keep_others_off_cores: bool = False
    """Whether Pods of no job are kept off the cores that jobs have on this Node
    (docs/node-agent.md#pods-of-no-job)."""
    end_steps: bool = True
    """Whether steps in the jobs of Pods (`srun --jobid=... --overlap`) are ended, and not only reported
    (docs/node-agent.md#steps-in-the-jobs-of-pods)."""
    bpf: Path = FOLDER
    """Where program and maps are kept, in the host's BPF file system."""
    socket: OptionalPath = Path("/run/slurm-extender/node-agent.sock")
    """Where the Prolog's gate asks (SLURM_EXTENDER_AGENT in its configuration); blank: nowhere."""
    listen_address: str = "0.0.0.0"  # noqa: S104 -- a Pod's own, for Prometheus and the kubelet
    """Where both ports listen."""
    metrics_port: Port = 8080
    """/metrics."""
    health_port: Port = 8081
    """/healthz and /readyz."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least level of the lines in the log."""
