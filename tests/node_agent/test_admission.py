"""The Pod of an admission, and the devices to prefer for the Pod."""

from __future__ import annotations

import pytest

from node_agent.kubelet.asked import Asked
from node_agent.machine.devices import Device
from node_agent.machine.numbered import Part, Unit
from node_agent.pods.claims import Claim
from node_agent.runtime.admission import Grant, admitted, differences, grants, preferred

UNITS = {f"GPU-{n}": Unit("gpu", n, Part(Device("gpu", "", (f"/dev/nvidia{n}",)))) for n in range(4)}
SHARDS = {
    f"GPU-{n}::{share}": Unit("shard", n, UNITS[f"GPU-{n}"].part, share)
    for n in range(2)
    for share in range(3)
}
ONE, TWO = Grant("u1", (3,), 1), Grant("u2", (0, 2), 2)
GRANTED = {"ml/one": ONE, "ml/two": TWO}


def test_grants_are_of_pods_with_a_job_that_stay() -> None:
    claims = [
        Claim("u1", "ml/one", {"gpu": (3,), "shard": (1,)}, parts={"shard": 2}, job=1),
        Claim("u2", "ml/two", {"gpu": (0, 2)}, job=2, leaves=True),
        Claim("u3", "ml/adopted", {"gpu": (1,)}, job=3, adopted=True),
        Claim("u4", "ml/none", job=4),
        Claim("u5", "ml/stray"),
    ]
    assert grants(claims, "gpu") == {"ml/one": ONE}
    assert grants(claims, "shard") == {"ml/one": Grant("u1", (1,), 2)}


@pytest.mark.parametrize(
    ("listed", "answered", "expected"),
    [
        ({"ml/one": ()}, {}, [ONE]),
        ({"ml/one": ("GPU-3",), "ml/two": ()}, {}, [TWO]),
        ({"ml/two": ("GPU-0",)}, {"u2": 1}, [TWO]),  # the second container
        ({"ml/one": (), "ml/two": ()}, {}, [ONE, TWO]),
        ({"ml/one": (), "ml/two": ()}, {"u1": 1}, [TWO]),  # the kubelet rejected the first Pod
        ({"ml/one": ()}, {"u1": 1}, [ONE]),  # the kubelet asks once more
        ({"ml/stray": (), "kube-system/dns": ()}, {}, []),
    ],
)
def test_pod_of_the_admission_has_fewer_devices_than_its_grant(
    listed: dict[str, tuple[str, ...]], answered: dict[str, int], expected: list[Grant]
) -> None:
    assert admitted(listed, GRANTED, answered) == expected


@pytest.mark.parametrize(
    ("available", "must_include", "size", "grant", "expected"),
    [
        (UNITS, (), 1, ONE, ["GPU-3"]),
        (UNITS, (), 2, TWO, ["GPU-0", "GPU-2"]),
        (("GPU-1", "GPU-2"), (), 2, TWO, ["GPU-2"]),  # one is not free by the kubelet's count
        (("GPU-1", "GPU-2"), (), 2, ONE, []),
        (UNITS, ("GPU-2",), 2, TWO, ["GPU-2", "GPU-0"]),
        (UNITS, ("GPU-1",), 1, TWO, ["GPU-1"]),
        (("GPU-0", "unknown"), (), 1, TWO, ["GPU-0"]),
    ],
)
def test_granted_devices_are_preferred(
    available: tuple[str, ...],
    must_include: tuple[str, ...],
    size: int,
    grant: Grant,
    expected: list[str],
) -> None:
    assert preferred(Asked(tuple(available), must_include, size), UNITS, grant) == expected


def test_parts_of_the_granted_device_are_preferred() -> None:
    grant = Grant("u", (1,), 2)
    asked = Asked([name for name in SHARDS if name != "GPU-1::0"], (), 2)
    assert preferred(asked, SHARDS, grant) == ["GPU-1::1", "GPU-1::2"]


def test_other_devices_than_granted_are_a_difference() -> None:
    listed = {
        "ml/one": ("GPU-3",),
        "ml/two": ("GPU-0", "GPU-1", "gpu-9"),
        "ml/stray": ("GPU-2",),
    }
    words = "the kubelet counts GPU-1, gpu-9 for it, which Slurm did not grant"
    assert differences(listed, GRANTED, UNITS) == {"ml/two": words}
