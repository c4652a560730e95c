"""Tests of environment variables that have a program's prefix, but are no settings."""

import pytest

from extender.settings import Settings as ExtenderSettings
from node_agent.settings import Settings as AgentSettings
from service.settings import from_environment, log_unknown_variables, unknown_variables

SLURMRESTD = "SLURM_EXTENDER_SLURMRESTD_URL"


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SLURM_EXTENDER_SLURMRESTD_ULR", SLURMRESTD),
        ("slurm_extender_slurmrestd_ulr", SLURMRESTD),
        ("SLURM_EXTENDER_SLURMRESTDURL", SLURMRESTD),
        ("SLURM_EXTENDER_SLURM_TOKENFILE", "SLURM_EXTENDER_SLURM_TOKEN_FILE"),
        ("SLURM_EXTENDER_TOKEN_FILE", "SLURM_EXTENDER_SLURM_TOKEN_FILE"),
        ("SLURM_EXTENDER_SLURM_TOKEN", "SLURM_EXTENDER_SLURM_TOKEN_FILE"),
        ("SLURM_EXTENDER_SLURMRESTD", SLURMRESTD),
        ("SLURM_EXTENDER_KILLWAIT", "SLURM_EXTENDER_KILL_WAIT_S"),
        ("SLURM_EXTENDR_SCOPE", "SLURM_EXTENDER_SCOPE"),
        ("SLURM_EXTENDER_PORT", None),
        ("SLURM_EXTENDER_KUBE_SCHEDULER", None),
        ("SLURM_EXTENDER_COLOUR", None),
    ],
)
def test_similar_setting_of_an_unknown_variable_is_named(variable: str, meant: str | None) -> None:
    environment = {variable: "x", SLURMRESTD: "http://a", "SLURMRESTD_ULR": "another program's"}
    assert unknown_variables(ExtenderSettings, environment) == {variable: meant}


def test_variables_without_the_prefix_are_ignored() -> None:
    environment = {"KUBECONFIG": "x", "NAMESPACE": "x", "SCOPE": "x", "SLURM_CLUSTER_NAME": "x"}
    assert unknown_variables(ExtenderSettings, environment) == {}


def test_variables_of_services_by_the_kubelet_are_ignored() -> None:
    port = {"PORT_443_TCP": "tcp://10.0.0.1:443", "PORT_443_TCP_PORT": "443"}
    port |= {"PORT": "tcp://10.0.0.1:443", "PORT_443_TCP_PROTO": "tcp", "PORT_443_TCP_ADDR": "10.0.0.1"}
    service = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "443", "SERVICE_PORT_HTTPS": "443", **port}
    environment = {
        f"{name}_{key}": value
        for name in ("SLURM_EXTENDER", "SLURM_EXTENDER_HOOKS")
        for key, value in service.items()
    }
    assert unknown_variables(ExtenderSettings, environment) == {}
    assert unknown_variables(ExtenderSettings, {"SLURM_EXTENDER_PORT": "8888"})


def test_wrong_settings_and_unknown_variables_end_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_AGENT_NOD", "node-1")
    with pytest.raises(SystemExit) as end:
        from_environment(AgentSettings, gres="/run/gres")
    assert end.value.code == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("NODE_AGENT_NODE: ")
    assert told[1] == "NODE_AGENT_NOD is no setting; NODE_AGENT_NODE is probably meant"


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("KILL_WAIT_S", "abc", '"abc" is not a whole number'),
        ("POLL_INTERVAL_S", "often", '"often" is not a number'),
        ("FAST_PATH", "perhaps", '"perhaps" is neither true nor false'),
        ("SLURMRESTD_URL", "nonsense", '"nonsense" does not match ^(https?|unix)://'),
    ],
)
def test_wrong_value_is_named_in_plain_words(
    setting: str,
    value: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(f"SLURM_EXTENDER_{setting}", value)
    with pytest.raises(SystemExit):
        from_environment(ExtenderSettings)
    told = capsys.readouterr().err.splitlines()
    assert f"SLURM_EXTENDER_{setting}: {words}" in told
    assert "SLURM_EXTENDER_SLURM_TOKEN_FILE: not set, and without a default" in told


def test_unknown_variables_are_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_AGENT_NOD", "node-1")
    log_unknown_variables(AgentSettings)
    told = capsys.readouterr()
    assert "NODE_AGENT_NODE" in told.out + told.err
