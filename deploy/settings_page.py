"""`python -m deploy.settings_page` writes the tables of docs/configure.md: the settings of both programs
as their Settings have them, with the chart's value for each.

The text around them is the page's own. `make docs` runs this; a test fails where it was not run.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from extender.pages import replaced, table
from extender.settings import Settings as ExtenderSettings
from node_agent.settings import Settings as AgentSettings
from service.settings import read_json

PAGE: Final = "docs/configure.md"
_PAGE_OF_DOCS: Final = re.compile(r"docs/([\w-]+\.md)(#[\w-]+)?")
_FOUND_AT_START: Final = {
    "namespace": "the Pod's own namespace, outside of Pods `kube-system`",
    "replica": "the host's name, which in a Pod is the Pod's",
}
_KINDS: Final[dict[type, str]] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    Decimal: "Kubernetes quantity",
    Path: "path",
    tuple: "names, with commas between them",
}
_SIGNS: Final = {
    Gt: ("gt", "more than"),
    Ge: ("ge", "at least"),
    Lt: ("lt", "less than"),
    Le: ("le", "at most"),
}


@dataclass(frozen=True)
class Program:
    """A program with settings: its file, and the chart's values for settings that have one of their own;
    "" where the chart gives it by itself. All others are given by `others` and the setting's name."""

    settings: type[BaseSettings]
    source: str
    values: dict[str, str]
    others: str


EXTENDER: Final = Program(
    ExtenderSettings,
    "extender/settings.py",
    {
        "kubeconfig": "",
        "namespace": "",
        "scope": "scheduler.scope",
        "pod_selector": "scheduler.podSelector",
        "scheduler_name": "scheduler.name",
        "gres": "gpuTypes",
        "slurmrestd_url": "slurm.restUrl",
        "slurm_token_file": "slurm.tokenSecret",
        "kill_wait_s": "slurmKillWait",
        "policy_file": "policy",
        "policy": "policy.preset",
        "pools_file": "pools.pools",
        "pools_namespace": "pools.namespace",
        "replica": "",
        "listen_address": "",
        "scheduler_address": "scheduler.mode",
        "scheduler_client_ca_file": "scheduler.existing.clientCASecret",
        "scheduler_port": "",
        "admission_port": "",
        "hooks_port": "",
        "metrics_port": "",
        "health_port": "",
        "tls_cert_file": "webhooks.certificates",
        "tls_key_file": "webhooks.certificates",
        "tls_secret": "webhooks.certificates.secretName",
        "tls_names": "",
        "admission_client_ca_file": "webhooks.certificates.clientCASecret",
        "webhook_configuration": "",
        "hooks_token_file": "hooks.tokenSecret",
    },
    "extender.settings.",
)
AGENT: Final = Program(
    AgentSettings,
    "node_agent/settings.py",
    {
        "node": "",
        "pod_uid": "",
        "gres": "nodeAgent.gresList",
        "kubeconfig": "",
        "cgroups": "",
        "nri": "nodeAgent.nri",
        "resources": "gpuTypes",
        "slurmd_namespace": "pools.namespace",
        "node_name_label": "extender.settings.nodeNameLabel",
        "listen_address": "",
        "metrics_port": "",
        "health_port": "",
    },
    "nodeAgent.settings.",
)


def rows(program: Program) -> Iterator[str]:
    """Yields the table of a program's settings, in the order of its file."""
    prefix = program.settings.model_config["env_prefix"]
    told = docstrings(program.settings)

    def cells() -> Iterator[tuple[str, ...]]:
        for field, info in program.settings.model_fields.items():
            name = f"{prefix}{field.upper()}"
            value = program.values.get(field, program.others + camel_case(field))
            yield (
                f'<a id="{name}"></a>`{name}`',
                f"`{value}`" if value else "(the chart's own)",
                _default(field, info),
                _kind(info),
                _linked(told[field]),
            )

    return table(("setting", "value of the chart", "default", "is", "what it does"), cells())


def docstrings(settings: type[BaseSettings]) -> dict[str, str]:
    """Returns what the source says below each field, in one line."""
    (body,) = (
        each.body
        for each in ast.parse(inspect.getsource(settings)).body
        if isinstance(each, ast.ClassDef)
    )
    found = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def camel_case(field: str) -> str:
    """Returns the name of a setting as values have names: `slurm_timeout_s` is slurmTimeoutS."""
    first, *rest = field.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _linked(text: str) -> str:
    linked = _PAGE_OF_DOCS.sub(lambda page: f"[{page[1]}]({page[1]}{page[2] or ''})", text)
    return linked.replace("|", r"\|")


def _default(field: str, info: FieldInfo) -> str:
    if info.is_required():
        return "(must be set)"
    if field in _FOUND_AT_START:
        return _FOUND_AT_START[field]
    text = _text(info.get_default())
    return f"`{text}`" if text else ""


def _text(default: Any) -> str:
    """Returns a default as one writes it into the environment."""
    match default:
        case bool():
            return str(default).lower()
        case dict():
            return json.dumps(default) if default else ""
        case tuple():
            return ",".join(map(str, default))
        case float():
            return f"{default:g}"
        case None:
            return ""
    return str(default)


def _kind(info: FieldInfo) -> str:
    kinds = [kind for kind in _alternatives(info.annotation) if kind is not NoneType]
    if all(isinstance(kind, str) for kind in kinds):
        *others, last = (f"`{kind}`" for kind in kinds)
        return f"{', '.join(others)} or {last}"
    base = get_origin(kinds[0]) or kinds[0]
    if any(getattr(each, "func", None) is read_json for each in info.metadata):
        return "JSON"
    return ", ".join([_KINDS.get(base, "text"), *_bounds(info)])


def _alternatives(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif type(None) in get_args(annotation):
        for each in get_args(annotation):
            yield from _alternatives(each)
    else:
        yield annotation


def _bounds(info: FieldInfo) -> Iterator[str]:
    for bound in info.metadata:
        if type(bound) in _SIGNS:
            attribute, words = _SIGNS[type(bound)]
            yield f"{words} {getattr(bound, attribute):,}"


def renewed(page: str) -> str:
    """Returns the page with both tables as the code has them. Raises ValueError where it has no
    place."""
    for program in (EXTENDER, AGENT):
        page = replaced(page, program.source, rows(program))
    return page


if __name__ == "__main__":
    Path(PAGE).write_text(renewed(Path(PAGE).read_text()))
