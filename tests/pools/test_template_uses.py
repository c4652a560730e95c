"""Tests of the uses of a template: the images, volumes and other things that a slurmd Pod of this
template uses. The admission policy for slurmd Pods allows exactly the uses of the templates."""

from typing import Any

import pytest

from extender.pools.template_uses import config_map, uses
from wellknown.names import POOL

ADDED = {"hostPath=/run/slurm-extender", "volume=emptyDir", "volume=hostPath", "volume=projected"}
"""Uses that the node agent adds to each template."""
CONTAINER = {"name": "slurmd", "image": "slurmd:1"}


def of(**spec: Any) -> set[str]:
    """Returns the uses of a template with this spec. Leaves out the image and the uses in ADDED."""
    return {*uses({"spec": {"containers": [CONTAINER], **spec}})} - ADDED - {"image=slurmd:1"}


def test_template_uses_images_of_all_containers() -> None:
    template = {"spec": {"containers": [CONTAINER], "initContainers": [{"image": "init:2"}]}}
    assert {*uses(template)} == {"image=slurmd:1", "image=init:2", *ADDED}


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def init(**given: Any) -> dict[str, Any]:
    return {"initContainers": [CONTAINER | given]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"hostPID": True, "hostNetwork": False}, {"hostPID=true"}),
        ({"imagePullSecrets": [{"name": "s"}, {}]}, {"imagePullSecret=s"}),
        (volume(hostPath={"path": "/dev"}), {"hostPath=/dev"}),
        (volume(secret={"secretName": "s"}), {"secret=s", "volume=secret"}),
        (volume(iscsi={"secretRef": {"name": "s"}}), {"secret=s", "volume=iscsi"}),
        (volume(azureFile={"secretName": "s"}), {"secret=s", "volume=azureFile"}),
        (volume(projected={"sources": [{"secret": {"name": "s"}}]}), {"secret=s"}),
        (volume(csi={"nodePublishSecretRef": {"name": "s"}}), {"secret=s", "volume=csi"}),
        (init(envFrom=[{"secretRef": {"name": "s"}}]), {"secret=s"}),
        (init(env=[{"valueFrom": {"secretKeyRef": {"name": "s"}}}]), {"secret=s"}),
    ],
)
def test_template_uses_secrets_and_the_host(spec: dict[str, Any], expected: set[str]) -> None:
    assert of(**spec) == expected


def test_config_map_has_each_revision_with_a_template() -> None:
    def revision(name: str, template: Any, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels}, "data": {"template": template}}

    good = {"spec": {"containers": [CONTAINER]}}
    listed = [
        revision("gpu-1", good, **{POOL: "gpu"}),
        revision("gpu-2", 1, **{POOL: "gpu"}),
        revision("gpu-3", {"spec": None}, **{POOL: "gpu"}),
        revision("of-a-stateful-set", good),
    ]
    made = config_map("slurm-nodes", listed)
    assert made["data"] == {"gpu-1": "\n".join(uses(good))}
