"""The annotation of a Node about containers that may outlive their Pods."""

from __future__ import annotations

import pytest

from wellknown.allocation import Allocation
from wellknown.lingering import MOST, LingeringContainers, lingering_on, text_of
from wellknown.names import LINGERING


def read(text: str | None) -> tuple[LingeringContainers, ...]:
    return lingering_on({} if text is None else {LINGERING: text})


def test_text_is_read_as_it_was_written() -> None:
    chat = LingeringContainers(4711, "default/chat", 35.0, "0-3", "gpu:h100:2(IDX:0-1)")
    web = LingeringContainers(0, "team-a/web.v2", 4.2)
    assert read(text_of([chat, web])) == (chat, web._replace(seconds=5.0))
    assert chat.slot("n1") == Allocation(4711, "n1", "gpu:h100:2(IDX:0-1)", "0-3")


def test_no_containers_have_no_text() -> None:
    assert text_of(()) is None
    assert read(None) == read("") == ()


@pytest.mark.parametrize(
    "text",
    ["by hand", "{}", '[{"job": 1}]', '[{"job": -1, "pod": "a/b", "seconds": 1}]', "[" * 100_000],
)
def test_invalid_text_names_no_containers(text: str) -> None:
    assert read(text) == ()


def test_number_of_containers_is_limited() -> None:
    many = [LingeringContainers(number, "a/b", 1.0) for number in range(MOST + 1)]
    assert len(read(text_of(many))) == MOST
