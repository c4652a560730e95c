"""Connections of a command to Slurm and to Kubernetes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import environ
from pathlib import Path

from extender.settings import Settings
from kubernetes_client.errors import NoCredentials
from kubernetes_client.rest import KubernetesRest
from service.rate_limited_log import RateLimitedLog
from slurm_client.rest.client import SlurmRest

_PEOPLES = Path.home() / ".kube" / "config"


@asynccontextmanager
async def slurm_of(settings: Settings) -> AsyncIterator[SlurmRest]:
    """Yields a client of slurmrestd."""
    unreadable = RateLimitedLog("an entry of Slurm's answer cannot be read, and is passed over")
    slurm = SlurmRest(
        settings.slurmrestd_url,
        settings.slurm_token_file,
        timeout_s=settings.slurm_timeout_s,
        malformed=lambda call, why: unreadable.says(call=call, why=why),
    )
    try:
        yield slurm
    finally:
        await slurm.aclose()


@asynccontextmanager
async def kubernetes_of(settings: Settings, context: str | None = None) -> AsyncIterator[KubernetesRest]:
    """Yields a client of kube-apiserver. The credentials come from SLURM_EXTENDER_KUBECONFIG, otherwise
    from the Pod's service account, otherwise from kubectl's kubeconfig. With a context, the service
    account is not used. Raises NoCredentials."""
    kubernetes = await _connected(settings.kubeconfig, context)
    try:
        yield kubernetes
    finally:
        await kubernetes.aclose()


async def _connected(own: Path | None, context: str | None) -> KubernetesRest:
    peoples = environ.get("KUBECONFIG") or str(_PEOPLES)
    if own is not None or context is not None:
        return await KubernetesRest.connect(own or peoples, context)
    try:
        return await KubernetesRest.connect(None)
    except NoCredentials:
        if not any(map(_is_file, peoples.split(":"))):
            raise
    return await KubernetesRest.connect(peoples)


def _is_file(path: str) -> bool:
    return Path(path).is_file()
