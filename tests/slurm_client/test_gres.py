"""GRES as Slurm writes them."""

import pytest

from slurm_client.gres import counts, parse


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
    ],
)
def test_gres_are_read_with_and_without_types_counts_and_details(
    text: str, expected: list[tuple[str, str, int]]
) -> None:
    assert parse(text) == expected


def test_devices_count_by_name_and_by_type() -> None:
    assert counts("gpu:h100:8(S:0-1),gpu:a100:2") == {"gpu": 10, "gpu:h100": 8, "gpu:a100": 2}
