"""Computes the requested resources of a Pod, by Kubernetes' own arithmetic.

The effective request of a resource is the larger of two sums, plus the Pod's overhead. The first sum is
for the containers that run together: app containers and sidecars. The second sum is the largest sum
during the start-up sequence, in which each init container runs beside the sidecars before it. Pod-level
requests replace the containers' requests. Source: KEP-753 (sidecars), KEP-2837 (pod-level resources),
KEP-688 (overhead).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from wellknown.quoting import quoted

Manifest = Mapping[str, Any]
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30}))([eE][+-]?\d{1,2}|[KMGTPE]i|[numkMGTPE])?", re.ASCII
)
_LARGEST = Decimal(2**63 - 1)  # apimachinery's own bound
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MEBIBYTE = 1 << 20
_NOTHING = Decimal(0)
GPU_DOMAINS = frozenset(
    {
        "nvidia.com",  # NVIDIA/k8s-device-plugin: gpu, gpu.shared, mig-1g.10gb, configured names
        "amd.com",  # ROCm/k8s-device-plugin: gpu, and a name for each partition, such as cpx_nps4
        "gpu.intel.com",  # intel/intel-device-plugins-for-kubernetes, gpu_plugin: i915, xe, monitoring
        "habana.ai",  # HabanaAI's device plugin: gaudi
        "aws.amazon.com",  # Neuron's device plugin: neuron, neuroncore; GRES gpu by AutoDetect=nrt
        "huawei.com",  # Ascend's device plugin and HAMi: Ascend910, Ascend310P, npu-core
        "birentech.com",  # Biren's device plugin: gpu, 1-2-gpu, vgpu
        "kunlunxin.com",  # Kunlunxin's device plugin: xpu, vxpu
        "enflame.com",  # Enflame's device plugin: gcu, shared-gcu, drs-gcu
        "vastaitech.com",  # Vastai's device plugin: va
        "cambricon.com",  # Cambricon/cambricon-k8s-device-plugin: mlu
        "hygon.com",  # Hygon's device plugin: dcu, dcunum
        "iluvatar.com",  # Iluvatar CoreX's device plugin: gpu
        "iluvatar.ai",  # the same in HAMi: vgpu
        "metax-tech.com",  # MetaX's device plugin: gpu, sgpu
        "mthreads.com",  # Moore Threads' device plugin: gpu, vgpu
        "aliyun.com",  # AliyunContainerService/gpushare-device-plugin: gpu-mem
        "tencent.com",  # tkestack/gpu-manager: vcuda-core
        "volcano.sh",  # volcano-sh/devices: vgpu-number, vgpu-memory
        "k8s.amazonaws.com",  # awslabs/aws-virtual-gpu-device-plugin: vgpu
        "deviceclass.resource.kubernetes.io",  # a DeviceClass of any driver, as a resource (KEP-5004)
    }
)
"""Domains of the extended resources for GPUs and parts of GPUs, as device plugins of GPUs name these
resources. The configuration of a plugin chooses the names within the domain."""
_KOORDINATOR = "koordinator.sh/gpu"
"""Beginning of Koordinator's names of GPUs and their parts: gpu, gpu-core, gpu-memory. The domain also
has network devices and FPGAs."""
_Kinds = tuple[str, str]
"""Two kinds of amounts, for example limits and requests. For each resource, the amount of the second
kind counts. If this amount is missing, the amount of the first kind counts."""


@lru_cache(maxsize=1024)  # most Pods have the same requests as other Pods
def parse_quantity(text: str | float) -> Decimal:
    """Returns a Kubernetes quantity ("500m", "2Gi", "1e3") in its base unit.

    Raises ValueError if the text is no quantity.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{quoted(text, 40)} is not a quantity")
    amount = _scaled(Decimal(found[1]), found[2] or "")
    if abs(amount) > _LARGEST:
        raise ValueError(f"{quoted(text, 40)} is too large a quantity")
    return amount


def _scaled(number: Decimal, suffix: str) -> Decimal:
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number


