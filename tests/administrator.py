"""Lets tests call kube-apiserver as an administrator. The calls go directly to kube-apiserver, and not
through the links that tests let fail."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import yaml

from deploy.local.cluster import Cluster


class Kubernetes:
    """Client of kube-apiserver, safe to use from any thread. Raises httpx.HTTPError if a call fails or
    kube-apiserver answers with an error status."""

    def __init__(self, cluster: Cluster) -> None:
        kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
        ca = kubeconfig["clusters"][0]["cluster"]["certificate-authority"]
        self._client = httpx.Client(
            base_url=cluster.api_server_url,
            headers={"Authorization": f"Bearer {kubeconfig['users'][0]['user']['token']}"},
            verify=ssl.create_default_context(cafile=ca),
            timeout=10.0,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
        )

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        merge = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        answer = self._client.request(method, path, json=body, headers=merge)
        return dict(answer.raise_for_status().json())

    def watch(self, path: str, version: str, seconds: int) -> Iterator[str]:
        """Yields the lines of a watch. kube-apiserver ends the watch after `seconds`. If the version is
        too old, yields an event of type ERROR."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        with self._client.stream("GET", path, params=query) as answer:
            if answer.status_code == httpx.codes.GONE:
                yield '{"type": "ERROR", "object": {}}'
                return
            answer.raise_for_status()
            yield from answer.iter_lines()

    def close(self) -> None:
        self._client.close()
