"""What works and what does not, for probes and for people.

/readyz names what is in trouble and no more: whoever can reach the port may read it, and what is wrong
with it names files, addresses, Nodes and Pods. That is in the log.

An outage of Slurm or Kubernetes is met by every part that asks that system. It is one trouble, under
the system's name, with a line in the log when it begins and one when it is over: no part meets it any
more then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from service.seldom import Seldom

log = structlog.get_logger()

_LOOK_S = 5.0
_SETTLES_S = 5.0
"""For so long after its start kube-apiserver may forbid what it allows: it has yet to read its roles."""

Tell = Callable[..., object]
"""A logger's method of one level."""


def common_trouble(error: BaseException | None) -> str | None:
    """Returns the trouble of a whole system that an error is part of, as a property of this name tells:
    every part that asks that system meets it. None where it is about what was asked."""
    return getattr(error, "common_trouble", None)


class Health:
    """Every part that can be in trouble says so here. Ready means recovered: from then on Pods move
    whenever both systems let them, and trouble with either is shown but takes nobody out of service."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[str, _Trouble] = {}
        """Every one that ever was, by name."""
        self.ready = False

    def says(
        self,
        part: str,
        trouble: str | Exception | None,
        *,
        because: Exception | None = None,
        alarm: bool = False,
    ) -> None:
        """Notes a part's trouble, or (None) that it has none, and logs that where it is news: the part
        itself need not. `because` is the error that words tell of. An error that is part of an outage
        counts as the outage, any other as the part's own trouble: after an outage only once it has
        lasted, since a system that starts may refuse at first what it allows. An alarm is logged as an
        error, other trouble as a warning."""
        error = trouble if isinstance(trouble, Exception) else because
        name = None if trouble is None else common_trouble(error) or part
        before = next((each for each in self._troubles.values() if each.is_met_by(part)), None)
        if before is not None and before.name != name:
            if name is not None and not before.gives_way(part):
                return
            before.leaves(part)
        if name is not None:
            if name not in self._troubles:
                self._troubles[name] = _Trouble(name, self._clock, alarm=alarm)
            self._troubles[name].meets(part, str(trouble))

    def news(self, trouble: str | None, tell: Tell) -> Tell:
        """Returns how to log a failure: by `tell`, and for debugging alone while the trouble that it is
        part of, if any, is known and lasts."""
        return log.debug if self.parts().get(trouble or "") else tell

    def make_up(self) -> None:
        """Logs the words of troubles that came too soon after others of the same part, once they may be
        logged: many a part says each only once."""
        for trouble in self._troubles.values():
            trouble.makes_up()

    async def run(self) -> None:
        """Makes up for what was not logged, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.make_up()

    def parts(self) -> dict[str, bool]:
        """Returns, for every trouble that ever was, whether it lasts."""
        return {name: trouble.lasts for name, trouble in self._troubles.items()}

    def troubles(self) -> dict[str, str]:
        """Returns every trouble that lasts, in words, by name."""
        return {name: trouble.words for name, trouble in self._troubles.items() if trouble.lasts}

    def for_strangers(self) -> dict[str, object]:
        """Returns what anybody may know: readiness, and the names of the troubles."""
        return {"ready": self.ready, "troubles": sorted(self.troubles())}


class _Trouble:
    """One trouble, of one part or of all that ask a system."""

    def __init__(self, name: str, clock: Callable[[], float], *, alarm: bool) -> None:
        self.name = name
        self._clock = clock
        self._alarm = alarm
        self._met: dict[str, str] = {}
        """By the parts that meet it now: what each says of it."""
        self._met_else: dict[str, float] = {}
        """By the parts of these that meet something else now: since when."""
        self._began = 0.0
        self._told = Seldom("trouble", clock, alarm=alarm)
        """Trouble that lasts may get other words very often."""

    @property
    def lasts(self) -> bool:
        return bool(self._met)

    @property
    def words(self) -> str:
        """What is said of it, where it lasts, by the part that has met it for the longest time."""
        return next(iter(self._met.values()))

    def meets(self, part: str, words: str) -> None:
        """Takes note of what a part says. Of what several meet the first words are logged alone: what
        else fails says the same in others."""
        begins, before = not self._met, self._met.get(part)
        self._met[part] = words
        self._met_else.pop(part, None)
        if begins:
            self._began = self._clock()
            self._told = Seldom("trouble", self._clock, alarm=self._alarm)
        if begins or (words != before and part == self.name):
            self._told.says(part=self.name, error=words)
        elif words != before:
            log.debug("trouble", part=self.name, met_by=part, error=words)

    def is_met_by(self, part: str) -> bool:
        return part in self._met

    def gives_way(self, part: str) -> bool:
        """Takes note that a part that met it meets something else. Tells whether that counts: after an
        outage only once it has lasted."""
        since = self._met_else.setdefault(part, self._clock())
        return part == self.name or self._clock() - since >= _SETTLES_S

    def leaves(self, part: str) -> None:
        """Takes note that a part does not meet it any more."""
        del self._met[part]
        self._met_else.pop(part, None)
        if not self._met:
            log.info("trouble over", part=self.name, lasted_s=round(self._clock() - self._began, 1))

    def makes_up(self) -> None:
        if self.lasts:
            self._told.makes_up(part=self.name, error=self.words)
