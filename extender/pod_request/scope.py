"""The scope of an installation: the namespaces and labels of the Pods that the extender may manage. The
extender leaves all other Pods alone."""

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
    key: str
    values: frozenset[str] | None  # None for any value. A missing label is in no set
    wanted: bool

    def met_by(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return has is self.wanted


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector as for `kubectl get -l`, but without comparisons of numbers (a>1). An empty
    selector selects everything."""

    text: str = ""
    _requirements: tuple[_Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the selector that a text describes. Raises ValueError, with the wrong part of the
        text."""
        return cls(text.strip(), tuple(_requirements(text)) if text.strip() else ())

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Returns True if all requirements match."""
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
    """The namespaces and the labels of Pods in scope. If `namespaces` is None, all namespaces are in
    scope."""

    namespaces: frozenset[str] | None = None
    selector: Selector = Selector()

    @classmethod
    def of(cls, namespaces: Iterable[str] | None = None, selector: str = "") -> Self:
        """Returns the scope with these namespaces and this selector. Raises ValueError for a wrong
        selector."""
        return cls(None if namespaces is None else frozenset(namespaces), Selector.parse(selector))

    @property
    def everything(self) -> bool:
        """Returns True if no Pod can be out of scope."""
        return self.namespaces is None and not self.selector.text

    def has(self, namespace: str) -> bool:
        """Returns True if a namespace is in scope. The extender changes no Pod in other namespaces."""
        return self.namespaces is None or namespace in self.namespaces

    def problem(self, manifest: Manifest) -> str | None:
        """Returns why a Pod is out of scope; None for a Pod in scope."""
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace") or "default"
        if self.namespaces is not None and not self.has(namespace):
            return f"namespace {namespace} is out of scope: {', '.join(sorted(self.namespaces))}"
        if not self.selector.selects(metadata.get("labels") or {}):
            return f"the Pod's labels are out of scope: {self.selector.text}"
        return None
