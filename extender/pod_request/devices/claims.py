"""The claims of a Pod, and the Nodes where they let it be bound, so that no job is requested in vain.

The rules are those by which kube-scheduler rejects every Node before it calls an extender: PreFilter of
its plugins VolumeBinding, VolumeZone and DynamicResources. Where a claim is bound to a volume with a
node affinity, or allocated to devices of certain Nodes, the other Nodes are closed to the Pod.

ServiceAccounts and image pull secrets are not considered. kube-scheduler binds a Pod without them, and
the kubelet then waits for them; kube-apiserver admits no Pod whose ServiceAccount does not exist, and
where that admission is switched off there are none. Neither are ReadWriteOncePod, allowedTopologies and
the labels of volumes: kube-scheduler rejects the Nodes that these close, and the next attempt asks for
other Nodes (`kept_back`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, Self, TypeVar

from extender.pod_request.limits import MOST_CLAIMS
from kubernetes_client.protocol import Manifest

Object = TypeVar("Object")

VOLUME_CLAIM = "PersistentVolumeClaim"
RESOURCE_CLAIM = "ResourceClaim"

_BOUND = "pv.kubernetes.io/bind-completed"
_CLASS = "volume.beta.kubernetes.io/storage-class"  # which comes before spec.storageClassName
_FIRST_CONSUMER = "WaitForFirstConsumer"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"  # which kube-scheduler's VolumeBinding writes


class Key(NamedTuple):
    """The key of a claim: its kind, namespace and name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Need:
    """A claim that a Pod refers to. It has no name until it is created."""

    key: Key
    entry: str
    """The volume, or the entry of spec.resourceClaims, that needs the claim."""
    own: bool = False
    """Whether the claim must have been made for this Pod."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim, as far as it matters here."""

    volume: str
    """The PersistentVolume that it is bound to, or is to be bound to."""
    bound: bool
    storage_class: str
    lost: bool
    deleting: bool
    owner: str
    selected_node: str = ""
    """The Node for which kube-scheduler has asked for a volume."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Returns a claim from its manifest."""
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
    """A ResourceClaim, as far as it matters here."""

    deleting: bool
    owner: str
    nodes: tuple[Manifest, ...] | None
    """Node selector terms for the place of the allocated devices; None: anywhere, or not known yet."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Returns a claim from its manifest, of any version of resource.k8s.io."""
        metadata = manifest["metadata"]
        allocation = (manifest.get("status") or {}).get("allocation") or {}
        nodes = _terms(allocation.get("nodeSelector"))
        return cls("deletionTimestamp" in metadata, _controller(metadata), nodes)


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume, as far as it matters here."""

    claim: Key
    nodes: tuple[Manifest, ...] | None

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Returns a volume from its manifest."""
        spec = manifest.get("spec") or {}
        claim = spec.get("claimRef") or {}
        names = claim.get("namespace") or "", claim.get("name") or ""
        required = (spec.get("nodeAffinity") or {}).get("required")
        return cls(Key(VOLUME_CLAIM, *names), _terms(required))


def waits_for_consumer(manifest: Manifest) -> bool:
    """Tells whether the claims of a StorageClass are bound only after a Pod's Node is chosen."""
    return manifest.get("volumeBindingMode") == _FIRST_CONSUMER


class Verdict(NamedTuple):
    """What the claims of a Pod mean for it."""

    obstacle: str | None = None
    """Why it can be bound nowhere, in words for its author."""
    nodes: tuple[tuple[Manifest, ...], ...] = ()
    """For each claim that has a place: node selector terms, any of which may match."""
    provisioned_on: str | None = None
    """The Node where a volume is being made for a claim: until the volume exists, kube-scheduler binds
    the Pod nowhere, and afterwards only there."""


NOTHING = Verdict()


