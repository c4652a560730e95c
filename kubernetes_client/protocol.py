"""The calls to a kube-apiserver: the interface of `rest.KubernetesRest` and
`in_memory.InMemoryKubernetes`.

A manifest is the content of kube-apiserver's JSON, unchanged. Every method may raise `Unavailable` and
`Rejected` (see `errors`); the docstring of a method names its other errors. Every method may be called
again after any error: a repeated write either raises Conflict, or changes nothing more.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

Manifest = Mapping[str, Any]


class Right(NamedTuple):
    """A right of an account, as in a rule of RBAC."""

    verb: str
    resource: str
    """The plural, with the subresource: "pods", "pods/status"."""
    group: str = ""
    namespace: str = ""
    """"" for all namespaces, and for objects without a namespace."""
    name: str = ""
    """"" for all objects."""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{named}" + (f" in {self.namespace}" if self.namespace else "")


class Kubernetes(Protocol):
    """A kube-apiserver, behind any adapter.

    A patch is a strategic merge patch. If the metadata of a patch has a `uid` or `resourceVersion`, and
    the object has another value, the call raises Conflict. A patch without changes makes no new version.
    """

    # Pods

    async def read_pod(self, namespace: str, name: str) -> Manifest | None:
        """Returns a Pod; None if there is no Pod."""

    async def patch_pod(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Patches a Pod's metadata and spec, but not its status; returns the Pod. Raises Conflict,
        NotFound, and Rejected for a change of a fixed part of the spec."""

    async def patch_pod_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Patches a Pod's metadata and status, but not its spec; returns the Pod. Raises Conflict and
        NotFound."""

    async def delete_pod(self, namespace: str, name: str, preconditions: Manifest, grace_s: int) -> None:
        """Deletes a Pod with a grace period in seconds. Succeeds if the Pod is already gone. Raises
        Conflict for another `uid` or `resourceVersion` in `preconditions`.

        A Pod without a Node, or a Pod that has ended, is gone at once. The grace period counts from the
        first deletion. A second deletion may shorten the grace period, but never makes the period longer
        (rest.BeforeDelete).
        """

    async def bind_pod(self, namespace: str, name: str, node: str, metadata: Manifest) -> None:
        """Binds a Pod to a Node, and adds the annotations of `metadata` to the Pod's annotations. Raises
        NotFound. Raises Conflict for another `uid` or `resourceVersion` in `metadata`, and for a Pod
        that is already bound, gated or being deleted."""

    async def create_pod(self, namespace: str, pod: Manifest) -> Manifest:
        """Creates a Pod; returns the Pod. Raises Conflict for an existing name, and Rejected for a Pod
        that kube-apiserver or a policy does not accept."""

    async def create_event(self, namespace: str, event: Manifest) -> None:
        """Creates an Event. Leaves an existing Event of that name as it is."""

    async def read_pod_group(self, version: str, namespace: str, name: str) -> Manifest | None:
        """Returns a PodGroup of a version of an API group ("scheduling.k8s.io/v1beta1"). Returns None if
        there is no PodGroup, or if the server does not serve the version."""

    # Nodes

    async def read_node(self, name: str) -> Manifest:
        """Returns a Node. Raises NotFound."""

    async def patch_node(self, name: str, patch: Manifest) -> None:
        """Patches a Node's metadata and spec; a list of taints replaces all taints. Raises Conflict and
        NotFound."""

    async def patch_node_status(self, name: str, patch: Manifest) -> None:
        """Patches a Node's metadata and status. Raises Conflict and NotFound."""

    async def cluster_uid(self) -> str:
        """Returns the uid of the namespace kube-system. This namespace exists as long as the cluster."""

    # ControllerRevisions: data under a name. The data never change.

    async def read_revision(self, namespace: str, name: str) -> Manifest | None:
        """Returns a ControllerRevision; None if there is no ControllerRevision."""

    async def revisions(self, namespace: str) -> Sequence[Manifest]:
        """Returns all ControllerRevisions of a namespace."""

    async def create_revision(self, namespace: str, revision: Manifest) -> None:
        """Creates a ControllerRevision. Leaves an existing ControllerRevision of that name as it is."""

    async def delete_revision(self, namespace: str, name: str) -> None:
        """Deletes a ControllerRevision. Succeeds if the ControllerRevision is already gone."""

    # Leases

    async def read_lease(self, namespace: str, name: str) -> Manifest | None:
        """Returns a Lease; None if there is no Lease."""

    async def create_lease(self, namespace: str, lease: Manifest) -> Manifest:
        """Creates a Lease; returns the Lease with its version. Raises Conflict for an existing name."""

    async def replace_lease(self, namespace: str, name: str, lease: Manifest) -> Manifest:
        """Replaces a Lease; returns the Lease with its new version. Creates the Lease if the Lease is
        gone. Raises Conflict if the version in `lease` is not current."""

    # Secrets and ConfigMaps

    async def read_secret(self, namespace: str, name: str) -> Manifest | None:
        """Returns a Secret; None if there is no Secret."""

    async def write_secret(self, secret: Manifest) -> None:
        """Creates a Secret. If `secret` has a `resourceVersion`, replaces the Secret instead. Raises
        Conflict if the new name already exists, or if the version to replace is not current. Raises
        NotFound if the Secret to replace is gone."""

    async def read_config_map(self, namespace: str, name: str) -> Manifest | None:
        """Returns a ConfigMap; None if there is no ConfigMap."""

    async def write_config_map(self, config_map: Manifest) -> None:
        """Creates or replaces a ConfigMap, as `write_secret` does a Secret."""

    # Webhooks and Services

    async def trust(self, configuration: str, ca: bytes) -> None:
        """Makes kube-apiserver trust a CA (one certificate, PEM) in every webhook of the mutating and
        validating configurations with this name. kube-apiserver also still trusts the previous CA,
        because replicas may serve with a certificate of the previous CA for a while. Skips missing
        configurations."""

    async def call_service(self, namespace: str, service: str, port: int, path: str) -> int:
        """Makes kube-apiserver send a GET over HTTPS to a port of a Service (services/proxy). This is
        like a call to a webhook, but kube-apiserver does not check the certificate. Returns the HTTP
        status of the answer. Raises NotFound if the Service does not exist. If there is no answer,
        raises Unavailable with kube-apiserver's message."""

    # The server, and the account of the calls: every account may make these calls

    async def version(self) -> str:
        """Returns the server's release: "v1.37.2"."""

    async def kinds(self, group_version: str) -> frozenset[str]:
        """Returns the kinds that the server has in a version of an API group ("apps/v1"). If the server
        does not serve the version, the result is empty."""

    async def account(self) -> Manifest:
        """Returns the account of the calls, as the server knows it (authentication.k8s.io UserInfo):
        `username`, `groups`, and the token's claims in `extra`."""

    async def denied(self, asked: Iterable[Right]) -> tuple[Right, ...]:
        """Returns the rights that the account lacks, by all authorizers of the server."""

    # Lists and watches. A kind is a resource's plural: "pods", "nodes", "events",
    # "persistentvolumeclaims", "persistentvolumes", "storageclasses", and the kinds of admission.
    # "resourceclaims" is a kind as soon as `serves` has found this kind.

    async def serves(self, kind: str) -> bool:
        """Returns True if the server has objects of a kind. If the version of the kind depends on the
        server, finds the version for later calls."""

    async def list(self, kind: str, field_selector: str | None) -> Manifest:
        """Returns all objects of a kind that a field selector selects, from all namespaces. `items` has
        the objects by namespace and name, without `apiVersion` and `kind`. `metadata` has the
        `resourceVersion`."""

    def pages(self, kind: str, field_selector: str | None) -> AsyncIterator[Manifest]:
        """Yields the result of `list` in parts. All parts have the same resourceVersion. Between two
        parts, other work gets a turn. Raises Expired if the server no longer has the resourceVersion."""

    async def latest_version(self, kind: str) -> str:
        """Returns the resourceVersion of a list of a kind, from a list of at most one object. Versions
        are numbers, and a later version is larger, unless the server's data was restored from a
        backup."""

    def watch(
        self, kind: str, field_selector: str | None, resource_version: str, seconds: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yields the changes of the selected objects of a kind after the version of a list, for at most
        `seconds`. The changes are lines of JSON, in pieces of any size. With the version "", the changes
        begin with all objects.

        Each line has a `type` and an `object`. ADDED, MODIFIED and DELETED have a version of an object.
        If a change makes the selector no longer select an object, the type is DELETED. DELETED then has
        the object's previous version, with the resourceVersion of the change. For a Pod that a deletion
        removes at once, MODIFIED comes before DELETED. BOOKMARK comes about once a minute and before the
        end, if the kind has changed since the watch was opened. BOOKMARK has the resourceVersion of the
        kind's last change, even if the changed object is not selected. Kinds outside of the server's
        watch cache, such as Events, have no bookmarks. ERROR has a Status; `code` is 410 for an expired
        resourceVersion. Raises Expired.
        """

    async def aclose(self) -> None:
        """Closes all connections."""
