"""Implements `slurm-cluster publish-secrets` and `slurm-cluster password`.

Exit status: 0: success. 1: slurmctld gives no token. 2: kube-apiserver is unreachable or rejects a
request.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubernetes_client.errors import KubernetesError, NoCredentials
from kubernetes_client.protocol import Kubernetes
from slurm_cluster.kubernetes_session import ask
from slurm_cluster.programs import ProgramFailed
from slurm_cluster.published_secrets import password, writer
from slurm_cluster.published_secrets.places import Place
from slurm_cluster.published_secrets.writer import Missing, Wanted

Act = Callable[[Kubernetes], Awaitable[list[str]]]


def publish(wanted: Wanted, kubeconfig: Path | None) -> int:
    """Writes the contents to the Secrets."""
    return _run(lambda kubernetes: writer.publish(kubernetes, wanted), kubeconfig)


def ensure_password(place: Place, kubeconfig: Path | None) -> int:
    """Creates the Secret with a password if the Secret is missing."""

    async def act(kubernetes: Kubernetes) -> list[str]:
        return [await password.ensure(kubernetes, place)]

    return _run(act, kubeconfig)


def _run(act: Act, kubeconfig: Path | None) -> int:
    try:
        for line in ask(act, kubeconfig):
            print(line)
    except ProgramFailed as failed:
        print(f"no token: {failed}", file=sys.stderr)
        return 1
    except (KubernetesError, NoCredentials, Missing, OSError) as error:
        print(f"not done: {error}", file=sys.stderr)
        return 2
    return 0
