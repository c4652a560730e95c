"""Plays kube-scheduler: sends kube-scheduler's requests /filter and /bind, for one Pod after another.

`python -m loadtest load` starts a cluster, runs this file, and judges the times. To run this file by
hand against a running extender:

    locust -f loadtest/locustfile.py --headless -H http://127.0.0.1:8888 -u 8 -t 60s --pods pods.json

kube-scheduler makes no other call for these Pods, because the chart's configuration names no
prioritizeVerb. kube-scheduler does not call /preempt either, because no eviction helps a Pod that
/filter rejects (FailedAndUnresolvableNodes).

The time of a Pod's chain includes both calls. Several Pods are in progress at once. Pods start at a
steady pace. While enough locust users are free, this pace does not depend on the speed of the answers.
Answers are checked, because extenders answer 200 even after a failure.
"""

import itertools
import random
import time
from argparse import Namespace
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx
import orjson
from locust import FastHttpUser, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser

from deploy.local.demo.findings import percentile
from loadtest.harness.meters import VERB_SECONDS, Histogram
from loadtest.scenarios.load import LoadKind, PreparedPod, PreparedPods

_WARM_UP_S: Final = 1.0
"""Duration of the warm-up. Calls in this time open the connections, and are not judged."""
_THROUGH_WITHIN_S: Final = 5.0
_METRICS_S: Final = 10.0
_HEADERS: Final = {"Content-Type": "application/json"}


class Run:
    def __init__(self, options: Namespace) -> None:
        prepared = PreparedPods.read(Path(options.pods))
        self.todo = deque(prepared.pods)
        self.names_written = orjson.dumps(prepared.node_names)
        self._pods, self._placed = len(prepared.pods), 0
        self._options = options
        self._ms: defaultdict[str, list[float]] = defaultdict(list)
        self._failed = Counter[str]()
        self._numbers = itertools.count()
        self._begun = time.perf_counter()

    def take(self) -> tuple[PreparedPod, float]:
        """Returns the next Pod and its start time. The start times of all users together are evenly
        spaced."""
        return self.todo.popleft(), self._begun + next(self._numbers) / self._options.rate

    def through(self) -> bool:
        """Counts one more finished Pod. Returns True for the last Pod."""
        self._placed += 1
        return self._placed == self._pods

    def record_call(self, name: str, response_time: float, exception: object, **_: Any) -> None:
        """Records the time of a call. During the warm-up, records only failed calls."""
        if exception or time.perf_counter() > self._begun + _WARM_UP_S:
            self._ms[name].append(response_time)
            self._failed[name] += exception is not None

    def tell(self, **_: Any) -> None:
        metrics, figures = self._options.metrics, self._options.figures
        page = httpx.get(metrics, timeout=_METRICS_S).text if metrics else ""
        if figures:
            Path(figures).write_bytes(orjson.dumps(self._figures(page), option=orjson.OPT_INDENT_2))

    def _figures(self, metrics: str) -> dict[str, Any]:
        """Returns the figures of each kind of call, the number of failed calls, and the number of
        overdue Pods. An overdue Pod should have started at least _THROUGH_WITHIN_S ago, and is not
        finished. Overdue Pods are counted, because locust never reports a call that does not end.

        `metrics` is the extender's page of metrics. Each of the extender's own times counts as the upper
        bound of its histogram bucket.
        """
        own = Histogram.of(metrics, VERB_SECONDS, verb="filter", status="200")
        self._ms["filter by the extender's clock"] += own.longest_ms()
        due = (time.perf_counter() - _THROUGH_WITHIN_S - self._begun) * self._options.rate
        summaries = {kind: self._summary(kind, ms) for kind, ms in sorted(self._ms.items()) if ms}
        overdue = max(0, min(self._pods, int(due)) - self._placed)
        return {**summaries, "failed_calls": self._failed.total(), "overdue_pods": overdue}

    def _summary(self, kind: str, ms: Sequence[float]) -> dict[str, float]:
        times = {f"p{part}_ms": round(percentile(ms, part) or 0.0, 2) for part in (50, 95, 99, 100)}
        return {"calls": len(ms), "failed": self._failed[kind], **times}


