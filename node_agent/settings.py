"""Settings of the node agent: read once from the environment, validated together."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from node_agent.cgroups import ROOT, ROOTS
from node_agent.kernel.device_guard import FOLDER

_PREFIX = "NODE_AGENT_"
Port = Annotated[int, Field(ge=1, le=65535)]


class Settings(BaseSettings):
    """NODE_AGENT_*, one for each field."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")

    node: Annotated[str, Field(min_length=1, max_length=253)]
    """The Kubernetes Node that this agent is on: the downward API's spec.nodeName."""
    gres: Path
    """What `slurmd -G` printed when slurmd started here: the devices, by Slurm's numbers."""
    kubeconfig: Path | None = None
    """Without it: the service account."""
    cgroups: Path = ROOT
    """The machine's cgroups (v2), all of them."""
    pods_cgroups: Annotated[tuple[str, ...], NoDecode] = ROOTS
    """The cgroups, below, that the kubelet keeps Pods in, those that there are; with commas between."""
    bpf: Path = FOLDER
    """The folder, in the BPF file system, of what the guard knows."""
    listen_address: str = "0.0.0.0"  # noqa: S104 -- a Pod's own, for Prometheus and the kubelet
    metrics_port: Port = 8080
    health_port: Port = 8081
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("pods_cgroups", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return tuple(filter(None, given.split(","))) if isinstance(given, str) else given


def from_environment() -> Settings:
    """Returns the settings. Prints problems on standard error, and ends the program with exit status
    2."""
    try:
        return Settings()
    except ValidationError as error:
        for wrong in error.errors():
            name = str(wrong["loc"][0]).upper() if wrong["loc"] else "*"
            print(f"{_PREFIX}{name}: {wrong['msg']}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)