def effective_requests(spec: Manifest) -> dict[str, Decimal]:
    """Returns the amounts that kube-scheduler reserves for a Pod, by resource name, in base units. A
    limit without a request counts as a request, because kube-apiserver later sets this request. A
    webhook may see the Pod before kube-apiserver sets the request."""
    return _effective(spec, ("limits", "requests"))


def effective_limits(spec: Manifest) -> dict[str, Decimal]:
    """Returns the limits of a Pod, by resource name, in base units. Without a limit, the request
    counts."""
    return _effective(spec, ("requests", "limits"))


def gpu_resources(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of resources that are GPUs or parts of GPUs, sorted. The domains of known device
    plugins decide (GPU_DOMAINS)."""
    return tuple(sorted(filter(_is_gpu, names)))


def _is_gpu(name: str) -> bool:
    return name.partition("/")[0] in GPU_DOMAINS or name.startswith(_KOORDINATOR)


def _effective(spec: Manifest, kinds: _Kinds) -> dict[str, Decimal]:
    sidecars: dict[str, Decimal] = {}
    start_up: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        is_sidecar = container.get("restartPolicy") == "Always"
        for name, amount in _counted(container, kinds).items():
            at_once = sidecars.get(name, _NOTHING) + amount
            start_up[name] = max(start_up.get(name, _NOTHING), at_once)
            if is_sidecar:
                sidecars[name] = at_once
    apps = (_counted(container, kinds) for container in spec.get("containers") or ())
    together = _sum(sidecars, *apps)
    total = together | {name: max(most, together.get(name, most)) for name, most in start_up.items()}
    stands_in, counts = (_quantities((spec.get("resources") or {}).get(kind)) for kind in kinds)
    return _sum(stands_in | total | counts, _quantities(spec.get("overhead")))


def wrong_quantities(spec: Manifest) -> tuple[str, ...]:
    """Returns a message for each amount that cannot be parsed."""
    return tuple(
        f"{place}.{name}: {problem}"
        for place, amounts in _amounts(spec)
        for name, text in (amounts or {}).items()
        if (problem := _problem(text))
    )


def _amounts(spec: Manifest) -> Iterator[tuple[str, Mapping[str, str] | None]]:
    """Yields all amounts that count, each with the place in the manifest."""
    holders = [("spec", spec)]
    for field in ("initContainers", "containers"):
        holders += [(str(each.get("name")), each) for each in spec.get(field) or ()]
    for holder, each in holders:
        resources = each.get("resources") or {}
        for kind in ("requests", "limits"):
            yield f"{holder}.resources.{kind}", resources.get(kind)
    yield "spec.overhead", spec.get("overhead")


def _problem(text: str | float) -> str | None:
    try:
        parse_quantity(text)
    except ValueError as error:
        return str(error)
    return None


def whole(amount: Decimal, of: Decimal = Decimal(1)) -> int:
    """Returns the number of pieces of size `of` in an amount, rounded up, because Slurm counts whole
    pieces."""
    pieces, rest = divmod(amount, of)  # exact; a quotient has 28 digits only
    return int(pieces) + (rest > 0)


def in_millis(amount: Decimal) -> str:
    """Returns CPUs in Kubernetes' format: "2", or "1500m"."""
    millis = whole(amount, Decimal("0.001"))
    return f"{millis}m" if millis % 1000 else str(millis // 1000)


def mebibytes(amount: Decimal) -> int:
    """Returns bytes as Slurm's megabytes (MiB), rounded up."""
    return whole(amount, Decimal(MEBIBYTE))


def _counted(holder: Manifest, kinds: _Kinds) -> dict[str, Decimal]:
    stands_in, counts = (_quantities((holder.get("resources") or {}).get(kind)) for kind in kinds)
    return stands_in | counts


def _quantities(amounts: Mapping[str, str] | None) -> dict[str, Decimal]:
    return {name: parse_quantity(text) for name, text in (amounts or {}).items()}


def _sum(*parts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, _NOTHING) + amount
    return total
