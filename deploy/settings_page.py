"""Generates the tables in docs/reference/configure.md: the settings of the extender and of the node
agent, with the chart's value for each setting. `make docs` runs `python -m deploy.settings_page`."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from deploy.charts.settings import Setting, agent_settings, extender_settings
from extender.pages import replaced, table_head, table_row
from extender.settings import Settings as ExtenderSettings
from node_agent.settings import Settings as AgentSettings
from service.settings import read_json

PAGE: Final = "docs/reference/configure.md"
_HEADS: Final = ("setting", "set in the chart by", "default", "type", "meaning")
_PAGE_OF_DOCS: Final = re.compile(r"docs/(\w+/([\w-]+\.md))(#[\w-]+)?")
_FOUND_AT_START: Final = {
    "namespace": "the Pod's own namespace; outside of Pods `kube-system`",
    "replica": "the host's name; in a Pod the Pod's name",
}
_TYPES: Final = {
    "array": "names, separated by commas",
    "boolean": "`true` or `false`",
    "integer": "whole number",
    "number": "number",
    "string": "text",
}
_BOUNDS: Final = {
    "exclusiveMinimum": "more than",
    "minimum": "at least",
    "exclusiveMaximum": "less than",
    "maximum": "at most",
}


@dataclass(frozen=True)
class Program:
    """A program with settings: the model, the model's file, and the path of the chart's values."""

    model: type[BaseSettings]
    source: str
    settings: Callable[[], list[Setting]]
    values: str


EXTENDER: Final = Program(
    ExtenderSettings, "extender/settings.py", extender_settings, "extender.settings"
)
AGENT: Final = Program(AgentSettings, "node_agent/settings.py", agent_settings, "nodeAgent.settings")


def rows(program: Program) -> Iterator[str]:
    """Yields the table of a program's settings, in the order of the model."""
    fields = program.model.model_fields
    yield from table_head(*_HEADS)
    for each in program.settings():
        yield table_row(*_cells(program, each, fields[each.name]))


def _cells(program: Program, setting: Setting, info: FieldInfo) -> tuple[str, ...]:
    name = setting.variable
    return (
        f'<a id="{name}"></a>`{name}`',
        setting.made_of or f"`{program.values}.{setting.key}`",
        _default(setting, info),
        "JSON" if _is_json(info) else "path" if _is_path(info) else ", ".join(_kind(setting.schema)),
        _linked(setting.words),
    )


def _default(setting: Setting, info: FieldInfo) -> str:
    if info.is_required():
        return "(must be set)"
    if setting.name in _FOUND_AT_START:
        return _FOUND_AT_START[setting.name]
    text = _text(info.get_default())
    return f"`{text}`" if text else ""


def _text(default: Any) -> str:
    """Returns a setting's default in the format of an environment variable."""
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


def _is_json(info: FieldInfo) -> bool:
    return any(getattr(each, "func", None) is read_json for each in info.metadata)


def _is_path(info: FieldInfo) -> bool:
    kind = info.annotation
    return kind is Path or (get_origin(kind) is not tuple and Path in get_args(kind))


def _kind(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields a setting's type and bounds as texts for the page, from the JSON Schema of the setting."""
    if "enum" in schema:
        *others, last = (f"`{word}`" for word in schema["enum"])
        yield f"{', '.join(others)} or {last}"
    elif isinstance(schema["type"], list):
        yield _TYPES["array"] if "items" in schema else "Kubernetes quantity"
    else:
        yield _TYPES[schema["type"]]
    for key, words in _BOUNDS.items():
        if key in schema:
            yield f"{words} {int(schema[key]):,}"


def _linked(words: str) -> str:
    """Returns a description in which each path of a page (docs/...) is a link to this page."""
    linked = _PAGE_OF_DOCS.sub(lambda page: f"[{page[2]}](../{page[1]}{page[3] or ''})", words)
    return linked.replace("|", r"\|")


def renewed(page: str) -> str:
    """Returns the page with current tables of both programs. Raises ValueError if the page lacks the
    marks of a table."""
    for program in (EXTENDER, AGENT):
        page = replaced(page, program.source, rows(program))
    return page


if __name__ == "__main__":
    Path(PAGE).write_text(renewed(Path(PAGE).read_text()))
