"""Finds the objects of a chart that programs change at run time. The chart's roles and templates show
these objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from deploy.local.chart import Manifest, Rendered

CHANGING = {"update", "patch", "*"}
CERT_MANAGERS = "cert-manager.io/inject-ca-from"
"""Annotation of an object to which cert-manager adds a CA bundle."""
_OPTIONS = ("--token=", "--file=")
"""Options of `slurm-cluster publish-secrets`. The value of each option begins with
NAMESPACE/SECRET/KEY."""


class Object(NamedTuple):
    """An object of a chart, or all objects that a rule of a role means. In a rule, "" stands for any
    value."""

    group: str
    resource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        group = manifest["apiVersion"].rpartition("/")[0]
        metadata = manifest["metadata"]
        return cls(group, plural(manifest["kind"]), metadata.get("namespace", ""), metadata["name"])

    def is_meant_by(self, named: Object) -> bool:
        """Returns True if the rule with `named` applies to this object."""
        pairs = zip(self, named, strict=True)
        return all(mine == theirs or not theirs for mine, theirs in pairs)


def plural(kind: str) -> str:
    """Returns the name of the resource in kube-apiserver's paths, for a kind."""
    low = kind.lower()
    return f"{low[:-1]}ies" if low.endswith("y") else f"{low}es" if low.endswith("s") else f"{low}s"


def named_by_roles(chart: Rendered) -> Iterator[Object]:
    """Yields the objects that programs may change, according to the chart's roles."""
    for role in chart.manifests:
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in role["rules"] or ():
            if CHANGING & set(rule["verbs"]):
                yield from _named_by(rule, role["metadata"].get("namespace", ""))


def _named_by(rule: Manifest, namespace: str) -> Iterator[Object]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames") or [""]:
                yield Object(group, resource.partition("/")[0], namespace, name)


def of_the_release(chart: Rendered) -> list[Manifest]:
    """Returns the objects that a GitOps tool compares: all objects except hooks."""
    return [
        each
        for each in chart.manifests
        if "helm.sh/hook" not in (each["metadata"].get("annotations") or {})
    ]


def changed(chart: Rendered) -> list[Manifest]:
    """Returns the objects of the chart that are changed at run time, by programs of the chart or by
    cert-manager."""
    named = list(named_by_roles(chart))
    return [
        each
        for each in of_the_release(chart)
        if CERT_MANAGERS in (each["metadata"].get("annotations") or {})
        or any(Object.of(each).is_meant_by(name) for name in named)
    ]


def made_by_programs(chart: Rendered) -> set[Object]:
    """Returns the objects that a rule of a role names, and that the chart's templates do not create."""
    objects = [Object.of(each) for each in of_the_release(chart)]
    return {
        name
        for name in named_by_roles(chart)
        if name.name and not any(each.is_meant_by(name) for each in objects)
    }


def handed_out(chart: Rendered) -> set[tuple[str, str, str]]:
    """Returns namespace, Secret and key of each content that the Job `slurm-publish-secrets` writes."""
    job = chart.find("Job", "slurm-publish-secrets")["spec"]["template"]["spec"]
    places = [
        argument.removeprefix(option).partition("=")[0]
        for container in job["containers"]
        for argument in container["args"]
        for option in _OPTIONS
        if argument.startswith(option)
    ]
    return {(one, two, three) for one, two, three in (place.split("/") for place in places)}
