"""Implements `slurm-cluster keys ensure|rotate`.

Exit status: 0: success. 1: a step of a rotation is too early, or a Secret or its key is missing. 2:
kube-apiserver is unreachable or rejects a request.
"""

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kubernetes_client.errors import KubernetesError, NoCredentials
from kubernetes_client.protocol import Kubernetes
from slurm_cluster.jwks import WrongKeys
from slurm_cluster.keys import secrets
from slurm_cluster.keys.secrets import Names, NotNow
from slurm_cluster.kubernetes_session import ask

Act = Callable[[Kubernetes], Awaitable[list[str]]]


def ensure(names: Names, kubeconfig: Path | None) -> int:
    """Creates missing Secrets."""
    return _run(lambda kubernetes: secrets.ensure(kubernetes, names), kubeconfig)


def rotate(names: Names, kubeconfig: Path | None, *, jwt: bool, pause_s: float) -> int:
    """Carries out the next step of a rotation of auth/slurm's key. If `jwt` is True, replaces the key of
    auth/jwt instead."""

    def act(kubernetes: Kubernetes) -> Awaitable[list[str]]:
        now = datetime.now(UTC)
        if jwt:
            return secrets.rotate_jwt_key(kubernetes, names, now)
        return secrets.rotate_slurm_key(kubernetes, names, now, timedelta(seconds=pause_s))

    return _run(act, kubeconfig)


def _run(act: Act, kubeconfig: Path | None) -> int:
    try:
        for line in ask(act, kubeconfig):
            print(line)
    except NotNow as early:
        print(early, file=sys.stderr)
        return 1
    except (KubernetesError, NoCredentials, WrongKeys) as error:
        print(f"not done: {error}", file=sys.stderr)
        return 2
    return 0
