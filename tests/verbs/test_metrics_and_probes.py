"""Tests of the listeners for Prometheus and for the kubelet's probes."""

import asyncio

import pytest
from structlog.testing import capture_logs

from service.health import Health
from tests.verbs.callers import Listeners, body


async def test_every_verb_is_measured_under_its_own_name() -> None:
    listeners = Listeners()
    await listeners.ask("filter", body("filter"))
    await listeners.ask("mutate", body("mutate"))
    await listeners.post("filter", b"{")
    page = (await listeners.metrics.get("/metrics")).text
    for verb, status in (("filter", 200), ("filter", 400), ("mutate", 200)):
        labels = f'status="{status}",verb="{verb}"'
        assert f"slurm_extender_verb_seconds_count{{{labels}}} 1.0" in page


async def test_extender_metrics_exist_from_the_start() -> None:
    page = (await Listeners().metrics.get("/metrics")).text
    for name in (
        "placement_seconds",
        "effect_seconds",
        "placeholder_transitions_total",
        "evictions_total",
    ):
        assert f"# TYPE slurm_extender_{name.removesuffix('_total')}" in page


async def test_the_program_is_alive_before_it_is_ready() -> None:
    listeners = Listeners()
    listeners.health.says("Slurm", "slurmctld was not reached")
    assert (await listeners.probes.get("/healthz")).status_code == 200
    ready = await listeners.probes.get("/readyz")
    assert ready.status_code == 503
    assert ready.json() == {"ready": False, "problems": ["Slurm"]}


async def test_problem_of_a_ready_extender_does_not_change_the_status_of_readyz() -> None:
    listeners = Listeners()
    listeners.health.ready = True
    listeners.health.says("Slurm", "slurmctld was not reached")
    ready = await listeners.probes.get("/readyz")
    assert (ready.status_code, ready.json()["problems"]) == (200, ["Slurm"])
    listeners.health.says("Slurm", None)
    assert (await listeners.probes.get("/readyz")).json() == {"ready": True, "problems": []}


async def test_readyz_and_metrics_name_the_component_and_the_log_the_reason() -> None:
    listeners, why = Listeners(), "/run/secrets/token is over since 10:00: slurmctld on ctl1 refuses it"
    with capture_logs() as logs:
        listeners.health.says("Slurm", why)
        listeners.health.says("Slurm", why)
        for number in range(100):
            listeners.health.says("eviction limiter", f"{number} are held back")
        listeners.health.says("Slurm", None)
    assert (await listeners.probes.get("/readyz")).json() == {
        "ready": False,
        "problems": ["eviction limiter"],
    }
    page = (await listeners.metrics.get("/metrics")).text
    assert 'slurm_extender_component_degraded{component="Slurm"} 0.0' in page
    assert 'slurm_extender_component_degraded{component="eviction limiter"} 1.0' in page
    assert "ctl1" not in page
    assert [(entry["event"], entry["part"], entry.get("error")) for entry in logs] == [
        ("problem", "Slurm", why),
        ("problem", "eviction limiter", "0 are held back"),
        ("problem ended", "Slurm", None),
    ]


def test_rate_limited_message_is_logged_later() -> None:
    now = [0.0]
    health = Health(lambda: now[0])
    with capture_logs() as logs:
        for words in ("line 1", "line 2", "line 3", "line 3"):
            health.says("policy", words, alarm=True)
        for second in range(60):
            now[0] = float(second)
            health.make_up()
    assert [(line["log_level"], line["error"]) for line in logs] == [
        ("error", "line 1"),
        ("error", "line 3"),
    ]


async def test_rate_limited_message_is_logged_without_another_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, now = asyncio.Event(), [0.0]
    health = Health(lambda: now[0])

    def make_up() -> None:
        Health.make_up(health)
        looked.set()

    monkeypatch.setattr("service.health._LOOK_S", 0.001)
    monkeypatch.setattr(health, "make_up", make_up)
    with capture_logs() as logs:
        health.says("eviction limiter", "1 is held back")
        health.says("eviction limiter", "2 are held back")
        now[0] = 30.0
        looks = asyncio.create_task(health.run())
        async with asyncio.timeout(5):
            await looked.wait()
        looks.cancel()
    assert [line["error"] for line in logs] == ["1 is held back", "2 are held back"]


async def test_no_listener_answers_for_another() -> None:
    """A client with access to the probes cannot bind Pods."""
    listeners = Listeners()
    for client in (listeners.metrics, listeners.probes, listeners.hooks):
        for path in ("/scheduler/bind", "/mutate"):
            assert (await client.post(path, json=body("bind"))).status_code == 404
