"""Generates docs/reference/values.md, and the definitions in values.schema.json.

The sources are the chart's values.yaml, and the settings of the programs. `make docs` runs `python -m
deploy.charts.pages`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.charts import settings
from deploy.charts.settings import Setting, agent_settings, extender_settings
from extender.policy.file import PolicyModel
from extender.pools.file import PoolModel

CHART: Final = Path(__file__).with_name("slurm-extender")
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
PAGE: Final = Path(__file__).parents[2] / "docs/reference/values.md"
_REFERENCES: Final = "#/definitions/{model}"
_BY_NAME: Final = {
    "affinity": "Affinity of the Pods.",
    "annotations": "Annotations of the object.",
    "enabled": "`true` enables this part of the chart.",
    "interval": "Time between two scrapes.",
    "issuerRef": "Issuer of cert-manager.",
    "key": "Key in the Secret.",
    "limits": "Limits of the container.",
    "nodeSelector": "Node selector of the Pods.",
    "podAnnotations": "Additional annotations of the Pods.",
    "podLabels": "Additional labels of the Pods.",
    "priorityClassName": "PriorityClass of the Pods.",
    "port": "Port number.",
    "pullPolicy": "Pull policy of the image.",
    "registry": "Registry of the image.",
    "repository": "Repository of the image.",
    "requests": "Requests of the container.",
    "tolerations": "Tolerations of the Pods.",
}
"""Descriptions for values that have no comment in values.yaml, by the last part of a value's name."""
_OF_FILES: Final = {
    ("config", "slurm"): "See slurm.conf(5).",
    ("config", "cgroup"): "See cgroup.conf(5).",
    ("accounting", "slurmdbd", "config"): "See slurmdbd.conf(5).",
    ("accounting", "mariadb", "config"): "See the options of mariadbd.",
}
"""Descriptions for values that have no comment in values.yaml and are parameters of a configuration
file. The key is the path of the value that contains the parameters."""
_HEAD: Final = """# Values of the chart

This page lists all values of the chart slurm-extender. You must set `slurm.restUrl` and
`slurm.tokenSecret.name`: [install.md](../tasks/install.md) has a first `values.yaml`. Helm rejects
unknown and contradictory values before the installation.

`make docs` makes this page from the chart's values.yaml and from the settings of the programs.
"""


def renewed_schema(text: str) -> str:
    """Returns the text of the schema, with current definitions of the programs' settings, of the policy
    and of pools."""
    schema: dict[str, Any] = json.loads(text)
    definitions = schema["definitions"]
    definitions["extenderSettings"] = settings.definition(extender_settings())
    definitions["nodeAgentSettings"] = settings.definition(agent_settings())
    for name, model in (("policy", PolicyModel), ("pool", PoolModel)):
        made = model.model_json_schema(ref_template=_REFERENCES)
        definitions |= made.pop("$defs", {})
        definitions[name] = made
    return json.dumps(schema, indent=2) + "\n"


def page() -> str:
    """Returns the page of all values."""
    return _HEAD + "\n".join((*sections(VALUES.read_text()), *_settings()))


def documented(text: str) -> Mapping[tuple[str, ...], tuple[str, object]]:
    """Returns the comment above each value of a values file, and the default, by the value's path."""
    lines, found = text.splitlines(), dict[tuple[str, ...], tuple[str, object]]()
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    _note(root, (), lines, found)
    return found


def _note(
    node: yaml.MappingNode,
    above: tuple[str, ...],
    lines: Sequence[str],
    found: dict[tuple[str, ...], tuple[str, object]],
) -> None:
    for key, value in node.value:
        path = (*above, str(key.value))
        found[path] = (_comment(lines, key.start_mark.line), yaml.safe_load(yaml.serialize(value)))
        if isinstance(value, yaml.MappingNode) and value.flow_style is False:
            _note(value, path, lines, found)


def _comment(lines: Sequence[str], line: int) -> str:
    """Returns the comment directly above a line, as one line."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(each.strip().removeprefix("#").strip() for each in lines[first:line])


def sections(text: str) -> Iterator[str]:
    """Yields the lines of the page that describes a values file. The first table has the top-level
    values that contain no other described value. For each other top-level value, a section follows, with
    a table of the values in this value."""
    found = documented(text)
    parts = {path[0]: None for path in found if found_below(found, path)}
    yield from ("", "## Top-level values", "")
    yield from _table(found, [path for path in found if path[0] not in parts])
    for part in parts:
        yield from ("", f"## {part}", "")
        if words := found[part,][0]:
            yield from (words, "")
        yield from _table(found, [path for path in found if path[0] == part])


def found_below(found: Mapping[tuple[str, ...], object], path: tuple[str, ...]) -> bool:
    """Returns True if `found` has values inside the value at `path`."""
    return any(len(other) > len(path) and other[: len(path)] == path for other in found)


def _table(
    found: Mapping[tuple[str, ...], tuple[str, object]], paths: Sequence[tuple[str, ...]]
) -> Iterator[str]:
    yield from ("| value | default | meaning |", "|---|---|---|")
    for path in paths:
        words, default = words_of(found, path), json.dumps(found[path][1])
        if not found_below(found, path):
            yield f"| `{'.'.join(path)}` | `{default}` | {words} |"
        elif words and len(path) > 1:
            yield f"| `{'.'.join(path)}` | | {words} |"


def words_of(found: Mapping[tuple[str, ...], tuple[str, object]], path: tuple[str, ...]) -> str:
    """Returns the description of a value. If the value has no comment, the description comes from
    `_BY_NAME` or `_OF_FILES`."""
    return found[path][0] or _BY_NAME.get(path[-1]) or _OF_FILES.get(path[:-1], "")


def _settings() -> Iterator[str]:
    programs = (
        ("the extender", "extender", extender_settings()),
        ("the node agent", "nodeAgent", agent_settings()),
    )
    for program, values, known in programs:
        yield from ("", f"## Settings of {program}", "")
        yield f"Set a value below `{values}.settings`, by the name in the first column, or by the name"
        yield from ("of the variable without the program's prefix (`LOG_LEVEL`).", "")
        yield from _settings_table(known)
    yield ""


def _settings_table(known: Sequence[Setting]) -> Iterator[str]:
    yield from ("| value | variable | default | meaning |", "|---|---|---|---|")
    for each in known:
        value = f"`{each.key}`" if each.made_of is None else f"set by {each.made_of}"
        default = "" if each.default is None else f"`{json.dumps(each.default)}`"
        yield f"| {value} | `{each.variable}` | {default} | {each.words} |"


def main() -> None:
    """Writes values.schema.json and docs/reference/values.md."""
    SCHEMA.write_text(renewed_schema(SCHEMA.read_text()))
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
