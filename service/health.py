"""The health of a program, for probes and for administrators.

/readyz only names the parts with a problem, because every client may read /readyz. The log has the
details, with files, addresses, Nodes and Pods.

If Slurm or Kubernetes has an outage, every part with calls to the system has errors. The outage counts
as a single problem under the system's name. The log has a line at the start of the outage, and a line at
the end, when all parts work again.
"""

import time
from collections.abc import Callable

import structlog

from service.periodic import periodically
from service.rate_limited_log import RateLimitedLog

log = structlog.get_logger()

_LOOK_S = 5.0
_SETTLES_S = 5.0
"""Seconds for which a part must have another problem after an outage before this problem counts. After
its start, kube-apiserver may forbid allowed calls until kube-apiserver has read all roles."""

Tell = Callable[..., object]
"""A method of the logger, for example `log.info`."""


def common_problem(error: BaseException | None) -> str | None:
    """Returns the name of the outage behind an error, from the error's attribute. None for an error
    of a single call."""
    return getattr(error, "common_problem", None)


class Health:
    """The problems of all parts of a program. Only the program sets `ready`; a problem never changes
    `ready`. The extender stays ready after its recovery, even during later outages. The node agent is
    not ready while the kernel rejects the agent's limits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._problems: dict[str, _Problem] = {}
        """All problems since the start, by name."""
        self.ready = False

    def says(
        self,
        part: str,
        problem: str | Exception | None,
        *,
        because: Exception | None = None,
        alarm: bool = False,
    ) -> None:
        """Notes a part's problem, or None for no problem, and logs the change.

        * `because` is the error, if `problem` is a text.
        * An error of an outage counts as the outage. Any other error is the part's own problem.
        * After an outage, a part's own problem counts only if the problem lasts for some seconds,
          because a system that has just started may forbid allowed calls.
        * An alarm is logged as an error, other problems as a warning.
        """
        error = problem if isinstance(problem, Exception) else because
        name = None if problem is None else common_problem(error) or part
        before = next((each for each in self._problems.values() if part in each.met), None)
        if before is not None and before.name != name:
            if name is not None and not before.gives_way(part):
                return
            before.leaves(part)
        if name is not None:
            if name not in self._problems:
                self._problems[name] = _Problem(name, self._clock, alarm=alarm)
            self._problems[name].meets(part, str(problem))

    def news(self, problem: str | None, tell: Tell) -> Tell:
        """Returns the method to log a failure: `tell`, or `debug` while the failure's problem lasts."""
        return log.debug if self.parts().get(problem or "") else tell

    def make_up(self) -> None:
        """Logs delayed messages, as far as the rate limit permits. Without this call, a message may be
        lost, because many parts report a problem only once."""
        for problem in self._problems.values():
            problem.flush()

    async def run(self) -> None:
        """Logs delayed messages, without end."""
        await periodically(self.make_up, _LOOK_S, pauses_first=True)

    def parts(self) -> dict[str, bool]:
        """Returns all problems since the start by name. True means a current problem."""
        return {name: problem.lasts for name, problem in self._problems.items()}

    def problems(self) -> dict[str, str]:
        """Returns the message of every current problem, by name."""
        return {name: problem.words for name, problem in self._problems.items() if problem.lasts}

    def for_strangers(self) -> dict[str, object]:
        """Returns the public state: True for a ready program, and the names of the problems."""
        return {"ready": self.ready, "problems": sorted(self.problems())}


class _Problem:
    """A problem of a part, or of all parts with calls to a system."""

    def __init__(self, name: str, clock: Callable[[], float], *, alarm: bool) -> None:
        self.name = name
        self._clock = clock
        self._alarm = alarm
        self.met: dict[str, str] = {}
        """The messages of the affected parts, by part."""
        self._met_else: dict[str, float] = {}
        """The parts of `met` that now have another problem, and the start time of the other problem."""
        self._began = 0.0
        self._log = RateLimitedLog("problem", clock, alarm=alarm)
        """Limits the rate of log lines, because the message of a current problem may change very
        often."""

    @property
    def lasts(self) -> bool:
        return bool(self.met)

    @property
    def words(self) -> str:
        """The message of the first part with the problem. Only valid while the problem lasts."""
        return next(iter(self.met.values()))

    def meets(self, part: str, words: str) -> None:
        """Notes a part's message. Only the first message of several parts is logged as a problem."""
        begins, before = not self.met, self.met.get(part)
        self.met[part] = words
        self._met_else.pop(part, None)
        if begins:
            self._began = self._clock()
            self._log = RateLimitedLog("problem", self._clock, alarm=self._alarm)
        if begins or (words != before and part == self.name):
            self._log.says(part=self.name, error=words)
        elif words != before:
            log.debug("problem", part=self.name, met_by=part, error=words)

    def gives_way(self, part: str) -> bool:
        """Notes that the part has another problem. Returns True if the other problem counts. After an
        outage, the other problem counts only after it has lasted for `_SETTLES_S`."""
        since = self._met_else.setdefault(part, self._clock())
        return part == self.name or self._clock() - since >= _SETTLES_S

    def leaves(self, part: str) -> None:
        """Notes the end of the problem for a part."""
        del self.met[part]
        self._met_else.pop(part, None)
        if not self.met:
            log.info("problem ended", part=self.name, lasted_s=round(self._clock() - self._began, 1))

    def flush(self) -> None:
        if self.lasts:
            self._log.flush(part=self.name, error=self.words)
