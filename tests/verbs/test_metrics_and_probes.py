"""What Prometheus and the kubelet see of the listeners."""

from __future__ import annotations

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


async def test_our_own_metrics_are_there_from_the_start() -> None:
    page = (await Listeners().metrics.get("/metrics")).text
    for name in ("placement_seconds", "effect_seconds", "moves_total", "evictions_total"):
        assert f"# TYPE slurm_extender_{name.removesuffix('_total')}" in page


async def test_the_program_is_alive_before_it_is_ready() -> None:
    listeners = Listeners()
    listeners.health.says("Slurm", "slurmctld was not reached")
    assert (await listeners.probes.get("/healthz")).status_code == 200
    ready = await listeners.probes.get("/readyz")
    assert ready.status_code == 503
    assert ready.json() == {"ready": False, "troubles": {"Slurm": "slurmctld was not reached"}}


async def test_once_recovered_trouble_is_told_and_takes_nobody_out_of_service() -> None:
    listeners = Listeners()
    listeners.health.ready = True
    listeners.health.says("Slurm", "slurmctld was not reached")
    ready = await listeners.probes.get("/readyz")
    assert (ready.status_code, ready.json()["troubles"]) == (200, {"Slurm": "slurmctld was not reached"})
    listeners.health.says("Slurm", None)
    assert (await listeners.probes.get("/readyz")).json() == {"ready": True, "troubles": {}}


async def test_no_listener_answers_for_another() -> None:
    """Who may reach the probes may not bind Pods."""
    listeners = Listeners()
    for client in (listeners.metrics, listeners.probes, listeners.hooks):
        for path in ("/scheduler/bind", "/mutate"):
            assert (await client.post(path, json=body("bind"))).status_code == 404
