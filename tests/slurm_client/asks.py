"""Generates Pods with the annotations and requests that a user may write: usual values, values at
limits, and random texts.

Accounts, users and nodes are those of `bench` with accounting. RESERVATION exists in addition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.slurm_client.bench import ALICE, BOB, NODES

PARTITIONS = frozenset({"main", "short", "closed"})
RESERVATION = "ours"
RESERVED_FOR = (0, ALICE)
# Accounts and QOS of each user. A job that names no user is a job of root (user 0). The first account
# and the first QOS of a user are the user's defaults.
ACCOUNTS: Mapping[int, tuple[str, ...]] = {0: ("root",), ALICE: ("ml", "lab"), BOB: ("web",)}
QOS: Mapping[int, tuple[str, ...]] = {
    0: ("normal", "one-runs", "small"),
    ALICE: ("normal", "one-runs", "one-runs-of-all", "small"),
    BOB: ("normal", "bobs", "one-runs", "one-runs-of-all"),
}

_ODD = st.sampled_from(
    [
        *("%j", "\\n", "\x1b[31m", "(null)", "null", "-1", "e\u0301", "漢字"),
        *"A'\"\\\n\t\x01\x7f\0, |=*#é😀\u202e\ufffe",
    ]
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.lists(_ODD, max_size=4).map(
    "".join
)
_BYTES = (1, 63, 64, 255, 256, 1023, 1024, 1025, 4094, 4095, 4096, 65_536)
_LONG = st.builds(
    lambda size, of: of * (size // len(of.encode())) + "x" * (size % len(of.encode())),
    st.sampled_from(_BYTES),
    st.sampled_from(["x", "é", "漢"]),
)
_EDGES = (
    *(0, 1, 59, 60, 61, 99, 100, 65_533, 65_534, 65_535, 65_536, ALICE, BOB, 4_294_967_280),
    *(at + off for at in (2**31, 2**32, 31_536_000, 2**63) for off in (-2, -1, 0, 1)),
)
_NUMBERS = st.sampled_from(_EDGES) | st.integers(-1, 2**33)


def _any(*plain: str) -> st.SearchStrategy[str]:
    """Generates a given text, a changed or extended form of a given text, or any text."""
    affixed = st.builds(lambda a, b, c: a + b + c, _TEXTS, st.sampled_from(plain), _TEXTS)
    changed = st.sampled_from(plain).flatmap(
        lambda one: st.sampled_from([one.upper(), one.title(), f" {one}\n", f"{one},", f"{one}, {one}"])
    )
    return st.sampled_from(plain) | changed | affixed | _TEXTS | _LONG


PLAIN: Mapping[str, st.SearchStrategy[str]] = {
    "account": st.sampled_from(["root", "ml", "lab", "web"]),
    "comment": st.sampled_from(["nightly run", 'it\'s "mine", 100%']),
    "constraints": st.sampled_from(
        ["h100", "h100&ib", "h100|ib", "(h100|ib)&h100", "h100,ib", "[h100|ib]"]
    ),
    "current-working-dir": st.sampled_from(["/home/ana", "/a b/c", "/"]),
    "excluded-nodes": st.sampled_from(["node-1", "node-[2]", "node-2,"]),
    "exclusive": st.sampled_from(["none", "ok", "user", "mcs", "topo", "true", "false"]),
    "group-id": st.sampled_from([0, ALICE, BOB, 1, 65_536]).map(str),
    "partition": st.sampled_from(["main", "short", "closed", "main, short", "short,main", "main,main"]),
    "prefer": st.sampled_from(["h100", "ib", "h100&ib"]),
    "priority": st.sampled_from([0, 1, 1000, 2**31, 2**32 - 3]).map(str),
    "qos": st.sampled_from(["normal", "small", "bobs", "one-runs", "normal, small"]),
    "required-nodes": st.sampled_from(["node-1", "node-2", "node-[1-2]"]),
    "reservation": st.just(RESERVATION),
    "timeout": st.sampled_from([1, 60, 61, 3600, 31_535_999, 31_536_000]).map(str),
    "user-id": st.sampled_from([0, ALICE, BOB]).map(str),
}
_WRITTEN_NUMBERS = _NUMBERS.map(str) | _any("1", "99", "1000")
_WRITTEN_NODES = _any(*NODES, "node-[1-2]", "node-[01-02]", "ghost", "[", "n[1-10000]", "n[1-10001]")
ANY: Mapping[str, st.SearchStrategy[str]] = {
    "account": _any("root", "ml", "nowhere"),
    "comment": _any("nightly run"),
    "constraints": _any(
        "h100", "h100&ib", "ib|h100", "h100&", "(h100", "h100*1", "[h100*1&ib*1]", "quantum"
    ),
    "current-working-dir": _any("/home/ana").map("/".__add__),
    "excluded-nodes": _WRITTEN_NODES,
    "exclusive": _any("none", "ok", "user"),
    "group-id": _WRITTEN_NUMBERS,
    "partition": _any("main", "short", "nowhere"),
    "prefer": _any("h100", "ib", "h100*1", "quantum"),
    "priority": _WRITTEN_NUMBERS,
    "qos": _any("normal", "small", "nowhere"),
    "required-nodes": _WRITTEN_NODES,
    "reservation": _any(RESERVATION, "nowhere"),
    "timeout": _WRITTEN_NUMBERS,
    "user-id": _WRITTEN_NUMBERS,
}
_CPUS = st.sampled_from(
    ["1", "500m", "8", "9", "65533", "65534", "65537", "4294967297", "1e3", "8.0001"]
)
_MEMORY = st.sampled_from(["1", "100Mi", "16000Mi", "16001Mi", "1e3M", "4Pi", str(2**63 - 1), "8Ei"])
_DEVICES = st.sampled_from(["1", "4", "5", "65536", "4294967297", str(2**63 - 1)])


@dataclass(frozen=True)
class Ask:
    """Annotations and requests of a Pod. `about` names the annotation that may have any value; None if
    only the requests have unusual values."""

    annotations: Mapping[str, str]
    requests: Mapping[str, str]
    about: str | None = None


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """Generates a few usual annotations and either an annotation with any value, or requests with any
    values."""
    some = draw(st.lists(st.sampled_from(sorted(PLAIN)), max_size=3, unique=True))
    annotations = {name: draw(PLAIN[name]) for name in some}
    requests: dict[str, Any] = {"cpu": "1", "memory": "100Mi"}
    about = draw(st.sampled_from([None, *sorted(ANY)]))
    if about is None:
        requests = {"cpu": draw(_CPUS), "memory": draw(_MEMORY)}
        requests |= draw(st.fixed_dictionaries({}, optional={"nvidia.com/gpu": _DEVICES}))
    else:
        annotations[about] = draw(ANY[about])
    return Ask(annotations, requests, about)
