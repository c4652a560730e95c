"""kube-scheduler's part: filter, prioritize and bind, Pod after Pod, as it sends them.

`python -m loadtest.load` brings up what it needs and runs it. By hand, against an extender that runs:

    locust -f loadtest/locustfile.py --headless -H http://127.0.0.1:8888 -u 8 -t 60s --stock stock.json

A Pod of the stock is taken once. The chain of a Pod is its three calls, one after the other; several
Pods are under way at once, at a pace that does not depend on how fast the answers come, as long as the
users suffice. Answers are checked: extenders answer 200 also where they fail. At the end the times are
judged: exit status 1 where a budget is not kept.
"""

import itertools
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import httpx
import orjson
from locust import FastHttpUser, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser

from loadtest.budgets import BUDGETS, Calls, budgets, verdicts
from loadtest.figures import Verdict
from loadtest.scrape import VERB_SECONDS, Histogram
from loadtest.stock import Kind, Stock, StockedPod

_WARM_UP_S: Final = 1.0
"""What is called before makes the connections: it is not judged."""
_THROUGH_WITHIN_S: Final = 5.0
_METRICS_S: Final = 10.0
_HEADERS: Final = {"Content-Type": "application/json"}


class Run:
    """What the users of this process share."""

    def __init__(self, stock: Stock) -> None:
        self.names = stock.node_names
        self.todo = deque(stock.pods)
        self.pods, self.placed = len(stock.pods), 0
        self.names_written = orjson.dumps(stock.node_names)
        self.calls: dict[str, Calls] = defaultdict(Calls)
        self._numbers = itertools.count()
        self._begun = time.perf_counter()

    def take(self, rate: float) -> tuple[StockedPod, float]:
        """The next Pod, and when it is due: one after the other, evenly, and not all users at once."""
        return self.todo.popleft(), self._begun + next(self._numbers) / rate

    def overdue(self, rate: float) -> int:
        """How many Pods were due a while ago and are not through: no one hears of a call without end."""
        due = (time.perf_counter() - _THROUGH_WITHIN_S - self._begun) * rate
        return max(0, min(self.pods, int(due)) - self.placed)

    def heard(self, kind: str, ms: float, *, failed: bool) -> None:
        if failed or time.perf_counter() > self._begun + _WARM_UP_S:
            self.calls[kind].add(ms, failed=failed)


_runs: list[Run] = []


@events.init_command_line_parser.add_listener
def _options(parser: LocustArgumentParser) -> None:
    parser.add_argument("--stock", required=True, help="the Pods, as loadtest.stock writes them")
    parser.add_argument("--rate", type=float, default=20.0, help="Pods a second, of all users")
    parser.add_argument("--budgets", default=str(BUDGETS), help="the file that says what is allowed")
    parser.add_argument("--metrics", default="", help="the extender's page of metrics, as a URL")
    parser.add_argument("--figures", default="", help="where the figures go, as JSON")


@events.test_start.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    assert environment.parsed_options is not None
    _runs.append(Run(Stock.read(Path(environment.parsed_options.stock))))


@events.request.add_listener
def _heard(name: str, response_time: float, exception: Exception | None, **_: Any) -> None:
    _runs[-1].heard(name, response_time, failed=exception is not None)


@events.quitting.add_listener
def _judge(environment: Environment, **_: Any) -> None:
    assert environment.parsed_options is not None
    options, run = environment.parsed_options, _runs[-1]
    if options.metrics:
        page = httpx.get(options.metrics, timeout=_METRICS_S).text
        for verb in ("filter", "prioritize"):
            answered = Histogram.of(page, VERB_SECONDS, verb=verb, status="200")
            run.calls[f"{verb} by the extender's clock"] = Calls(answered.longest_ms())
    found = verdicts(budgets(Path(options.budgets), len(run.names)), run.calls)
    overdue = run.overdue(options.rate)
    words = f"{overdue} Pods are not through {_THROUGH_WITHIN_S:g} s after they were due (budget: 0)"
    found.append(Verdict(words, kept=not overdue))
    for verdict in found:
        print(f"{verdict.word}: {verdict.words}")  # noqa: T201 -- a command's
    if options.figures:
        told = {kind: calls.as_json() for kind, calls in sorted(run.calls.items())}
        Path(options.figures).write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2))
    environment.process_exit_code = 0 if all(verdict.kept for verdict in found) else 1


