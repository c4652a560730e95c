"""Tests of the Pod of an admission, and of the preferred devices for the Pod."""

from __future__ import annotations

import pytest

from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.machine.devices import Device
from node_agent.machine.numbered import Part, Unit
from node_agent.pods.claims import Claim, Stage
from node_agent.runtime.admission import (
    Grant,
    admitted,
    differences,
    grants,
    may_be_of_no_job,
    preferred,
)

TYPES = ("h100", "h100", "a100", "a100")
UNITS = {
    f"GPU-{n}": Unit("gpu", n, Part(Device("gpu", kind, (f"/dev/nvidia{n}",))))
    for n, kind in enumerate(TYPES)
}
A100 = {name: unit for name, unit in UNITS.items() if unit.part.device.type == "a100"}
SHARDS = {
    f"GPU-{n}::{share}": Unit("shard", n, UNITS[f"GPU-{n}"].part, share)
    for n in range(2)
    for share in range(4)
}
ONE, TWO = Grant("u1", "ml/one", {3: 1}, 1), Grant("u2", "ml/two", {0: 1, 2: 1}, 2)
GRANTED = {"ml/one": ONE, "ml/two": TWO}
CLAIMS = [Claim("u1", "ml/one", {"gpu": (3,)}, job=1), Claim("u2", "ml/two", {"gpu": (0, 2)}, job=2)]
WHOLE = Claim("u6", "ml/whole", {"gpu": (0, 1, 2, 3)}, job=6)
OTHERS = [
    Claim("u3", "ml/adopted", job=3, adopted=True),
    Claim("u5", "ml/none"),
    Claim("u7", "ml/ended", stage=Stage.ENDED),
]


def test_grants_exclude_leaving_adopted_and_jobless_pods() -> None:
    claims = [
        CLAIMS[0]._replace(devices={"gpu": (3,), "shard": (1,)}, parts={"shard": {1: 2}}),
        CLAIMS[1]._replace(stage=Stage.LEAVES),
        Claim("u3", "ml/adopted", {"gpu": (1,)}, job=3, adopted=True),
        Claim("u4", "ml/without", job=4),
        Claim("u5", "ml/none"),
    ]
    asks = {claim.uid: 8 for claim in claims}
    assert grants(claims, UNITS, asks) == {"ml/one": ONE}
    assert grants(claims, SHARDS, asks) == {"ml/one": Grant("u1", "ml/one", {1: 2}, 2)}


def test_pod_may_request_fewer_devices_than_its_job_has() -> None:
    """The Pod's job has the whole node. The Pod first requests one device, and then two GPUs of one
    type."""
    whole = grants([WHOLE], UNITS, {"u6": 1})
    assert whole == {"ml/whole": Grant("u6", "ml/whole", {0: 1, 1: 1, 2: 1, 3: 1}, 1)}
    assert admitted([("ml/whole", ("GPU-0",))], whole, {}) == []
    of_type = grants([WHOLE], A100, {"u6": 2})
    assert of_type == {"ml/whole": Grant("u6", "ml/whole", {2: 1, 3: 1}, 2)}
    assert admitted([("ml/whole", ("GPU-2", "GPU-3"))], of_type, {}) == []


