"""Tests of long replies. The client parses a long reply entry by entry, and gets the same document as
from a single call of the parser."""

import json
import threading
from typing import Any

import pytest

from slurm_client.rest import documents

NODE = {
    "name": "gpu-1",
    "gres": 'a "quoted" ],[{ text\u2028',
    "state": ["IDLE"],
    "power": {"n": [1, {}]},
}
DOCUMENTS: list[Any] = [
    {"nodes": [NODE] * 3, "meta": {"slurm": {}}, "errors": [], "nested": {"nodes": [1]}},
    {"nodes": [NODE], "meta": {}},
    {"nodes": [], "meta": {}},
    {"nodes": [1, "two", None, [3], 4.5]},
    {"meta": {"nodes": [1]}, "nodes": [NODE]},
    {"nodes": None, "errors": [{"error_number": 1}]},
    {},
    [NODE],
    "text",
]


@pytest.fixture(autouse=True)
def _all_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LONG", 0)


@pytest.mark.parametrize("indent", [None, 2], ids=["26.05", "24.11"])
@pytest.mark.parametrize("document", DOCUMENTS)
async def test_a_long_reply_is_read_as_its_json_document(document: Any, indent: int | None) -> None:
    content = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    assert await documents.read(content) == (document if isinstance(document, dict) else {})


@pytest.mark.parametrize(
    "content",
    [b"", b"Unspecified error", b'{"nodes": [', b'{"nodes": [{}', b'{"nodes": [{},]}', b'{"nodes": [{}]',
     b'{"nodes": [{} {}]}', b'{"nodes": [{}]} more', b'{"nodes": [\xff]}'],
)  # fmt: skip
async def test_invalid_json_is_read_as_an_empty_document(content: bytes) -> None:
    assert await documents.read(content) == {}


@pytest.mark.parametrize("long", [0, 1000], ids=["long", "short"])
@pytest.mark.parametrize("first", [b"", b'"meta": {}, '], ids=["first", "later"])
@pytest.mark.parametrize("odd", [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"a\xffb\xc3\xa9"])
async def test_invalid_utf8_leaves_the_rest_readable(
    odd: bytes, first: bytes, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_LONG", long)
    text = odd.decode(errors="replace")
    content = b'{%s"jobs": [{"comment": "%s", "job_id": 7}], "more": "%s"}' % (first, odd, odd)
    found = await documents.read(content)
    assert found["jobs"] == [{"comment": text, "job_id": 7}]
    assert found["more"] == text


@pytest.mark.parametrize("before", [b"", b"{}, "], ids=["first", "later"])
async def test_too_deep_nesting_is_read_as_an_empty_document(before: bytes) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    assert await documents.read(b'{"nodes": [%s%s], "meta": {}}' % (before, deep)) == {}


@pytest.mark.parametrize("content", [b'{"nodes": [{}]}', b'{"meta": {}, "nodes": [{}]}'])
async def test_an_error_in_the_conversion_of_an_entry_is_raised(content: bytes) -> None:
    def fail(entry: object) -> object:
        raise ValueError(f"no node: {entry}")

    with pytest.raises(ValueError, match=r"no node: \{\}"):
        await documents.read(content, ("nodes", fail))


async def test_other_threads_may_run_between_the_entries_of_a_long_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If one call of the parser read all entries, no other thread could run until the end of the
    call."""
    parsed = list[tuple[int, bool]]()

    def entry(text: str, at: int, read: Any = documents._entry) -> tuple[Any, int]:
        found, end = read(text, at)
        parsed.append((end - at, threading.current_thread() is threading.main_thread()))
        return found, end

    monkeypatch.setattr(documents, "_entry", entry)
    one = json.dumps(NODE).encode()
    await documents.read(b'{"nodes": [' + b", ".join([one] * 100) + b'], "meta": {}}')
    assert parsed == [(len(one.decode()), False)] * 100


async def test_a_short_reply_is_not_read_entry_by_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LONG", 1000)
    monkeypatch.setattr(documents, "_by_entries", None)
    assert await documents.read(b'{"nodes": [], "meta": {}}') == {"nodes": [], "meta": {}}


@pytest.mark.parametrize("long", [0, 1000], ids=["long", "short"])
async def test_each_entry_of_the_named_list_is_converted(
    long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_LONG", long)
    content = b'{"nodes": [{"name": "a"}, {"name": "b"}], "others": [{"name": "c"}]}'
    names = await documents.read(content, ("nodes", lambda entry: entry["name"]))
    assert names == {"nodes": ["a", "b"], "others": [{"name": "c"}]}
    others = await documents.read(content, ("others", lambda entry: entry["name"]))
    assert others["nodes"] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("nodes", ["null", "{}", "1"])
async def test_a_value_that_is_not_a_list_stays_unchanged(nodes: str) -> None:
    content = b'{"nodes": %s, "meta": {}}' % nodes.encode()
    found = await documents.read(content, ("nodes", lambda entry: entry["name"]))
    assert found == {"nodes": json.loads(nodes), "meta": {}}
