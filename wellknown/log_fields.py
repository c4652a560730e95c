"""The log fields that name a Pod or a job: the same fields in every line."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self


class Named(Protocol):
    """An object that names a Pod by namespace, name and uid."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class PodName(NamedTuple):
    """Namespace, name and uid of a Pod. Successive Pods may have the same name."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, reference: Mapping[str, Any]) -> Self:
        """Returns the names in an object's metadata, or in an ObjectReference."""
        return cls(reference["namespace"], reference["name"], reference["uid"])


def about(pod: Named | None, job_id: int | None = None) -> dict[str, Any]:
    """Returns the fields `pod` (namespace/name), `uid` and `job`. Without a Pod, `pod` is null and `uid`
    is absent. `job` is null if the job is not known."""
    if pod is None:
        return {"pod": None, "job": job_id}
    return {"pod": f"{pod.namespace}/{pod.name}", "uid": pod.uid, "job": job_id}
