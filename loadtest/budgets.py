"""How long each call may take, and whether it did: budgets.toml, and what a load run is held to."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.local.demo.findings import percentile
from loadtest.figures import Verdict

BUDGETS: Final = Path(__file__).with_name("budgets.toml")


@dataclass(frozen=True, slots=True)
class Budget:
    """Of one kind of call. `failures` is the part of them that may fail."""

    p50_ms: float
    p99_ms: float
    failures: float = 0.0


@dataclass(slots=True)
class Calls:
    """Those of one kind; grows with the run. A call that failed has its time too."""

    ms: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, ms: float, *, failed: bool) -> None:
        self.ms.append(ms)
        self.failed += failed

    def percentile(self, percent: float) -> float:
        return percentile(self.ms, percent) or 0.0

    def as_json(self) -> dict[str, Any]:
        times = {f"p{percent}_ms": round(self.percentile(percent), 2) for percent in (50, 95, 99, 100)}
        return {"calls": len(self.ms), "failed": self.failed, **times}


def budgets(path: Path, nodes: int) -> dict[str, Budget]:
    """By the kind of call. Raises ValueError where the file has none for so many Nodes, or is wrong."""
    tables = tomllib.loads(path.read_text())
    if (table := tables.get(f"nodes-{nodes}")) is None:
        raise ValueError(f"{path.name} has no budgets for {nodes} Nodes; it has {', '.join(tables)}")
    return {kind: _budget(kind, given) for kind, given in table.items()}


def _budget(kind: str, given: Mapping[str, float]) -> Budget:
    try:
        return Budget(**given)
    except TypeError as wrong:
        raise ValueError(f"{kind}: {wrong}") from wrong


def verdicts(held_to: Mapping[str, Budget], found: Mapping[str, Calls]) -> list[Verdict]:
    """Each budget, and whether it is kept. One of which nothing was measured is not."""
    return [verdict for kind in held_to for verdict in _verdicts(kind, held_to[kind], found.get(kind))]


def _verdicts(kind: str, budget: Budget, calls: Calls | None) -> Iterator[Verdict]:
    if calls is None or not calls.ms:
        yield Verdict(f"{kind}: there was no such call", kept=False)
        return
    for name, percent, most in (("p50", 50, budget.p50_ms), ("p99", 99, budget.p99_ms)):
        took = calls.percentile(percent)
        over = f", {took - most:.1f} ms over" if took > most else ""
        yield Verdict(f"{kind} {name}: {took:.1f} ms{over} (budget: {most:g} ms)", kept=took <= most)
    part = calls.failed / len(calls.ms)
    yield Verdict(
        f"{kind}: {calls.failed} of {len(calls.ms)} failed (budget: {budget.failures:.1%})",
        kept=part <= budget.failures,
    )