class KubeScheduler(FastHttpUser):
    """One Pod's way at a time."""

    def on_start(self) -> None:
        options = self.environment.parsed_options
        assert options is not None
        self._run = _runs[-1]
        self._rate = options.rate

    @task
    def place_next(self) -> None:
        """The next Pod, when it is due. The run ends with the last one, or when its time is over."""
        if not self._run.todo:
            raise StopUser
        pod, due = self._run.take(self._rate)
        time.sleep(max(0.0, due - time.perf_counter()))
        self._place(pod, due)
        self._run.placed += 1
        if self._run.placed == self._run.pods and self.environment.runner:
            self.environment.runner.quit()

    def _place(self, pod: StockedPod, due: float) -> None:
        """Its chain. The clock runs from when it was due, also where no user was free by then."""
        nodes = self._filter(pod)
        if pod.kind is Kind.WAITING or not nodes:
            return
        self._prioritize(pod, nodes)
        if self._bind(pod, pod.node or _with_room(nodes)):
            ms = (time.perf_counter() - due) * 1000
            events.request.fire(
                request_type="POST",
                name=_named("chain", pod),
                response_time=ms,
                response_length=0,
                exception=None,
                context={},
            )

    def _filter(self, pod: StockedPod) -> list[str]:
        """The Nodes that are left."""
        args = _args(pod, self._run.names_written)
        answer = self._ask("filter", _named("filter", pod), args, _wrong_filter(pod))
        return list(answer.get("NodeNames") or ()) if isinstance(answer, dict) else []

    def _prioritize(self, pod: StockedPod, nodes: list[str]) -> None:
        def wrong(answer: Any) -> str:
            scored = isinstance(answer, list) and len(answer) == len(nodes)
            return "" if scored else "not every Node has its score"

        self._ask("prioritize", "prioritize", _args(pod, orjson.dumps(nodes)), wrong)

    def _bind(self, pod: StockedPod, node: str) -> bool:
        metadata = pod.manifest["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer = self._ask("bind", _named("bind", pod), orjson.dumps(args), _error)
        return answer is not None

    def _ask(self, verb: str, name: str, body: bytes, wrong: Callable[[Any], str]) -> Any:
        """The answer; None where it is a wrong one. `wrong` says in what it is, "" where it is right.
        locust takes bytes too, whatever its annotation says."""
        with self.client.post(
            f"/scheduler/{verb}",
            data=cast("str", body),
            headers=_HEADERS,
            name=name,
            catch_response=True,
        ) as response:
            if response.status_code != 200:
                response.failure(f"HTTP {response.status_code}")
                return None
            answer = orjson.loads(response.content)
            if why := wrong(answer):
                response.failure(why)
                return None
            return answer


def _args(pod: StockedPod, names: bytes) -> bytes:
    """ExtenderArgs, as kube-scheduler sends them to who is nodeCacheCapable."""
    return b'{"Pod":' + orjson.dumps(pod.manifest) + b',"Nodes":null,"NodeNames":' + names + b"}"


def _named(verb: str, pod: StockedPod) -> str:
    """What is timed apart: a Pod that has its allocation is what all this is about."""
    return verb if pod.kind is Kind.GRANTED else f"{verb} {pod.kind}"


def _with_room(nodes: list[str]) -> str:
    """kube-scheduler counts the Pods that it sends to a Node, here nobody does: but Slurm fills the
    first Nodes first, so that the last have room for all."""
    return random.choice(nodes[-(len(nodes) + 3) // 4 :])  # noqa: S311


def _error(answer: Any) -> str:
    return str(answer.get("Error"))


def _wrong_filter(pod: StockedPod) -> Callable[[Any], str]:
    def wrong(answer: Any) -> str:
        names = answer.get("NodeNames")
        if pod.kind is Kind.UNMANAGED:
            return "" if names else "no Node has room"
        expected = [pod.node] if pod.kind is Kind.GRANTED else []
        return "" if names == expected else f"not the Node that Slurm granted: {answer.get('Error')}"

    return wrong
