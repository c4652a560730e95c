"""The calls to a kube-apiserver: the one interface of `rest.KubernetesRest` and
`in_memory.InMemoryKubernetes`.

Objects are passed as manifests: the content of kube-apiserver's JSON, unchanged. Every method may raise
`Unavailable` and `Rejected` (see `errors`); a method names the other errors that it raises. Every
method may be called again after any error: its write is bound to an object's version, or is the same
when it is repeated.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

Manifest = Mapping[str, Any]


class Right(NamedTuple):
    """One thing that an account may do, as in a rule of RBAC."""

    verb: str
    resource: str
    """The plural, with the subresource: "pods", "pods/status"."""
    group: str = ""
    namespace: str = ""
    """"": in all of them, or where there are none."""
    name: str = ""
    """"": to all objects."""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{named}" + (f" in {self.namespace}" if self.namespace else "")


class Kubernetes(Protocol):
    """A kube-apiserver, behind any adapter.

    A patch is a strategic merge patch. A `uid` or `resourceVersion` in its metadata that is not the
    object's raises Conflict; a patch that changes nothing makes no new version.
    """

    # Pods

    async def read_pod(self, namespace: str, name: str) -> Manifest | None:
        """A Pod as it is now, None where there is none."""

    async def patch_pod(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Patch a Pod's metadata and spec; returns the Pod. Its status stays as it is. Raises Conflict,
        NotFound, and Rejected where the patch changes a part of the spec that cannot be changed."""

    async def patch_pod_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Patch a Pod's metadata and status; returns the Pod. Its spec stays as it is. Raises Conflict
        and NotFound."""

    async def delete_pod(self, namespace: str, name: str, preconditions: Manifest, grace_s: int) -> None:
        """Delete a Pod with this grace, in seconds. A Pod that is gone is success.

        Conflict: its `uid` or, where one is given, `resourceVersion` is not that of `preconditions`. A
        Pod without a Node, or one that has ended, is gone at once. The grace of a Pod that is being
        deleted is shortened to this one, counted from when its deletion began, and never made longer
        (rest.BeforeDelete).
        """

    async def bind_pod(self, namespace: str, name: str, node: str, metadata: Manifest) -> None:
        """Bind a Pod to a Node, and add the annotations of `metadata` to the Pod's.

        Conflict: its `uid` or `resourceVersion` is not that of `metadata`, or it is bound, gated or
        being deleted. Raises NotFound.
        """

    async def create_pod(self, namespace: str, pod: Manifest) -> Manifest:
        """Create a Pod; returns it. Conflict: there is one of that name. Rejected: it is not one that
        kube-apiserver or a policy takes."""

    async def create_event(self, namespace: str, event: Manifest) -> None:
        """Create an Event. Where an Event of that name exists already, the call succeeds and leaves it
        as it is."""

    # Nodes

    async def read_node(self, name: str) -> Manifest:
        """A Node as it is now. Raises NotFound."""

    async def patch_node(self, name: str, patch: Manifest) -> None:
        """Patch a Node's metadata and spec. A list of taints replaces all of them. Raises Conflict and
        NotFound."""

    async def patch_node_status(self, name: str, patch: Manifest) -> None:
        """Patch a Node's metadata and status. Raises Conflict and NotFound."""

    async def cluster_uid(self) -> str:
        """The identity of this cluster: the uid of a namespace that lives as long as the cluster."""

    # ControllerRevisions: data under a name, which never changes

    async def read_revision(self, namespace: str, name: str) -> Manifest | None:
        """A ControllerRevision, None where there is none."""

    async def revisions(self, namespace: str) -> Sequence[Manifest]:
        """All ControllerRevisions of a namespace."""

    async def create_revision(self, namespace: str, revision: Manifest) -> None:
        """Create a ControllerRevision. Where one of that name exists already, the call succeeds and
        leaves it as it is."""

    async def delete_revision(self, namespace: str, name: str) -> None:
        """Delete a ControllerRevision. One that is gone is success."""

    # Leases

    async def read_lease(self, namespace: str, name: str) -> Manifest | None:
        """A Lease as it is now, None where there is none."""

    async def create_lease(self, namespace: str, lease: Manifest) -> Manifest:
        """Create a Lease; returns it with its version. Conflict: there is one already."""

    async def replace_lease(self, namespace: str, name: str, lease: Manifest) -> Manifest:
        """Replace the version of a Lease that `lease` carries; returns it with its new version. A Lease
        that is gone is created anew. Conflict: that version is not current."""

    # The webhooks' certificate

    async def read_secret(self, namespace: str, name: str) -> Manifest | None:
        """A Secret as it is now, None where there is none."""

    async def write_secret(self, secret: Manifest) -> None:
        """Create a Secret or, where it carries a `resourceVersion`, replace that version of it.
        Conflict: there is one already, or that version is not current. NotFound: it is gone."""

    # ConfigMaps

    async def read_config_map(self, namespace: str, name: str) -> Manifest | None:
        """A ConfigMap as it is now, None where there is none."""

    async def write_config_map(self, config_map: Manifest) -> None:
        """Create a ConfigMap or, where it carries a `resourceVersion`, replace that version of it.
        Conflict: there is one already, or that version is not current. NotFound: it is gone."""

    # Trust

    async def trust(self, configuration: str, authority: bytes) -> None:
        """Have kube-apiserver trust an authority (one certificate, PEM) in every webhook of the
        configurations of a name, mutating and validating, and the previous authority as well, since
        replicas may serve with its certificate for a while. Configurations that do not exist are
        skipped."""

    # Services

    async def call_service(self, namespace: str, service: str, port: int, path: str) -> int:
        """Has kube-apiserver send a GET over HTTPS to a port of a Service, as it calls webhooks, except
        that kube-apiserver does not look at the certificate (services/proxy). Returns the HTTP status
        of the answer. Raises NotFound if the Service does not exist, and Unavailable with
        kube-apiserver's words if nothing answers."""

    # The server, and the account that asks: every account may ask this

    async def version(self) -> str:
        """The server's release: "v1.37.2"."""

    async def kinds(self, group_version: str) -> frozenset[str]:
        """The kinds that the server has in a version of an API group ("apps/v1"); none where it does not
        serve that."""

    async def account(self) -> Manifest:
        """The account that asks, as the server knows it (authentication.k8s.io UserInfo): `username`,
        `groups`, and in `extra` what its token says."""

    async def denied(self, asked: Iterable[Right]) -> tuple[Right, ...]:
        """Returns the rights that the account lacks, by all authorizers of the server."""

    # Lists and watches. A kind is a resource's plural: "pods", "nodes", "events",
    # "persistentvolumeclaims", "persistentvolumes", "storageclasses", those of admission and, once
    # `serves` has found it, "resourceclaims".

    async def serves(self, kind: str) -> bool:
        """Whether the API server has objects of a kind. Finds out in which version they are to be asked
        for, where that depends on the server."""

    async def list(self, kind: str, field_selector: str | None) -> Manifest:
        """All objects of a kind that a field selector selects, of all namespaces: `items`, by namespace
        and name, each without `apiVersion` and `kind`; and `metadata` with the list's
        `resourceVersion`."""

    def pages(self, kind: str, field_selector: str | None) -> AsyncIterator[Manifest]:
        """The same list in parts, since it may be long: all other work gets its turns between them. All
        parts have one resourceVersion. Expired: the API server has lost it meanwhile."""

    async def latest_version(self, kind: str) -> str:
        """The resourceVersion that a list of a kind has now, at the cost of one object. Versions are
        numbers, and a later version is larger, unless the server's data was restored from a backup."""

    def watch(
        self, kind: str, field_selector: str | None, resource_version: str, seconds: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """What happens to the objects of a kind that a field selector selects, after the version of a
        list or (where that is "") beginning with all that are there, for at most `seconds`: lines of
        JSON, in pieces of any size.

        Each line has a `type` and an `object`. ADDED, MODIFIED and DELETED tell an object's version; an
        object that is selected no longer is DELETED, in the version before and with the
        resourceVersion of the change. A Pod that is gone at once is MODIFIED before it is DELETED.
        BOOKMARK tells the resourceVersion of the last change of that kind, selected or not, about once a
        minute and before the end, if one came since the watch was opened. Kinds that the server does not
        keep in its watch cache have no bookmarks: Events never have. ERROR tells a Status: `code` 410
        where the resourceVersion has expired. Raises Expired.
        """

    async def aclose(self) -> None:
        """Close all connections."""