@dataclass
class Claims:
    """All claims, and the objects that they refer to. None: a kind cannot be read, and nothing is
    concluded from it."""

    volume_claims: dict[Key, VolumeClaim] | None = None
    volumes: dict[str, Volume] | None = None
    waits: dict[str, bool] | None = None
    """The StorageClasses, and whether their claims wait for a Pod."""
    resource_claims: dict[Key, ResourceClaim] | None = None

    def verdict(self, uid: str, needs: tuple[Need, ...]) -> Verdict:
        """Returns what the claims mean for the Pod of this uid."""
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
        known, claim = _find(self.volume_claims, need)
        words = _wrong(need, uid, claim) if known else None
        if words is not None or claim is None:
            return Verdict(words)
        if claim.lost:
            what = f'has lost its PersistentVolume "{claim.volume}"'
            return Verdict(_until(need, what, "is replaced"))
        if not claim.bound:
            words = self._of_unbound(need, claim)
            return Verdict(words) if words or not claim.selected_node else _made_on(claim.selected_node)
        if self.volumes is None:
            return Verdict()
        volume = self.volumes.get(claim.volume)
        if volume is None:
            words = _until(need, f'is bound to PersistentVolume "{claim.volume}", not found', "exists")
            return Verdict(words)
        return Verdict(None, () if volume.nodes is None else (volume.nodes,))

    def _of_unbound(self, need: Need, claim: VolumeClaim) -> str | None:
        """Returns the problem of an unbound claim, None where it is bound once the Pod has a Node. A
        claim that names a volume does not wait for a Pod, with any class."""
        if self.waits is None or (not claim.volume and self.waits.get(claim.storage_class)):
            return None
        why = f'its StorageClass "{claim.storage_class}" does not wait for a Pod'
        if claim.volume:
            why = f'it is to get PersistentVolume "{claim.volume}"'
        elif not claim.storage_class:
            why = "it has no StorageClass"
        elif claim.storage_class not in self.waits:
            why = f'its StorageClass "{claim.storage_class}" does not exist'
        return _until(need, f"is not bound ({why})", "is bound")

    def _of_resources(self, uid: str, need: Need) -> Verdict:
        if not need.key.name:
            return Verdict(_until(need, "has not been created", "exists"))
        known, claim = _find(self.resource_claims, need)
        words = _wrong(need, uid, claim) if known else None
        nodes = () if claim is None or claim.nodes is None else (claim.nodes,)
        return Verdict(words, nodes)


def needs_of(manifest: Manifest) -> tuple[Need, ...]:
    """Returns the claims that a Pod refers to, as many as it may. Never raises on what a user can
    write."""
    spec = manifest["spec"]
    if not spec.get("volumes") and not spec.get("resourceClaims"):
        return ()
    needs = chain(_volume_needs(manifest["metadata"], spec), _resource_needs(manifest))
    return tuple(islice(needs, MOST_CLAIMS))


def _volume_needs(metadata: Manifest, spec: Manifest) -> Iterator[Need]:
    """A generic ephemeral volume's claim is named after the Pod and the volume."""
    namespace = metadata.get("namespace") or "default"
    for volume in spec.get("volumes") or ():
        if claimed := volume.get("persistentVolumeClaim"):
            name = claimed.get("claimName") or ""
            yield Need(Key(VOLUME_CLAIM, namespace, name), volume["name"])
        elif "ephemeral" in volume:
            name = f"{metadata.get('name')}-{volume['name']}"
            yield Need(Key(VOLUME_CLAIM, namespace, name), volume["name"], own=True)


def _resource_needs(manifest: Manifest) -> Iterator[Need]:
    """Yields the ResourceClaims that a Pod needs. The Pod's status names the claim made from a
    template; null there: none is needed."""
    metadata, entries = manifest["metadata"], manifest["spec"].get("resourceClaims") or ()
    told = (manifest.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {each["name"]: each.get("resourceClaimName") for each in told}
    namespace = metadata.get("namespace") or "default"
    for entry in entries:
        name, own = entry.get("resourceClaimName"), "resourceClaimTemplateName" in entry
        if own:
            name = made.get(entry["name"], "")
        if name is not None:
            yield Need(Key(RESOURCE_CLAIM, namespace, name), entry["name"], own)


def _find(among: Mapping[Key, Object] | None, need: Need) -> tuple[bool, Object | None]:
    """Returns whether claims of that kind are known, and this one."""
    return among is not None, None if among is None else among.get(need.key)


def _wrong(need: Need, uid: str, claim: VolumeClaim | ResourceClaim | None) -> str | None:
    """Returns what is wrong with any kind of claim, None where nothing is."""
    if claim is None:
        return _until(need, "not found", "exists")
    if claim.deleting:
        return _until(need, "is being deleted", "is replaced")
    if need.own and claim.owner != uid:
        return _until(need, "was not created for this Pod", "is replaced")
    return None


def _made_on(node: str) -> Verdict:
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    return Verdict(None, (({"matchFields": [named]},),), node)


def _until(need: Need, what: str, until: str) -> str:
    name = f'"{need.key.name}"' if need.key.name else f'for "{need.entry}"'
    return f"{need.key.kind} {name} {what}; no job is asked for until it {until}"


def _controller(metadata: Manifest) -> str:
    """Returns the uid of the object that made another and manages it."""
    owners = metadata.get("ownerReferences") or ()
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _terms(selector: Manifest | None) -> tuple[Manifest, ...] | None:
    return None if not selector else tuple(selector.get("nodeSelectorTerms") or ())