@events.init_command_line_parser.add_listener
def _options(parser: LocustArgumentParser) -> None:
    parser.add_argument("--pods", required=True, help="file from loadtest.scenarios.load")
    parser.add_argument("--rate", type=float, default=20.0, help="Pods per second, all users together")
    parser.add_argument("--metrics", default="", help="URL of the extender's page of metrics")
    parser.add_argument("--figures", default="", help="JSON file for the figures")


@events.test_start.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    assert environment.parsed_options is not None
    run = KubeScheduler.run_of_all = Run(environment.parsed_options)
    events.request.add_listener(run.record_call)
    events.quitting.add_listener(run.tell)


class KubeScheduler(FastHttpUser):
    """Places one Pod at a time."""

    run_of_all: Run

    @task
    def place_next(self) -> None:
        """Places the next Pod at its start time. The run ends after the last Pod, or at the time limit
        of the run."""
        if not self.run_of_all.todo:
            raise StopUser
        pod, due = self.run_of_all.take()
        time.sleep(max(0.0, due - time.perf_counter()))
        self._place(pod, due)
        if self.run_of_all.through() and self.environment.runner:
            self.environment.runner.quit()

    def _place(self, pod: PreparedPod, due: float) -> None:
        """Places a Pod. The time of the chain counts from `due`, the Pod's planned start time, even if
        no locust user was free at this time."""
        filtered = self._ask("filter", pod, _args(pod, self.run_of_all.names_written), _wrong_filter)
        nodes = (filtered or {}).get("NodeNames")
        if pod.kind is LoadKind.WAITING or not nodes:
            return
        metadata = pod.manifest["metadata"]
        names = {"PodName": "name", "PodNamespace": "namespace", "PodUID": "uid"}
        args = {name: metadata[key] for name, key in names.items()}
        # kube-scheduler counts the Pods on each Node, but this program does not. So an unmanaged Pod
        # gets a random Node of the last quarter of `nodes`. Slurm fills the first Nodes first, so the
        # last quarter has room for all unmanaged Pods.
        args["Node"] = pod.node or random.choice(nodes[-(len(nodes) + 3) // 4 :])  # noqa: S311
        if self._ask("bind", pod, orjson.dumps(args), lambda _, answer: str(answer.get("Error"))):
            took = {"response_time": (time.perf_counter() - due) * 1000, "response_length": 0}
            name = _named("chain", pod)
            events.request.fire(request_type="POST", name=name, **took, exception=None, context={})

    def _ask(
        self, verb: str, pod: PreparedPod, body: bytes, wrong: Callable[[PreparedPod, Any], str]
    ) -> Any:
        """Returns the extender's answer, or None if the call fails or `wrong` names a fault. locust also
        accepts bytes as the body."""
        url, data, name = f"/scheduler/{verb}", cast("str", body), _named(verb, pod)
        with self.client.post(url, data, headers=_HEADERS, name=name, catch_response=True) as response:
            succeeded = response.status_code == 200
            answer = orjson.loads(response.content) if succeeded else None
            if why := wrong(pod, answer) if succeeded else f"HTTP {response.status_code}":
                response.failure(why)
                return None
            return answer


def _args(pod: PreparedPod, names: bytes) -> bytes:
    """Returns ExtenderArgs, as kube-scheduler sends them to a nodeCacheCapable extender."""
    return b'{"Pod":' + orjson.dumps(pod.manifest) + b',"Nodes":null,"NodeNames":' + names + b"}"


def _named(verb: str, pod: PreparedPod) -> str:
    """Returns the name under which a call is timed. For a Pod with an allocation, this is the plain name
    of the verb, because these times matter most."""
    return verb if pod.kind is LoadKind.GRANTED else f"{verb} {pod.kind}"


def _wrong_filter(pod: PreparedPod, answer: Any) -> str:
    names = answer.get("NodeNames")
    if pod.kind is LoadKind.UNMANAGED:
        return "" if names else "no Node has room"
    expected = [pod.node] if pod.kind is LoadKind.GRANTED else []
    return "" if names == expected else f"not the Node that Slurm granted: {answer.get('Error')}"
