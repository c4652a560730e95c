"""Describes the settings of the extender and of the node agent as values of the chart.

Some settings have no separate value in the chart: the chart sets these settings itself, or derives them
from other values. For all other settings, this module makes a JSON Schema from the settings model of the
program.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings

from extender.settings import Settings as ExtenderSettings
from node_agent.settings import Settings as AgentSettings

_FIXED: Final = "the chart itself"
EXTENDER_MADE: Final[Mapping[str, str]] = {
    "kubeconfig": _FIXED,
    "namespace": "the release's namespace",
    "scope": "`scheduler.scope`",
    "pod_selector": "`scheduler.podSelector`",
    "scheduler_name": "`scheduler.name`",
    "scheduler_config_file": "`scheduler.mode`",
    "gres": "`gpuTypes`",
    "slurmrestd_url": "`slurm.restUrl`",
    "slurm_token_file": "`slurm.tokenSecret`",
    "kill_wait_s": "`slurmKillWait`",
    "policy_file": "`policy`",
    "policy": "`policy.preset`",
    "pools_file": "`pools`",
    "pools_namespace": "`pools.namespace`",
    "replica": "the Pod's name",
    "scheduler_address": "`scheduler.mode`",
    "scheduler_client_ca_file": "`scheduler.existing.clientCASecret`",
    "scheduler_port": _FIXED,
    "admission_port": _FIXED,
    "hooks_port": _FIXED,
    "metrics_port": _FIXED,
    "health_port": _FIXED,
    "tls_cert_file": "`webhooks.certificates`",
    "tls_key_file": "`webhooks.certificates`",
    "tls_secret": "`webhooks.certificates`",
    "tls_names": "the Service's name",
    "admission_client_ca_file": "`webhooks.certificates.clientCASecret`",
    "webhook_configuration": "the objects' name",
    "hooks_token_file": "`hooks.tokenSecret`",
}
"""Settings of the extender without a separate value in the chart, and the source of each setting."""
AGENT_MADE: Final[Mapping[str, str]] = {
    "node": "the Pod's Node",
    "pod_uid": "the Pod's uid",
    "gres": "`nodeAgent.gresList`",
    "kubeconfig": _FIXED,
    "cgroups": _FIXED,
    "nri": "`nodeAgent.nri`",
    "job_mapping": "`nodeAgent.jobMapping`",
    "cdi": _FIXED,
    "resources": "`gpuTypes`",
    "slurmd_namespace": "`pools.namespace`",
    "node_name_label": "`extender.settings.nodeNameLabel`",
    "bpf": _FIXED,
    "socket": _FIXED,
    "metrics_port": _FIXED,
    "health_port": _FIXED,
}
"""Settings of the node agent without a separate value in the chart, and the source of each setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a program."""

    name: str
    variable: str
    """Name of the environment variable."""
    schema: Mapping[str, Any]
    default: object
    words: str
    """Docstring of the setting in the code, as one line."""
    made_of: str | None
    """Source of the setting: the chart itself, or another value of the chart. None means that the chart
    has a separate value for the setting."""

    @property
    def key(self) -> str:
        """Name of the setting in the chart's values."""
        return to_camel(self.name)


def extender_settings() -> list[Setting]:
    return list(_settings(ExtenderSettings, EXTENDER_MADE))


def agent_settings() -> list[Setting]:
    return list(_settings(AgentSettings, AGENT_MADE))


def definition(settings: list[Setting]) -> dict[str, Any]:
    """Returns the JSON Schema of the values `settings` in a values file. Each setting has two names
    (`logLevel`, `LOG_LEVEL`), and a values file may use only one of the two."""
    own = [each for each in settings if each.made_of is None]
    properties, twice = dict[str, Any](), list[dict[str, Any]]()
    for each in own:
        upper = each.name.upper()
        properties |= {each.key: each.schema, upper: each.schema}
        if upper != each.key:
            twice.append({"not": {"required": [each.key, upper]}})
    return {"type": "object", "additionalProperties": False, "properties": properties, "allOf": twice}


def _settings(model: type[BaseSettings], made: Mapping[str, str]) -> Iterator[Setting]:
    words = _docstrings(model)
    prefix = model.model_config["env_prefix"]
    for name, described in model.model_json_schema()["properties"].items():
        schema, default = _simple(described), described.get("default")
        yield Setting(
            name, f"{prefix}{name.upper()}", schema, default, words.get(name, ""), made.get(name)
        )


def _simple(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema that the chart uses for a setting, from the schema of the settings model. In
    the chart, a list may also be a text with commas, and a map must be a text."""
    options = [each for each in described.get("anyOf", [described]) if each.get("type") != "null"]
    if len(options) > 1:  # a Kubernetes quantity
        return {"type": ["number", "string"]}
    kept = {key: value for key, value in options[0].items() if key not in ("default", "title", "format")}
    if kept["type"] == "array":
        return {"type": ["array", "string"], "items": {"type": "string"}}
    return {"type": "string"} if kept["type"] == "object" else kept


def _docstrings(model: type[BaseSettings]) -> dict[str, str]:
    """Returns the docstring below each field of a model, by the field's name."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant):
                found[field.target.id] = " ".join(str(text.value).split())
    return found