@pytest.mark.parametrize(
    ("listed", "answered", "expected"),
    [
        ([("ml/one", ())], {}, [ONE]),
        ([("ml/one", ("GPU-3",)), ("ml/two", ())], {}, [TWO]),
        ([("ml/two", ("GPU-0",))], {"u2": 1}, [TWO._replace(has=("GPU-0",))]),  # the second container
        ([("ml/one", ()), ("ml/two", ())], {}, [ONE, TWO]),
        ([("ml/one", ()), ("ml/two", ())], {"u1": 1}, [TWO]),  # the kubelet rejected the first Pod
        ([("ml/one", ())], {"u1": 1}, [ONE]),  # the kubelet asks again
        ([("ml/none", ()), ("kube-system/dns", ())], {}, []),
        ([("ml/one", ()), ("ml/one", ("GPU-1",))], {}, [ONE]),  # the kubelet still ends the former Pod
        ([("ml/one", ("GPU-1",)), ("ml/one", ())], {}, [ONE]),
        ([("ml/one", ("GPU-1",)), ("ml/one", ("GPU-3",))], {}, []),
    ],
)
def test_admitted_pod_is_the_pod_with_fewer_devices_than_requested(
    listed: list[tuple[str, tuple[str, ...]]], answered: dict[str, int], expected: list[Grant]
) -> None:
    assert admitted(listed, GRANTED, answered) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([("ml/none", ())], True),
        ([("ml/none", ("GPU-1",))], False),
        ([("ml/adopted", ())], True),  # bound while the kubelet was away
        ([("ml/ended", ())], False),
        ([("ml/one", ())], False),
        ([("ml/none", ()), ("ml/none", ("GPU-1",))], True),
    ],
)
def test_admitted_pod_may_be_a_pod_of_no_job_that_lacks_devices(
    listed: list[tuple[str, tuple[str, ...]]], expected: bool
) -> None:
    asks = {claim.uid: 1 for claim in (*CLAIMS, *OTHERS)}
    assert may_be_of_no_job(listed, [*CLAIMS, *OTHERS], asks) == expected
    assert not may_be_of_no_job(listed, [*CLAIMS, *OTHERS], {})


def asked(
    available: tuple[str, ...], size: int, must_include: tuple[str, ...] = ()
) -> api.ContainerPreferredAllocationRequest:
    return api.ContainerPreferredAllocationRequest(
        available=available, must_include=must_include, size=size
    )


@pytest.mark.parametrize(
    ("available", "must_include", "size", "grant", "expected"),
    [
        (UNITS, (), 1, ONE, ["GPU-3"]),
        (UNITS, (), 2, TWO, ["GPU-0", "GPU-2"]),
        (("GPU-1", "GPU-2"), (), 2, TWO, ["GPU-2"]),  # the kubelet counts GPU-0 as used
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
    assert preferred(asked(tuple(available), size, must_include), UNITS, grant) == expected


@pytest.mark.parametrize(
    ("numbers", "has", "must_include", "size", "expected"),
    [
        ({1: 2}, (), (), 2, ["GPU-1::0", "GPU-1::1"]),
        ({0: 1, 1: 2}, (), (), 3, ["GPU-0::0", "GPU-1::0", "GPU-1::1"]),
        ({0: 1, 1: 2}, ("GPU-0::3",), (), 2, ["GPU-1::0", "GPU-1::1"]),  # the second container
        ({0: 1, 1: 2}, (), ("GPU-1::0",), 3, ["GPU-1::0", "GPU-0::0", "GPU-1::1"]),
        ({0: 1, 1: 2}, ("GPU-0::3",), (), 3, ["GPU-1::0", "GPU-1::1"]),
    ],
)
def test_preferred_parts_of_each_gpu_match_the_grant(
    numbers: dict[int, int],
    has: tuple[str, ...],
    must_include: tuple[str, ...],
    size: int,
    expected: list[str],
) -> None:
    grant = Grant("u", "ml/p", numbers, 3, has)
    free = tuple(name for name in SHARDS if name not in has)
    assert preferred(asked(free, size, must_include), SHARDS, grant) == expected


def test_devices_that_slurm_did_not_grant_are_a_difference() -> None:
    listed = [
        ("ml/one", ("GPU-3",)),
        ("ml/two", ("GPU-0", "GPU-1", "gpu-9")),
        ("ml/none", ("GPU-2",)),
    ]
    words = "the kubelet counts GPU-1, gpu-9 for it, which Slurm did not grant"
    assert differences(listed, CLAIMS, UNITS) == {"ml/two": words}
    former = [*listed, ("ml/two", ("GPU-0", "GPU-2"))]  # a former Pod of this name, unknown to the agent
    assert differences(former, CLAIMS, UNITS) == {}
