"""Finds the Nodes that the claims of a Pod allow, so that the extender requests no job on other Nodes. A
claim is a PersistentVolumeClaim or a ResourceClaim.

kube-scheduler rejects Nodes by the same rules before kube-scheduler calls an extender: in PreFilter of
the plugins VolumeBinding, VolumeZone and DynamicResources. A claim may be bound to a volume with a node
affinity, or allocated to devices of certain Nodes. In both cases, the Pod cannot use other Nodes.

This module ignores ServiceAccounts and image pull secrets, because kube-scheduler binds a Pod even if
its ServiceAccount or secret is missing. This module also ignores ReadWriteOncePod, allowedTopologies and
the labels of volumes. For these rules, kube-scheduler rejects the wrong Nodes, and the extender's next
attempt requests other Nodes (`kept_back`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, Self, TypeVar

from extender.explain.cause import Cause, Kind
from extender.pod_request.limits import MOST_CLAIMS
from kubernetes_client.protocol import Manifest

VOLUME_CLAIM = "PersistentVolumeClaim"
RESOURCE_CLAIM = "ResourceClaim"

_BOUND = "pv.kubernetes.io/bind-completed"
_CLASS = "volume.beta.kubernetes.io/storage-class"  # overrides spec.storageClassName
_SELECTED_NODE = "volume.kubernetes.io/selected-node"  # by kube-scheduler's VolumeBinding


class Key(NamedTuple):
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Need:
    """A claim that a Pod refers to. If a template makes the claim, the name is empty until the claim
    exists."""

    key: Key
    entry: str  # name of the volume, or of the entry in spec.resourceClaims
    own: bool = False  # the claim must have been created for this Pod


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """The fields of a PersistentVolumeClaim that matter here."""

    volume: str  # the PersistentVolume, bound or to be bound
    bound: bool
    storage_class: str
    lost: bool
    deleting: bool
    owner: str
    selected_node: str = ""  # kube-scheduler has asked for a volume on this Node

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Returns the claim of a manifest."""
        metadata, spec = manifest["metadata"], manifest.get("spec") or {}
        annotations, volume = metadata.get("annotations") or {}, spec.get("volumeName") or ""
        return cls(
            volume=volume,
            bound=bool(volume) and _BOUND in annotations,
            storage_class=annotations.get(_CLASS) or spec.get("storageClassName") or "",
            lost=(manifest.get("status") or {}).get("phase") == "Lost",
            deleting="deletionTimestamp" in metadata,
            owner=_controller(metadata),
            selected_node=annotations.get(_SELECTED_NODE) or "",
        )


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """The fields of a ResourceClaim that matter here."""

    deleting: bool
    owner: str
    nodes: tuple[Manifest, ...] | None
    """Node selector terms of the allocated devices. None if every Node is possible, or if the devices
    are not yet known."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Returns the claim of a manifest, of any version of resource.k8s.io."""
        metadata = manifest["metadata"]
        allocation = (manifest.get("status") or {}).get("allocation") or {}
        nodes = _terms(allocation.get("nodeSelector"))
        return cls("deletionTimestamp" in metadata, _controller(metadata), nodes)


@dataclass(frozen=True, slots=True)
class Volume:
    """The fields of a PersistentVolume that matter here."""

    claim: Key
    nodes: tuple[Manifest, ...] | None

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Returns the volume of a manifest."""
        spec = manifest.get("spec") or {}
        claim = spec.get("claimRef") or {}
        names = claim.get("namespace") or "", claim.get("name") or ""
        required = (spec.get("nodeAffinity") or {}).get("required")
        return cls(Key(VOLUME_CLAIM, *names), _terms(required))


Claim = TypeVar("Claim", VolumeClaim, ResourceClaim)


def waits_for_consumer(manifest: Manifest) -> bool:
    """Returns True if the claims of a StorageClass are bound only after the choice of a Pod's Node."""
    return manifest.get("volumeBindingMode") == "WaitForFirstConsumer"


class Verdict(NamedTuple):
    """The consequences of a Pod's claims for the choice of a Node."""

    obstacle: Cause | None = None  # why no Node can take the Pod
    nodes: tuple[tuple[Manifest, ...], ...] = ()
    """For each claim that is tied to certain Nodes: the node selector terms, of which one must match."""
    provisioned_on: str | None = None
    """The Node on which a volume is being created. kube-scheduler binds the Pod only to this Node, and
    only after the volume exists."""


NOTHING = Verdict()


