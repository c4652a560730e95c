"""The health of a program: which of its parts are in trouble, for probes and for people.

/readyz names the parts in trouble and no more, since everybody that can reach the port may read it. The
details name files, addresses, Nodes and Pods: they are in the log.

Every part that calls Slurm or Kubernetes meets an outage of that system. The outage is one trouble,
under the system's name, with a line in the log when it begins and one when no part meets it any more.
"""

import time
from collections.abc import Callable

import structlog

from service.periodic import periodically
from service.rate_limited_log import RateLimitedLog

log = structlog.get_logger()

_LOOK_S = 5.0
_SETTLES_S = 5.0
"""Seconds after its start in which kube-apiserver may forbid what it allows: it has not read its roles
yet."""

Tell = Callable[..., object]
"""A logger's method of one level."""


def common_trouble(error: BaseException | None) -> str | None:
    """Returns the name of the outage that an error is part of, by the error's property of this name.
    None where the error is about one request alone."""
    return getattr(error, "common_trouble", None)


class Health:
    """The troubles of all parts of a program. `ready` is the program's to say, and no trouble changes
    it. The extender's means recovered: from then on trouble with a system is shown, but the replica
    stays in service. The node agent is not ready while the kernel does not take what it is told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[str, _Trouble] = {}
        """All troubles that ever were, by name."""
        self.ready = False

    def says(
        self,
        part: str,
        trouble: str | Exception | None,
        *,
        because: Exception | None = None,
        alarm: bool = False,
    ) -> None:
        """Notes a part's trouble, or (None) that the part has none, and logs the change: the part
        itself need not. `because` is the error where `trouble` is words. An error that is part of an
        outage counts as the outage, any other error as the part's own trouble: after an outage only
        once it has lasted, since a system that starts may forbid at first what it allows. An alarm is
        logged as an error, other trouble as a warning."""
        error = trouble if isinstance(trouble, Exception) else because
        name = None if trouble is None else common_trouble(error) or part
        before = next((each for each in self._troubles.values() if part in each.met), None)
        if before is not None and before.name != name:
            if name is not None and not before.gives_way(part):
                return
            before.leaves(part)
        if name is not None:
            if name not in self._troubles:
                self._troubles[name] = _Trouble(name, self._clock, alarm=alarm)
            self._troubles[name].meets(part, str(trouble))

    def news(self, trouble: str | None, tell: Tell) -> Tell:
        """Returns the method to log a failure by: `tell`, or `debug` while the trouble that the failure
        is part of is known and lasts."""
        return log.debug if self.parts().get(trouble or "") else tell

    def make_up(self) -> None:
        """Logs the words of troubles that came too soon after earlier words of the same part, once they
        may be logged: many parts say their words only once."""
        for trouble in self._troubles.values():
            trouble.flush()

    async def run(self) -> None:
        """Logs what was delayed, for ever."""
        await periodically(self.make_up, _LOOK_S, pauses_first=True)

    def parts(self) -> dict[str, bool]:
        """Returns whether each trouble lasts, by name, for every trouble that ever was."""
        return {name: trouble.lasts for name, trouble in self._troubles.items()}

    def troubles(self) -> dict[str, str]:
        """Returns the words of every trouble that lasts, by name."""
        return {name: trouble.words for name, trouble in self._troubles.items() if trouble.lasts}

    def for_strangers(self) -> dict[str, object]:
        """Returns what everybody may know: whether the program is ready, and the names of the
        troubles."""
        return {"ready": self.ready, "troubles": sorted(self.troubles())}


class _Trouble:
    """One trouble, of one part or of all parts that call one system."""

    def __init__(self, name: str, clock: Callable[[], float], *, alarm: bool) -> None:
        self.name = name
        self._clock = clock
        self._alarm = alarm
        self.met: dict[str, str] = {}
        """The words of each part that meets it now, by part."""
        self._met_else: dict[str, float] = {}
        """The parts among them that meet another trouble now, and since when."""
        self._began = 0.0
        self._told = RateLimitedLog("trouble", clock, alarm=alarm)
        """The words of a trouble that lasts may change very often."""

    @property
    def lasts(self) -> bool:
        return bool(self.met)

    @property
    def words(self) -> str:
        """The words of the part that has met it for the longest time; only where it lasts."""
        return next(iter(self.met.values()))

    def meets(self, part: str, words: str) -> None:
        """Notes a part's words. Where several parts meet the trouble only the first words are logged:
        the other parts say the same in other words."""
        begins, before = not self.met, self.met.get(part)
        self.met[part] = words
        self._met_else.pop(part, None)
        if begins:
            self._began = self._clock()
            self._told = RateLimitedLog("trouble", self._clock, alarm=self._alarm)
        if begins or (words != before and part == self.name):
            self._told.says(part=self.name, error=words)
        elif words != before:
            log.debug("trouble", part=self.name, met_by=part, error=words)

    def gives_way(self, part: str) -> bool:
        """Notes that a part that met this trouble meets another one. Tells whether that counts: after
        an outage only once it has lasted."""
        since = self._met_else.setdefault(part, self._clock())
        return part == self.name or self._clock() - since >= _SETTLES_S

    def leaves(self, part: str) -> None:
        """Notes that a part does not meet it any more."""
        del self.met[part]
        self._met_else.pop(part, None)
        if not self.met:
            log.info("trouble over", part=self.name, lasted_s=round(self._clock() - self._began, 1))

    def flush(self) -> None:
        if self.lasts:
            self._told.flush(part=self.name, error=self.words)
