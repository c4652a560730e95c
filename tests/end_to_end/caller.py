"""A client of kube-apiserver with a given account."""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx

from deploy.local.cluster import Cluster
from deploy.local.kubernetes.config import admin_token
from deploy.local.layout import Layout
from tests.end_to_end.agent_account import authority


class Caller:
    """Calls kube-apiserver with an account. Patches are strategic merge patches."""

    def __init__(self, cluster: Cluster, token: str = "", user: str = "", group: str = "") -> None:
        """`token` is the token of the account. Without a token, the administrator impersonates
        `user`."""
        token = token or admin_token(Layout(cluster.directory))
        impersonates = {"Impersonate-User": user, "Impersonate-Group": group}
        headers = {name: value for name, value in impersonates.items() if value}
        self._client = httpx.Client(
            base_url=cluster.api_server_url,
            headers={"Authorization": f"Bearer {token}"} | headers,
            verify=ssl.create_default_context(cafile=authority(cluster)),
            timeout=20,
        )

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        kind = "strategic-merge-patch+json" if method == "PATCH" else "json"
        headers = {"Content-Type": f"application/{kind}"}
        return self._client.request(method, path, content=json.dumps(body), headers=headers)

    def patch(self, node: str, patch: Any, subresource: str = "/status") -> httpx.Response:
        return self.ask("PATCH", f"/api/v1/nodes/{node}{subresource}", patch)

    def read(self, node: str) -> dict[str, Any]:
        """Returns a Node without the metadata that each write changes."""
        told = dict(self.ask("GET", f"/api/v1/nodes/{node}").raise_for_status().json())
        metadata = told["metadata"]
        return told | {"metadata": {key: metadata.get(key) for key in ("labels", "annotations")}}

    def may(self, namespace: str) -> set[tuple[str, str]]:
        """Returns the allowed resources and verbs in a namespace."""
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        answer = self.ask("POST", path, review | {"spec": {"namespace": namespace}})
        return {
            (resource, verb)
            for rule in answer.raise_for_status().json()["status"]["resourceRules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    def close(self) -> None:
        self._client.close()
