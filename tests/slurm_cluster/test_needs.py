"""Tests of `needs.TABLE`, the actions that changed settings need: the table agrees with slurm.conf(5) of
each release whose manual is installed."""

import gzip
import re

import pytest

from deploy.local.spec import DEBIAN_SUITES
from slurm_cluster.configuration.needs import TABLE, Need, of_setting
from tests.slurm_programs import tree_of

pytestmark = pytest.mark.real

ENOUGH = {"SwitchType"}
"""Settings for which the manual asks for a restart, and elsewhere says that a reconfiguration is enough.
The table demands a restart."""
RESTART = re.compile(r"\brestart(ed|ing)?\b", re.IGNORECASE)


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def manual(request: pytest.FixtureRequest) -> str:
    packed = tree_of(request.param) / "usr/share/man/man5/slurm.conf.5.gz"
    return gzip.decompress(packed.read_bytes()).decode()


def entries(manual: str) -> dict[str, str]:
    """Returns the manual's text about each parameter. Parameters of nodes and partitions are left
    out."""
    part = manual.partition('.SH "PARAMETERS"')[2].partition('.SH "NODE CONFIGURATION"')[0]
    heads = list(re.finditer(r"^\.TP\n\\fB([A-Z]\w+)\\fR$", part, re.MULTILINE))
    ends = [*(head.start() for head in heads[1:]), len(part)]
    return {head[1]: part[head.end() : end] for head, end in zip(heads, ends, strict=True)}


def test_listening_settings_need_a_restart_as_in_the_manual(manual: str) -> None:
    assert "Changes to TCP listening settings will require a daemon restart" in manual
    assert "unless otherwise noted" in manual
    for key in ("SlurmctldPort", "SlurmctldHost", "SlurmdPort", "CommunicationParameters"):
        assert key in entries(manual)
        assert of_setting(key).need >= Need.RESTART


def test_settings_that_need_a_restart_in_the_manual_are_in_the_table(manual: str) -> None:
    told = {
        key
        for key, text in entries(manual).items()
        if re.search(
            r"daemons(?: and commands)?[^.]*\b(?:terminated|restarted)", text.replace("\n", " ")
        )
    }
    assert told >= {"AuthType", "SwitchType"}
    assert {key for key in told if of_setting(key).need < Need.RESTART} == set()


def test_the_table_has_only_keys_of_the_manual(manual: str) -> None:
    known = {key.lower() for key in entries(manual)}
    assert {key for key in TABLE if key not in known} <= {"slurmctldaddr"}
