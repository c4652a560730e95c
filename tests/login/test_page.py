"""Tests of the example values of docs/tasks/users.md and docs/reference/users.md: the chart accepts the
values. Further tests check the options of sssd.conf in each preset."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from tests.documentation.pages import Block, blocks
from tests.login.chart import rendered

pytestmark = pytest.mark.real

OURS = {"directory", "login", "volumes"}
SHOWN = [
    block
    for page in ("docs/tasks/users.md", "docs/reference/users.md")
    for block in blocks(CHECKOUT / page)
    if block.language == "yaml" and OURS.issuperset(yaml.safe_load(block.text))
]
PRESETS = ("openldap", "active-directory", "okta", "authentik", "google")


def options_of(values: dict[str, Any]) -> dict[str, str]:
    """Returns the options of the domain in sssd.conf."""
    text: str = rendered(values).find("ConfigMap", "slurm-directory")["data"]["sssd.conf"]
    _, _, domain = text.partition("[domain/directory]\n")
    return dict(line.split(" = ", 1) for line in domain.splitlines() if line)


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_the_chart_takes_the_values_of_the_pages(block: Block) -> None:
    assert rendered(yaml.safe_load(block.text)).find("Deployment", "login")


def test_the_pages_have_an_example_of_each_preset() -> None:
    values = [yaml.safe_load(block.text) for block in SHOWN]
    presets = [each["directory"]["preset"] for each in values if "preset" in each.get("directory", {})]
    assert presets == list(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_requires_a_valid_certificate(preset: str) -> None:
    directory = {"preset": preset, "uris": ["ldap://a"], "baseDn": "dc=a"}
    options = options_of({"directory": directory | {"clientCertificateSecret": "c"}})
    assert options["ldap_tls_reqcert"] == "demand"
    assert options["ldap_id_use_start_tls"] == "true"
    assert options["ldap_tls_cert"] == "/etc/directory-client/tls.crt"


def test_options_of_the_values_override_presets_and_null_removes_an_option() -> None:
    options = {"ldap_schema": "rfc2307bis", "ldap_account_expire_policy": None, "offline_timeout": 10**6}
    directory = {"preset": "openldap", "uris": ["ldaps://a"], "baseDn": "dc=a", "options": options}
    found = options_of({"directory": directory})
    assert found["ldap_schema"] == "rfc2307bis"
    assert "ldap_account_expire_policy" not in found
    assert found["offline_timeout"] == "1000000"
    assert found["ldap_id_use_start_tls"] == "true"
