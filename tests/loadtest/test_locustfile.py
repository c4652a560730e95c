"""Tests of locust as it plays kube-scheduler, against a fake extender."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from deploy.local.layout import CHECKOUT
from loadtest.scenarios.load import LoadKind, PreparedPod, PreparedPods

pytestmark = pytest.mark.alone  # locust's time limit includes locust's own start

LOCUSTFILE = CHECKOUT / "loadtest/locustfile.py"
_HANGS_S = 20  # seconds; after its time limit, locust still waits for open calls
NODES = [f"node-{number}" for number in range(50)]


@dataclass
class Extender:
    """A fake extender that binds every Pod once. If `faithful`, grants each Pod the prepared Node,
    otherwise always node-0."""

    prepared: PreparedPods
    faithful: bool = True
    answers: int = 1000
    """Number of /filter calls that get an answer. The call after that hangs."""
    calls: Counter[str] = field(default_factory=Counter)
    bound: set[str] = field(default_factory=set)

    async def filter(self, request: web.Request) -> web.Response:
        self.calls["filter"] += 1
        args = orjson.loads(await request.read())
        if self.calls["filter"] > self.answers:
            await asyncio.sleep(_HANGS_S)
        assert args["NodeNames"] == NODES
        uid = args["Pod"]["metadata"]["uid"]
        pod = next(one for one in self.prepared.pods if one.manifest["metadata"]["uid"] == uid)
        granted = [pod.node if self.faithful else NODES[0]]
        names = {LoadKind.GRANTED: granted, LoadKind.WAITING: [], LoadKind.UNMANAGED: NODES}[pod.kind]
        return web.json_response({"NodeNames": names})

    async def bind(self, request: web.Request) -> web.Response:
        self.calls["bind"] += 1
        args = orjson.loads(await request.read())
        assert args["PodUID"] not in self.bound
        self.bound.add(args["PodUID"])
        return web.json_response({"Error": "" if self.faithful else "no such luck"})

    async def metrics(self, _: web.Request) -> web.Response:
        labels = 'verb="filter",status="200",le="0.002"'
        return web.Response(
            text=f"slurm_extender_verb_seconds_bucket{{{labels}}} {self.calls['filter']}\n"
        )


def prepared(number: int, kind: LoadKind) -> PreparedPod:
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": str(number)}
    node = NODES[1 + number % 40] if kind is LoadKind.GRANTED else ""
    return PreparedPod(kind, {"metadata": metadata, "spec": {}}, node)


PREPARED = PreparedPods(NODES, [prepared(number, [*LoadKind][number % 3]) for number in range(60)])


def run(extender: Extender, folder: Path, *, longest: str = "30s") -> Mapping[str, Any]:
    """Runs locust against the fake extender, and returns the measured figures."""

    async def load() -> None:
        runner = web.AppRunner(application(extender), shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        process = await asyncio.create_subprocess_exec(
            *command(runner.addresses[0][1], folder, longest),
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=-2,
        )
        await process.communicate()
        await runner.cleanup()

    extender.prepared.write(folder / "pods.json")
    asyncio.run(load())
    figures: Mapping[str, Any] = orjson.loads((folder / "figures.json").read_bytes())
    return figures


def application(extender: Extender) -> web.Application:
    served = web.Application(client_max_size=1 << 24)
    for verb in (extender.filter, extender.bind):
        served.router.add_post(f"/scheduler/{verb.__name__}", verb)
    served.router.add_get("/metrics", extender.metrics)
    return served


def command(port: int, folder: Path, longest: str) -> list[str]:
    options = ["-u4", "-r100", f"-t{longest}", "--rate=40", f"--html={folder / 'report.html'}"]
    names = {"csv": "csv", "pods": "pods.json", "figures": "figures.json"}
    files = [f"--{option}={folder / name}" for option, name in names.items()]
    start = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    url = f"http://127.0.0.1:{port}"
    return [*start, "-H", url, f"--metrics={url}/metrics", *options, *files]


def test_each_pod_is_filtered_and_bound_once(tmp_path: Path) -> None:
    extender = Extender(PREPARED)
    figures = run(extender, tmp_path)
    assert extender.calls == {"filter": 60, "bind": 40}
    assert (figures["failed_calls"], figures["overdue_pods"]) == (0, 0)
    assert figures["chain"]["failed"] == figures["bind"]["failed"] == 0
    own = figures["filter by the extender's clock"]
    assert (own["calls"], own["p50_ms"], own["p99_ms"]) == (60, 2.0, 2.0)
    assert 0 < figures["bind"]["p50_ms"] <= figures["chain"]["p50_ms"]
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert "filter waiting" in (tmp_path / "csv_stats.csv").read_text()


def test_quick_wrong_reply_is_a_failure(tmp_path: Path) -> None:
    figures = run(Extender(PREPARED, faithful=False), tmp_path)
    assert figures["filter"]["failed"] == 20
    assert figures["bind unmanaged"]["failed"] == 20  # for other Pods, bind is not called
    assert figures["failed_calls"] == 40
    assert "bind" not in figures


def test_pods_of_calls_without_an_end_are_overdue(tmp_path: Path) -> None:
    """Only finished calls have a time, and the finished calls were quick. So the times alone would hide
    the hanging calls."""
    figures = run(Extender(PREPARED, answers=50), tmp_path, longest="15s")
    assert figures["filter"]["p99_ms"] < 10_000
    assert figures["overdue_pods"] == 10
