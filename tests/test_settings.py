"""Tests of the extender's settings: environment variables set them, and a wrong setting ends the program
at once."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from extender.app import main
from extender.node_sync.drain_decision import DrainSettings
from extender.pod_request.annotations import DEFAULT_PAGE, PUBLISHED
from extender.pod_request.grace_period import GraceRule
from extender.pod_request.scope import Scope
from extender.policy.current import CurrentPolicy
from extender.settings import Settings
from tests.builders import TRANSLATION, pod_manifest
from wellknown.job_key import JobIdRange
from wellknown.names import DEVICE_PROBLEM

PREFIX = "SLURM_EXTENDER_"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets only the required setting. If the program starts in spite of a wrong setting, the test
    fails."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(PREFIX + "SLURM_TOKEN_FILE", "/run/token")
    monkeypatch.setattr("extender.app.serve", _started)


def _started(settings: Settings, policy: CurrentPolicy) -> None:
    pytest.fail(f"started with {settings}")


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """Starts the program with wrong settings. Returns the message on stderr."""
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANNOTATION_PREFIX", "sunk.coreweave.com"),
        ("ANNOTATION_PREFIX", "slurm-extender.io/"),
        ("GRES", "gpu"),
        ("GRES", "[]"),
        ("GRES", '{"nvidia.com/gpu": 1}'),
        ("GRES", '{"nvidia.com/gpu": " "}'),
        ("GRES", '{"nvidia.com/gpu": "gpu:"}'),
        ("GRES", '{"nvidia.com/gpu": "gpu:2"}'),
        ("GRES", '{"nvidia.com/gpu": "gpu:h100:2"}'),
        ("GRES", '{"nvidia.com/gpu": "gpu,shard"}'),
        ("GRES", '{"nvidia.com/mig-1g.10gb": "gpu:1g"}'),
        ("KILL_WAIT_S", "6"),
        ("KILL_WAIT_S", "long"),
        ("DEFAULT_GRACE", "keep"),
        ("DOCS_URL", ""),
        ("SHARED_GPUS", "share"),
        ("CPU_UNIT", "0"),
        ("CPU_UNIT", "-1"),
        ("CPU_UNIT", "half"),
        ("CPU_UNIT", "1500u"),
        ("CPU_UNIT", "1Ki1"),
        ("CPU_UNIT", "9999"),
        ("SLURMRESTD_URL", "127.0.0.1:6820"),
        ("SLURMRESTD_URL", "ftp://127.0.0.1"),
        ("SLURM_TIMEOUT_S", "0"),
        ("SLURM_TIMEOUT_S", "soon"),
        ("SLURM_CONCURRENCY", "0"),
        ("SLURM_CONCURRENCY", "1000"),
        ("JOB_ID_FIRST", "0"),
        ("JOB_ID_FIRST", "67043328"),
        ("JOB_ID_END", "67043329"),
        ("MAX_JOB_ID", "0"),
        ("MAX_JOB_COUNT", "0"),
        ("WINDOW", "0"),
        ("WINDOW", "many"),
        ("FAST_PATH", "perhaps"),
        ("POLL_INTERVAL_S", "0"),
        ("POLL_INTERVAL_S", "nan"),
        ("POLL_INTERVAL_S", "inf"),
        ("UNBOUND_DEADLINE_S", "-1"),
        ("SCHEDULER_PORT", "0"),
        ("ADMISSION_PORT", "65536"),
        ("HOOKS_PORT", "70000"),
        ("METRICS_PORT", "http"),
        ("HEALTH_PORT", ""),
        ("POLICY", "closed"),
        ("NAMESPACE", ""),
        ("SCOPE", "Cluster"),
        ("SCOPE", "cluster,web"),
        ("SCOPE", "team_a"),
        ("POD_SELECTOR", "a b"),
        ("POD_SELECTOR", "a in b"),
        ("SCHEDULER_NAME", "default-scheduler"),
        ("SCHEDULER_NAME", ""),
        ("TAKE_SCHEDULERS", "volcano,default-scheduler"),
        ("DRAIN_NODES", "sometimes"),
        ("DRAIN_TAINTS", "disk,slurm-extender.io/out-of-service"),
        ("DRAIN_CONDITIONS", "slurm-extender.io/SlurmOutOfService"),
        ("DRAIN_CONDITIONS", "DiskPressure,Ready"),
        ("TAINT_NODES", "2"),
        ("LOG_LEVEL", "info"),
        ("NODE_NAME_LABEL", "slurm-extender.io/node"),
        ("PRIORITY_CLASSES", "high"),
        ("PRIORITY_CLASSES", "high=urgent"),
        ("PRIORITY_CLASSES", "high=account:x"),
        ("PRIORITY_CLASSES", "high=qos:"),
        ("PRIORITY_CLASSES", "High=qos:x"),
        ("PRIORITY_CLASSES", "high=qos:x,high=qos:y"),
    ],
)
def test_wrong_value_is_reported_with_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    assert complaint(capsys).startswith(f"{PREFIX}{name}: ")


def test_missing_value_is_reported_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(PREFIX + "SLURM_TOKEN_FILE")
    assert complaint(capsys).startswith(f"{PREFIX}SLURM_TOKEN_FILE: ")


def test_all_wrong_values_are_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + "WINDOW", "0")
    monkeypatch.setenv(PREFIX + "SCHEDULER_PORT", "0")
    lines = complaint(capsys).splitlines()
    assert {line.split(":")[0] for line in lines} == {PREFIX + "WINDOW", PREFIX + "SCHEDULER_PORT"}


@pytest.mark.parametrize("given", ["TLS_CERT_FILE", "TLS_KEY_FILE"])
def test_certificate_without_key_or_key_without_certificate_is_reported(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + given, "/run/tls")
    told = complaint(capsys)
    assert "TLS_CERT_FILE" in told
    assert "TLS_KEY_FILE" in told


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.11", "::", "", "scheduler.example.org"])
def test_verbs_on_a_reachable_address_require_client_certificates(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + "SCHEDULER_ADDRESS", address)
    told = complaint(capsys)
    assert f"SCHEDULER_ADDRESS is {address}, which other hosts can reach" in told
    assert "set SCHEDULER_CLIENT_CA_FILE" in told
    monkeypatch.setenv(PREFIX + "SCHEDULER_CLIENT_CA_FILE", "/etc/ca.pem")
    monkeypatch.setenv(PREFIX + "TLS_SECRET", "slurm-extender-tls")
    assert Settings().scheduler_address == address


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7", "::1", "localhost"])
def test_verbs_on_a_loopback_address_need_no_client_certificate(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + "SCHEDULER_ADDRESS", address)
    assert Settings().scheduler_client_ca_file is None


@pytest.mark.parametrize("listener", ["SCHEDULER", "ADMISSION"])
def test_client_ca_requires_a_server_certificate(
    listener: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"{PREFIX}{listener}_CLIENT_CA_FILE", "/etc/ca.pem")
    assert "TLS_CERT_FILE and TLS_KEY_FILE, or TLS_SECRET" in complaint(capsys)


def test_policy_file_excludes_a_preset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + "POLICY_FILE", "/etc/policy.yaml")
    monkeypatch.setenv(PREFIX + "POLICY", "open")
    assert "set POLICY or POLICY_FILE, not both" in complaint(capsys)


def test_invalid_policy_is_reported_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("preset: closed\nrules: [x]\n")
    monkeypatch.setenv(PREFIX + "POLICY_FILE", str(file))
    lines = complaint(capsys).splitlines()
    told = [line.removeprefix(f"{PREFIX}POLICY_FILE: {file}:") for line in lines if PREFIX in line]
    assert [line.split(":")[0] for line in told] == ["1", "2"]


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "GRES", '{"example.com/npu": "npu:v2"}')
    monkeypatch.setenv(PREFIX + "SCHEDULER_NAME", "mine")
    monkeypatch.setenv(PREFIX + "TAKE_SCHEDULERS", "older, old")
    monkeypatch.setenv(PREFIX + "ANNOTATION_PREFIX", "x.example/")
    monkeypatch.setenv(PREFIX + "SLURMRESTD_URL", "unix:///run/slurmrestd.sock")
    monkeypatch.setenv(PREFIX + "CPU_UNIT", "100m")
    monkeypatch.setenv(PREFIX + "SHARED_GPUS", "refuse")
    settings = Settings()
    assert settings.slurm_token_file == Path("/run/token")
    assert settings.slurmrestd_url == "unix:///run/slurmrestd.sock"
    translation = settings.translation
    assert translation.gres == {"example.com/npu": "npu:v2"}
    assert translation.cpu_unit == Decimal("0.1")
    assert translation.shared_gpus == "refuse"
    assert translation.manages(pod_manifest(schedulerName="mine"))
    assert not translation.manages(pod_manifest())
    annotated = {"x.example/qos": "y"}
    assert translation.asks(pod_manifest(schedulerName="default-scheduler", annotations=annotated))
    assert translation.asks(pod_manifest(schedulerName="old"))
    assert not translation.asks(pod_manifest(schedulerName="x", annotations=annotated))


@pytest.mark.parametrize(
    "gres", ["gpu", "gpu:h100", "gpu:1g.10gb", "gpu:a100_1g.5gb", "gpu:3090ti", "fpga_2"]
)
def test_a_gres_may_have_a_type(gres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "GRES", json.dumps({"example.com/x": gres}))
    assert Settings().translation.gres == {"example.com/x": gres}


def test_resource_mapped_to_an_empty_gres_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "GRES", json.dumps({"nvidia.com/gpu": "gpu", "nvidia.com/hostdev": ""}))
    translation = Settings().translation
    assert translation.gres == {"nvidia.com/gpu": "gpu"}
    assert translation.not_gpus == {"nvidia.com/hostdev"}


def test_grace_rule_and_docs_url_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "KILL_WAIT_S", "60")
    monkeypatch.setenv(PREFIX + "DEFAULT_GRACE", "refuse")
    monkeypatch.setenv(PREFIX + "DOCS_URL", "https://wiki.example/slurm")
    translation = Settings().translation
    assert translation.grace == GraceRule(60, "refuse")
    assert translation.page == "https://wiki.example/slurm"


def test_drain_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "DRAIN_NODES", "false")
    monkeypatch.setenv(PREFIX + "DRAIN_TAINTS", "disk, gpu")
    monkeypatch.setenv(PREFIX + "TAINT_NODES", "true")
    monkeypatch.setenv(PREFIX + "DRAIN_CONDITIONS", "DiskPressure")
    taints, conditions = frozenset({"disk", "gpu"}), frozenset({"DiskPressure"})
    assert Settings().drain_settings == DrainSettings(False, taints, True, conditions)


def test_defaults_are_as_documented() -> None:
    settings = Settings()
    assert settings.drain_settings == DrainSettings(conditions=frozenset({DEVICE_PROBLEM}))
    assert settings.translation == replace(TRANSLATION, page=PUBLISHED + DEFAULT_PAGE)
    assert settings.scheduler_address == "127.0.0.1"
    assert settings.placement_config("c").ids == JobIdRange()


def test_annotation_prefix_reaches_the_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PREFIX + "ANNOTATION_PREFIX", "slurm.example.com/")
    assert Settings().placement_config("c").annotation_prefix == "slurm.example.com/"


def test_placeholder_ids_come_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "JOB_ID_FIRST", "1000")
    assert Settings().placement_config("c").ids == JobIdRange(1000)
    monkeypatch.setenv(PREFIX + "JOB_ID_END", "2000")
    assert Settings().placement_config("c").ids == Settings().placeholder_ids == JobIdRange(1000, 2000)


def test_empty_range_of_job_ids_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "JOB_ID_END", str(JobIdRange().first))
    with pytest.raises(ValidationError, match="JOB_ID_END must be above JOB_ID_FIRST"):
        Settings()


@pytest.mark.parametrize(("told", "within"), [(None, 65.0), (40, 45.0)])
def test_wait_for_leaving_pods_follows_kill_wait(
    told: int | None, within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + "KILL_WAIT_S", "60")
    assert Settings().placement_config("c", told).leaves_within == within


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.window = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        ("cluster", None),
        (" cluster ", None),
        ("team-a", ["team-a"]),
        ("team-a, team-b", ["team-a", "team-b"]),
        ("", ["slurm"]),
        (" ", ["slurm"]),
    ],
)
def test_blank_list_of_namespaces_means_the_extenders_own_namespace(
    text: str, namespaces: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + "SCOPE", text)
    monkeypatch.setenv(PREFIX + "NAMESPACE", "slurm")
    monkeypatch.setenv(PREFIX + "POD_SELECTOR", "slurm=yes")
    assert Settings().translation.scope == Scope.of(namespaces, "slurm=yes")


def test_everything_is_in_scope_by_default() -> None:
    assert Settings().translation.scope.everything


def test_webhook_name_is_a_service_of_the_namespace_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PREFIX + "NAMESPACE", "slurm")
    assert Settings().webhook_names == ("slurm-extender.slurm.svc",)
    monkeypatch.setenv(PREFIX + "TLS_NAMES", "a.example,b.example")
    assert Settings().webhook_names == ("a.example", "b.example")


def test_priority_classes_map_to_a_partition_a_qos_or_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().translation.priority_classes == {}
    given = "high=partition:urgent, high=qos:fast,low=qos:spare,"
    monkeypatch.setenv(PREFIX + "PRIORITY_CLASSES", given)
    expected = {"high": {"partition": "urgent", "qos": "fast"}, "low": {"qos": "spare"}}
    assert Settings().translation.priority_classes == expected


def test_qos_grace_is_a_list_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "QOS_GRACE", "low, spare")
    assert Settings().qos_grace == ("low", "spare")


def test_pools_file_requires_drain_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DRAIN_NODES, a cordoned Node would keep its slurmd for ever, and `kubectl drain` would
    wait for ever."""
    monkeypatch.setenv(PREFIX + "POOLS_FILE", "pools.yaml")
    assert Settings().pools_file == Path("pools.yaml")
    monkeypatch.setenv(PREFIX + "DRAIN_NODES", "false")
    with pytest.raises(ValidationError, match="POOLS_FILE needs DRAIN_NODES"):
        Settings()
