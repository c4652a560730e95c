"""Tests of reading GRES in Slurm's notation."""

import pytest

from slurm_client.gres import counts, gpus, numbers, parse, parts_by_gpu


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("gpu:4", [("gpu", "", 4)]),
        ("gpu:h100:8(S:0-1),shard:4", [("gpu", "h100", 8), ("shard", "", 4)]),
        ("gpu:h100:3(IDX:0,2-3),gpu:a100:0(IDX:N/A)", [("gpu", "h100", 3), ("gpu", "a100", 0)]),
        ("bandwidth:lustre:4G", [("bandwidth", "lustre", 4 << 30)]),
        ("gpu", [("gpu", "", 1)]),
        ("gpu:h100", [("gpu", "h100", 1)]),
        ("gpu:h100(CNT:8),nic(CNT:16)", [("gpu", "h100", 8), ("nic", "", 16)]),
        ("gpu:1080(CNT:2)", [("gpu", "1080", 2)]),
    ],
)
def test_gres_are_read_with_and_without_types_counts_and_details(
    text: str, expected: list[tuple[str, str, int]]
) -> None:
    assert parse(text) == expected


def test_devices_are_counted_by_name_and_by_type() -> None:
    assert counts("gpu:h100:8(S:0-1),gpu:a100:2") == {"gpu": 10, "gpu:h100": 8, "gpu:a100": 2}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("", 0),
        ("gres/gpu:2", 2),
        ("gres/gpu=2", 2),
        ("gres:gpu:h100:4", 4),
        ("cpu=3,gres/gpu:a100=2,gres/gpu:h100=1,gres/shard=7", 3),
        ("gres/gpu", 1),
    ],
)
def test_gpus_of_a_request_are_counted_whatever_their_type(asked: str, expected: int) -> None:
    assert gpus(asked) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("gpu:2(IDX:0-1)", {"gpu": (0, 1)}),
        ("gpu:a100:1(IDX:0),gpu:h100:2(IDX:2-3),fpga:1(IDX:0)", {"gpu": (0, 2, 3), "fpga": (0,)}),
        ("nic(CNT:4),gpu:1(IDX:5)", {"nic": (), "gpu": (5,)}),
        ("shard:2(0/4,2/4)", {"shard": (1,)}),
        ("shard:5(4/4,1/4),gpu:1(IDX:5)", {"shard": (0, 1), "gpu": (5,)}),
        ("mps:50(50/100),shard:2(IDX:0)", {"mps": (0,), "shard": (0,)}),
    ],
)
def test_device_numbers_of_a_job_are_grouped_by_name(
    text: str, expected: dict[str, tuple[int, ...]]
) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("gpu:2(IDX:0-1),nic(CNT:4)", {}),
        ("shard:5(4/4,0/4,1/4),gpu:1(IDX:5)", {"shard": {0: 4, 2: 1}}),
        ("mps:50(50/100),shard:2(IDX:0)", {"mps": {0: 50}, "shard": {0: 2}}),
        ("shard:5(IDX:1,3)", {"shard": {1: 3, 3: 2}}),  # 26.05 reports only the sum over both GPUs
        ("shard(CNT:4)", {"shard": {}}),
    ],
)
def test_shards_and_mps_of_a_job_are_counted_by_gpu(
    text: str, expected: dict[str, dict[int, int]]
) -> None:
    assert parts_by_gpu(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("gpu", "gpu:2", "gpu:1(IDX:a)", "gpu:1(IDX:0"),
        *("shard:2(1/4,)", "shard:2((null))", ",", "x(IDX:3-1)"),
    ],
)
def test_a_text_without_valid_device_numbers_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"no devices|which devices|no number|ends before"):
        numbers(text)
