"""Evaluates field selectors: a field selector chooses the objects of a list or watch."""

from collections.abc import Callable
from typing import Any, Final

from kubernetes_client.protocol import Manifest

_FIELDS: Final = (
    *("metadata.namespace", "metadata.name", "spec.nodeName", "spec.schedulerName", "status.phase"),
    *("status.nominatedNodeName", "reason", "reportingComponent"),
)
"""Fields in the selectors of this project."""


def selects(field_selector: str | None) -> Callable[[Manifest], bool]:
    """Returns a function that tests whether an object meets all terms (`field=value`, `field!=value`) of
    a selector. Every object meets the selector None. Raises ValueError for a field outside _FIELDS."""
    terms = [_term(text) for text in (field_selector or "").split(",") if text]
    return lambda manifest: all(term(manifest) for term in terms)


def _term(text: str) -> Callable[[Manifest], bool]:
    path, _, value = text.partition("=")
    differs, path = path.endswith("!"), path.removesuffix("!")
    if path not in _FIELDS:
        raise ValueError(f"no selector for {path}")
    part, _, field = path.rpartition(".")

    def fits(manifest: Manifest) -> bool:
        found: Any = ((manifest.get(part) or {}) if part else manifest).get(field) or ""
        return bool(found == value) is not differs

    return fits
