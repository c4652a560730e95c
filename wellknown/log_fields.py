"""What every line of the log that is about one Pod or one job says of it, always in the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Named(Protocol):
    """Whatever says which Pod it is, or is of."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class PodName(NamedTuple):
    """A Pod's name, and which of those that had it."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, reference: Mapping[str, Any]) -> PodName:
        """Reads an object's metadata, or an ObjectReference."""
        return cls(reference["namespace"], reference["name"], reference["uid"])


def about(pod: Named | None, job_id: int | None = None) -> dict[str, Any]:
    """Returns the fields: `pod` (namespace/name), `uid`, and `job`, null where none is known."""
    if pod is None:
        return {"pod": None, "job": job_id}
    return {"pod": f"{pod.namespace}/{pod.name}", "uid": pod.uid, "job": job_id}
