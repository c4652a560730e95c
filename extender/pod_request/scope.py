"""The scope of an installation: the Pods that it looks at, by their namespaces and their labels.

Admission leaves all other Pods alone, and placement never hears of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from kubernetes_client.protocol import Manifest
from wellknown.quoting import quoted

_KEY = r"[A-Za-z0-9][\w./-]*"
_VALUE = r"[\w.-]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})"
    rf"|(?P<key>{_KEY})(?:\s*(?P<equality>==?|!=)\s*(?P<value>{_VALUE})"
    rf"|\s+(?P<set>in|notin)\s*\((?P<values>[\w.,\s-]*)\))?)\s*",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Requirement:
    """`values` None: any. A missing label is in no set."""

    key: str
    values: frozenset[str] | None
    wanted: bool

    def met_by(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return has is self.wanted


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector as `kubectl get -l` takes it, but for its numbers (a>1). The empty one selects
    everything."""

    text: str = ""
    _requirements: tuple[_Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError with the part that is wrong."""
        return cls(text.strip(), tuple(_requirements(text)) if text.strip() else ())

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tells whether all requirements match."""
        return all(one.met_by(labels) for one in self._requirements)


def _requirements(text: str) -> Iterator[_Requirement]:
    at = 0
    while True:
        found = _REQUIREMENT.match(text, at)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise ValueError(
                f"{quoted(text[at:])} is no label selector: give key=value, key!=value, key in (a, b),"
                " key notin (a, b), key or !key, with commas between them"
            )
        yield _requirement(found)
        if found.end() == len(text):
            return
        at = found.end() + 1


def _requirement(found: re.Match[str]) -> _Requirement:
    if found["absent"]:
        return _Requirement(found["absent"], None, wanted=False)
    if found["equality"]:
        return _Requirement(found["key"], frozenset({found["value"]}), found["equality"] != "!=")
    if found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _Requirement(found["key"], values, found["set"] == "in")
    return _Requirement(found["key"], None, wanted=True)


@dataclass(frozen=True, slots=True)
class Scope:
    """`namespaces` None: all of them."""

    namespaces: frozenset[str] | None = None
    selector: Selector = Selector()

    @classmethod
    def of(cls, namespaces: Iterable[str] | None = None, selector: str = "") -> Self:
        """Raises ValueError where the text is no selector."""
        return cls(None if namespaces is None else frozenset(namespaces), Selector.parse(selector))

    @property
    def everything(self) -> bool:
        """Tells whether no Pod can be out of it."""
        return self.namespaces is None and not self.selector.text

    def has(self, namespace: str) -> bool:
        """Tells whether a namespace is in scope: the extender changes Pods of such namespaces alone."""
        return self.namespaces is None or namespace in self.namespaces

    def problem(self, manifest: Manifest) -> str | None:
        """Returns why a Pod is out of scope, None where it is not."""
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace") or "default"
        if self.namespaces is not None and not self.has(namespace):
            return f"namespace {namespace} is out of scope: {', '.join(sorted(self.namespaces))}"
        if not self.selector.selects(metadata.get("labels") or {}):
            return f"the Pod's labels are out of scope: {self.selector.text}"
        return None
