"""`python -m deploy.charts.pages` (`make docs`) writes values.schema.json's definitions and
docs/values.md from the chart's values and the programs' settings."""

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
PAGE: Final = Path(__file__).parents[2] / "docs/values.md"
_REFERENCES: Final = "#/definitions/{model}"
_BY_NAME: Final = {
    "affinity": "As in a Pod.",
    "annotations": "Annotations of that object.",
    "enabled": "Whether there are any.",
    "interval": "How often Prometheus asks.",
    "issuerRef": "cert-manager's issuer.",
    "key": "The key in that Secret.",
    "limits": "As in a container.",
    "nodeSelector": "As in a Pod.",
    "podAnnotations": "More annotations of the Pods.",
    "podLabels": "More labels of the Pods.",
    "priorityClassName": "As in a Pod.",
    "port": "Its port.",
    "pullPolicy": "As in a container.",
    "registry": "Of the image.",
    "repository": "Of the image.",
    "requests": "As in a container.",
    "tolerations": "As in a Pod.",
}
"""What is said of values whose names are Kubernetes' own."""
_OF_FILES: Final = {
    ("config", "slurm"): "As in slurm.conf(5).",
    ("config", "cgroup"): "As in cgroup.conf(5).",
    ("accounting", "slurmdbd", "config"): "As in slurmdbd.conf(5).",
    ("accounting", "mariadb", "config"): "As of mariadbd.",
}
"""What is said of parameters of other files, by the value that they are in."""
_HEAD: Final = """# Values of the chart

Made by `make docs` from the chart's values.yaml, its values.schema.json and the programs' settings.

Unknown values, and values that contradict each other, are refused by Helm before anything is installed.
"""


def renewed_schema(text: str) -> str:
    """Returns the schema with the definitions that the programs' own models have."""
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
    """Returns each value of a values file by its path: the comment above it, and the default."""
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
    """Returns the lines of comment just above a line."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(each.strip().removeprefix("#").strip() for each in lines[first:line])


def sections(text: str) -> Iterator[str]:
    """Yields the lines of a page of a values file: a table for each value at the top that has parts."""
    found = documented(text)
    parts = {path[0]: None for path in found if found_below(found, path)}
    yield from ("", "## At the top", "")
    yield from _table(found, [path for path in found if path[0] not in parts])
    for part in parts:
        yield from ("", f"## {part}", "")
        if words := found[part,][0]:
            yield from (words, "")
        yield from _table(found, [path for path in found if path[0] == part])


def found_below(found: Mapping[tuple[str, ...], object], path: tuple[str, ...]) -> bool:
    """Tells whether a value has parts with a place of their own."""
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
    """Returns what is said of a value: its comment, or what its name says."""
    return found[path][0] or _BY_NAME.get(path[-1]) or _OF_FILES.get(path[:-1], "")


def _settings() -> Iterator[str]:
    programs = (
        ("the extender", "extender", extender_settings()),
        ("the node agent", "nodeAgent", agent_settings()),
    )
    for program, values, known in programs:
        yield from ("", f"## Settings of {program}", "")
        yield from (f"Below `{values}.settings`, by either name.", "")
        yield from _settings_table(known)
    yield ""


def _settings_table(known: Sequence[Setting]) -> Iterator[str]:
    yield from ("| value | variable | default | meaning |", "|---|---|---|---|")
    for each in known:
        value = f"`{each.key}`" if each.made_of is None else f"made of {each.made_of}"
        default = "" if each.default is None else f"`{json.dumps(each.default)}`"
        yield f"| {value} | `{each.variable}` | {default} | {each.words} |"


def main() -> None:
    """Writes both files."""
    SCHEMA.write_text(renewed_schema(SCHEMA.read_text()))
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
