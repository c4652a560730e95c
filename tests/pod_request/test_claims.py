"""Tests of the effects of a Pod's claims. The rules are the rules of kube-scheduler."""

from typing import Any

import pytest

from extender.explain.sentences import sentence
from extender.node_view.view import Wish
from extender.pod_request.devices.claims import (
    RESOURCE_CLAIM,
    VOLUME_CLAIM,
    Claims,
    Key,
    Need,
    ResourceClaim,
    Verdict,
    Volume,
    VolumeClaim,
    needs_of,
)
from tests.builders import Manifest, kube_node, pod, pod_manifest, view

DATA = Key(VOLUME_CLAIM, "default", "data")
DEVICES = Key(RESOURCE_CLAIM, "default", "devices")
VOLUME = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
CLASSES = {"late": True, "now": False}
NAMED = Need(DEVICES, "d")
ON_N2: Manifest = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["2"]}]}]
}


def claim(*, bound: bool = True, **given: Any) -> Manifest:
    """Returns a PersistentVolumeClaim. The claim is bound to the volume `pv`, or has no volume. The
    keywords are fields of the spec."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    spec = ({"volumeName": "pv"} if bound else {}) | given
    return {"metadata": {"name": "data", "annotations": annotations}, "spec": spec}


def with_metadata(manifest: Manifest, **given: Any) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | given}


def owned(manifest: Manifest, uid: str) -> Manifest:
    return with_metadata(manifest, ownerReferences=[{"uid": uid, "controller": True}])


def verdict(
    of: Manifest | None, volume: Manifest | None = None, needs: tuple[Need, ...] = (Need(DATA, "v"),)
) -> Verdict:
    """Returns the verdict on a claim of the Pod "u1". Without `volume`, every Node has access to the
    volume."""
    read = {} if of is None else {needs[0].key: VolumeClaim.parse(of)}
    volumes = {"pv": Volume.parse(volume or {"spec": {}})}
    return Claims(read, volumes, CLASSES, {}).verdict("u1", needs)


def test_volumes_without_claims_need_no_claim() -> None:
    volumes = [{"name": "token", "projected": {}}, {"name": "tmp", "emptyDir": {}}]
    assert needs_of(pod_manifest(volumes=volumes)) == needs_of(pod_manifest()) == ()


def test_volume_needs_its_named_claim_or_an_ephemeral_claim_of_the_pod() -> None:
    ephemeral = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    assert needs_of(pod_manifest("p", volumes=[VOLUME, ephemeral])) == (
        Need(DATA, "v"),
        Need(Key(VOLUME_CLAIM, "default", "p-scratch"), "scratch", own=True),
    )


def test_names_of_resource_claims_come_from_the_spec_or_the_status() -> None:
    entries = [
        {"name": "a", "resourceClaimName": "devices"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "c", "resourceClaimTemplateName": "t"},
        {"name": "d", "resourceClaimTemplateName": "t"},
    ]
    manifest = pod_manifest(resourceClaims=entries)
    told = [{"name": "b", "resourceClaimName": "p-b-x7"}, {"name": "c"}]  # c needs no claim
    manifest["status"]["resourceClaimStatuses"] = told
    names = [(need.entry, need.key.name, need.own) for need in needs_of(manifest)]
    assert names == [("a", "devices", False), ("b", "p-b-x7", True), ("d", "", True)]


# PersistentVolumeClaims


def said(found: Verdict) -> str:
    """Returns a message about the obstacle; "" without an obstacle."""
    return sentence(found.obstacle) if found.obstacle else ""


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (None, '"data" not found; the extender requests no job until the claim exists'),
        (with_metadata(claim(), deletionTimestamp="now"), '"data" is being deleted'),
        (claim() | {"status": {"phase": "Lost"}}, 'has lost PersistentVolume "pv"'),
        (claim(volumeName="gone"), 'is bound to PersistentVolume "gone", not found'),
        (claim(bound=False), "is not bound (the claim has no StorageClass)"),
        (claim(bound=False, storageClassName="now"), 'StorageClass "now" does not wait for a Pod'),
        (claim(bound=False, storageClassName="none"), 'StorageClass "none" does not exist'),
        (
            claim(bound=False, storageClassName="late", volumeName="pv"),
            'the claim names PersistentVolume "pv"',
        ),
    ],
)
def test_unusable_volume_claim_is_an_obstacle_with_a_reason(of: Manifest | None, words: str) -> None:
    told = said(verdict(of))
    assert told.startswith('PersistentVolumeClaim "data" ')
    assert words in told


@pytest.mark.parametrize(
    "of",
    [
        claim(),
        claim(bound=False, storageClassName="late"),
        with_metadata(
            claim(bound=False), annotations={"volume.beta.kubernetes.io/storage-class": "late"}
        ),
    ],
)
def test_a_claim_that_is_bound_or_waits_for_its_pod_is_no_obstacle(of: Manifest) -> None:
    assert verdict(of) == Verdict()


def selected(of: Manifest, node: str = "n2") -> Manifest:
    annotations = of["metadata"]["annotations"] | {"volume.kubernetes.io/selected-node": node}
    return with_metadata(of, annotations=annotations)


def test_volume_being_provisioned_allows_only_its_node() -> None:
    found = verdict(selected(claim(bound=False, storageClassName="late")))
    assert (found.obstacle, found.provisioned_on) == (None, "n2")
    cluster = view(kube_node("n1"), kube_node("n2"), kube_node("n3"))
    wish = Wish(pod().request.constraints.with_claimed(found.nodes), "main")
    assert cluster.exclusion(wish).nodes == ("n[1,3]",)


def test_provisioned_volume_is_not_waited_for() -> None:
    assert verdict(selected(claim())).provisioned_on is None


def test_node_affinity_of_a_volume_excludes_other_nodes() -> None:
    found = verdict(claim(), {"spec": {"nodeAffinity": {"required": ON_N2}}})
    assert found.obstacle is None
    asked = pod().request.constraints
    cluster = view(kube_node("n1", {"disk": "1"}), kube_node("n2", {"disk": "2"}), kube_node("n3"))
    assert cluster.exclusion(Wish(asked.with_claimed(found.nodes), "main")).nodes == ("n[1,3]",)
    assert cluster.exclusion(Wish(asked, "main")).nodes == ()


def test_claim_of_an_ephemeral_volume_must_belong_to_the_pod() -> None:
    own = (Need(Key(VOLUME_CLAIM, "default", "p-scratch"), "scratch", own=True),)
    assert verdict(owned(claim(), "u1"), needs=own) == Verdict()
    for other in (claim(), owned(claim(), "u2")):
        assert "was not created for this Pod" in said(verdict(other, needs=own))


def test_unreadable_claims_are_no_obstacle() -> None:
    needs = Need(DATA, "v"), Need(DEVICES, "d")
    assert Claims().verdict("u1", needs) == Verdict()
    claims = Claims(volume_claims={DATA: VolumeClaim.parse(claim())})
    assert claims.verdict("u1", needs) == Verdict()
    claims = Claims(volume_claims={DATA: VolumeClaim.parse(claim(bound=False))})
    assert claims.verdict("u1", needs) == Verdict()


# ResourceClaims


def resources(of: Manifest | None, need: Need = NAMED) -> Verdict:
    known = {} if of is None else {need.key: ResourceClaim.parse(of)}
    return Claims({}, {}, {}, known).verdict("u1", (need,))


def test_missing_or_leaving_resource_claim_is_an_obstacle() -> None:
    there: Manifest = {"metadata": {"name": "devices"}}
    assert resources(there) == Verdict()
    assert said(resources(None)) == (
        'ResourceClaim "devices" not found; the extender requests no job until the claim exists'
    )
    leaving = resources(with_metadata(there, deletionTimestamp="now"))
    assert "is being deleted" in said(leaving)


def test_claim_not_yet_created_from_its_template_is_an_obstacle() -> None:
    need = Need(Key(RESOURCE_CLAIM, "default", ""), "gpus", own=True)
    assert said(resources(None, need)) == (
        'ResourceClaim for "gpus" has not been created; the extender requests no job until the claim'
        " exists"
    )


def test_allocated_devices_limit_the_pod_to_their_nodes() -> None:
    allocated = {"metadata": {}, "status": {"allocation": {"nodeSelector": ON_N2}}}
    assert resources(allocated).nodes == (tuple(ON_N2["nodeSelectorTerms"]),)
