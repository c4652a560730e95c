"""Metrics of the listeners: requests, replies and rejections."""

from http import HTTPStatus

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import Info
from prometheus_fastapi_instrumentator.metrics import default as default_metrics

from extender.routing import CLIENT_GONE
from extender.telemetry import catalogue
from service.metrics import FAST, SECONDS, child
from service.rate_limited_log import RateLimitedLog

_NOT_ANSWERED = {HTTPStatus.METHOD_NOT_ALLOWED, CLIENT_GONE}


class HttpTelemetry:
    """The metrics of the listeners."""

    def __init__(self, registry: CollectorRegistry) -> None:
        requests = default_metrics(registry=registry, latency_lowr_buckets=SECONDS)
        assert requests is not None  # None only if the registry already has these metrics
        self._requests = requests
        self._verbs = catalogue.VERBS.histogram(registry, FAST)
        self._rejections = catalogue.LISTENER_REJECTIONS.counter(registry)
        self._gate = catalogue.GATE.counter(registry)
        self._logs: dict[tuple[str, str], RateLimitedLog] = {}

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Counts a request to one of the verbs."""
        child(self._verbs, path.rpartition("/")[2], f"{status:d}").observe(seconds)

    def rejected(self, listener: str, why: str) -> None:
        """Counts a connection or a request that a listener rejected."""
        child(self._rejections, listener, why).inc()
        if (listener, why) not in self._logs:
            self._logs[listener, why] = RateLimitedLog("a listener rejects")
        self._logs[listener, why].says(listener=listener, why=why)

    def gate_answered(self, answer: str) -> None:
        """Counts an answer to a node's gate."""
        child(self._gate, answer).inc()

    def instrument_verbs(self, application: FastAPI) -> None:
        """Measures requests until the reply begins. The time after the beginning of the reply does not
        count. The caller already works on the reply then, perhaps on the same CPU core."""

        def answered(info: Info) -> None:
            status, seconds = int(info.modified_status), info.modified_duration_without_streaming
            if status not in _NOT_ANSWERED:
                self.answered(info.modified_handler, status, seconds)

        Instrumentator(
            should_group_status_codes=False,
            should_ignore_untemplated=True,
            should_instrument_requests_inprogress=False,
        ).add(answered).instrument(application)

    def instrument(self, application: FastAPI) -> None:
        instrumentator = Instrumentator(should_instrument_requests_inprogress=False)
        instrumentator.add(self._requests).instrument(application)