@dataclass
class Claims:
    """All claims, volumes and StorageClasses of the cluster. A field is None if the extender cannot read
    objects of this kind. In this case, objects of this kind exclude no Nodes."""

    volume_claims: dict[Key, VolumeClaim] | None = None
    volumes: dict[str, Volume] | None = None
    waits: dict[str, bool] | None = None  # by StorageClass: the result of `waits_for_consumer`
    resource_claims: dict[Key, ResourceClaim] | None = None

    def verdict(self, uid: str, needs: tuple[Need, ...]) -> Verdict:
        """Returns the verdict about the Pod with this uid. `needs` are the Pod's claims."""
        nodes, provisioned_on = list[tuple[Manifest, ...]](), None
        for need in needs:
            of_volumes = need.key.kind == VOLUME_CLAIM
            found = (self._of_volumes if of_volumes else self._of_resources)(uid, need)
            if found.obstacle is not None:
                return Verdict(found.obstacle)
            nodes += found.nodes
            provisioned_on = found.provisioned_on or provisioned_on
        return Verdict(None, tuple(nodes), provisioned_on)

    def _of_volumes(self, uid: str, need: Need) -> Verdict:
        claim, wrong = _look_up(self.volume_claims, need, uid)
        if wrong is not None or claim is None:
            return Verdict(wrong)
        if claim.lost:
            return Verdict(Cause.of(Kind.CLAIM_LOST, claim=_named(need), volume=claim.volume))
        if not claim.bound:
            wrong = self._of_unbound(need, claim)
            return Verdict(wrong) if wrong or not claim.selected_node else _made_on(claim.selected_node)
        if self.volumes is None:
            return Verdict()
        volume = self.volumes.get(claim.volume)
        if volume is None:
            return Verdict(Cause.of(Kind.VOLUME_MISSING, claim=_named(need), volume=claim.volume))
        return Verdict(None, () if volume.nodes is None else (volume.nodes,))

    def _of_unbound(self, need: Need, claim: VolumeClaim) -> Cause | None:
        """Returns the problem of an unbound claim. Returns None if the claim is bound only after the
        choice of the Pod's Node. A claim that names a volume does not wait for this choice."""
        if self.waits is None or (not claim.volume and self.waits.get(claim.storage_class)):
            return None
        why = Cause.of(Kind.CLASS_WITHOUT_WAIT, name=claim.storage_class)
        if claim.volume:
            why = Cause.of(Kind.VOLUME_NOT_BOUND, volume=claim.volume)
        elif not claim.storage_class:
            why = Cause.of(Kind.NO_CLASS)
        elif claim.storage_class not in self.waits:
            why = Cause.of(Kind.CLASS_MISSING, name=claim.storage_class)
        return Cause.of(Kind.CLAIM_UNBOUND, claim=_named(need), why=why)

    def _of_resources(self, uid: str, need: Need) -> Verdict:
        if not need.key.name:
            return Verdict(Cause.of(Kind.CLAIM_NOT_CREATED, claim=_named(need)))
        claim, wrong = _look_up(self.resource_claims, need, uid)
        nodes = () if claim is None or claim.nodes is None else (claim.nodes,)
        return Verdict(wrong, nodes)


def needs_of(manifest: Manifest) -> tuple[Need, ...]:
    """Returns the claims of a Pod, at most MOST_CLAIMS. No input of a user raises an error."""
    spec = manifest["spec"]
    if not spec.get("volumes") and not spec.get("resourceClaims"):
        return ()
    needs = chain(_volume_needs(manifest["metadata"], spec), _resource_needs(manifest))
    return tuple(islice(needs, MOST_CLAIMS))


def _volume_needs(metadata: Manifest, spec: Manifest) -> Iterator[Need]:
    """Yields the claims of volumes. A generic ephemeral volume's claim is named after Pod and volume."""
    namespace = metadata.get("namespace") or "default"
    for volume in spec.get("volumes") or ():
        if claimed := volume.get("persistentVolumeClaim"):
            name = claimed.get("claimName") or ""
            yield Need(Key(VOLUME_CLAIM, namespace, name), volume["name"])
        elif "ephemeral" in volume:
            name = f"{metadata.get('name')}-{volume['name']}"
            yield Need(Key(VOLUME_CLAIM, namespace, name), volume["name"], own=True)


def _resource_needs(manifest: Manifest) -> Iterator[Need]:
    """Yields the ResourceClaims that a Pod needs. If a template makes a claim, the Pod's status has the
    name of the claim. If the status has null instead of a name, the Pod needs no claim."""
    metadata, entries = manifest["metadata"], manifest["spec"].get("resourceClaims") or ()
    statuses = (manifest.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {each["name"]: each.get("resourceClaimName") for each in statuses}
    namespace = metadata.get("namespace") or "default"
    for entry in entries:
        name, own = entry.get("resourceClaimName"), "resourceClaimTemplateName" in entry
        if own:
            name = made.get(entry["name"], "")
        if name is not None:
            yield Need(Key(RESOURCE_CLAIM, namespace, name), entry["name"], own)


def _look_up(
    claims: Mapping[Key, Claim] | None, need: Need, uid: str
) -> tuple[Claim | None, Cause | None]:
    """Returns the claim and the problem of the claim, for both kinds of claims. The claim is None if the
    claim is not known. The problem is None if the claim has no problem."""
    claim = None if claims is None else claims.get(need.key)
    if claim is None:
        return None, None if claims is None else Cause.of(Kind.CLAIM_MISSING, claim=_named(need))
    if claim.deleting:
        return claim, Cause.of(Kind.CLAIM_DELETED, claim=_named(need))
    if need.own and claim.owner != uid:
        return claim, Cause.of(Kind.CLAIM_OF_OTHER_POD, claim=_named(need))
    return claim, None


def _made_on(node: str) -> Verdict:
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    return Verdict(None, (({"matchFields": [named]},),), node)


def _named(need: Need) -> Cause:
    return Cause.of(Kind.CLAIM, kind=need.key.kind, name=need.key.name, entry=need.entry)


def _controller(metadata: Manifest) -> str:
    """Returns the uid of the controller of an object."""
    owners = metadata.get("ownerReferences") or ()
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _terms(selector: Manifest | None) -> tuple[Manifest, ...] | None:
    return None if not selector else tuple(selector.get("nodeSelectorTerms") or ())
