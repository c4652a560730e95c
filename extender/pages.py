"""`python -m extender.pages`: writes the parts of pages that come from tables in the code.

Each page has text of its own around these parts. `make docs` runs this module; a test fails if a part is
outdated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from extender.explain.pending_reasons import PENDING_REASONS
from extender.jobs.phase import PHASE_MOVES, Phase
from extender.placement.transitions.table import TABLE, Row
from extender.pod_request import slurm_bridge
from extender.pod_request.annotations import ANNOTATIONS
from extender.preflight.checks import CHECKS
from extender.record.states import MOVES, State
from extender.telemetry.catalogue import METRICS
from service.metrics import Metric

_S = TypeVar("_S", bound=str)
_END = "<!-- End of what is made. -->\n"
_SBATCH = "[sbatch(1)](https://slurm.schedmd.com/sbatch.html)"
_COLUMNS = {
    "does": "next effect",
    "writes": "effects on the Pods",
    "runs": "the job runs",
    "waits": "the job waits",
    "ended": "the job has ended",
    "foreign": "another's job has the id",
    "unknown": "no job has the id",
    "lost": "the job is lost",
    "read": "the job is read between two polls",
    "bound": "a Pod is bound",
    "changed": "another request",
}
"""The fields of a row of the ledger's table, each with the head of the field's column."""


def table_row(*cells: str) -> str:
    """Returns a line of a table."""
    return f"| {' | '.join(cells)} |"


def table_head(*names: str) -> Iterator[str]:
    """Yields the first two lines of a table."""
    yield table_row(*names)
    yield table_row(*("---" for _ in names))


def _annotations() -> Iterator[str]:
    """Yields the table of annotations for authors of Pods. Messages link to an annotation by the
    annotation's name."""
    yield from table_head("annotation", "value", _SBATCH, "example", "allowed value", "note")
    for row in ANNOTATIONS:
        options = ", ".join(f"`{option}`" for option in row.sbatch.split(", "))
        name = f'<a id="{row.name}"></a>`{row.name}`'
        yield table_row(name, row.kind.name, options, f"`{row.example}`", row.kind.allowed, row.note)


def _slurm_bridge() -> Iterator[str]:
    """Yields the table of slurm-bridge's annotations."""
    own = {row.field: row.name for row in ANNOTATIONS}
    yield from table_head("slurm-bridge's annotation", "here", "note")
    for row in slurm_bridge.TABLE:
        note = "" if row in ANNOTATIONS else row.note
        yield table_row(f"`{row.name}`", f"[`{own[row.field]}`](#{own[row.field]})", note)
    for name, why in slurm_bridge.NOT_READ.items():
        yield table_row(f"`{name}`", "ignored, with a warning", f"{why[0].upper()}{why[1:]}.")


def _pending_reasons() -> Iterator[str]:
    yield from table_head("Slurm's reason", "message on the Pod", "counts against the owner alone")
    for row in PENDING_REASONS:
        alone = "yes" if row.of_its_owner else ""
        yield table_row(f'<a id="{row.name}"></a>`{row.name}`', row.sentence, alone)


def _preflight() -> Iterator[str]:
    """Yields the table of preflight's checks. Pages link to a check by the check's name."""
    yield from table_head("check", "requirement", "fix", "if preflight cannot see it")
    for check in CHECKS:
        texts = (each.replace("|", "\\|") for each in (check.about, check.fix, check.look))
        yield table_row(f'<a id="{check.name}"></a>`{check.name}`', *texts)


def _states() -> Iterator[str]:
    """Yields the diagram of a placeholder's states, and the table of reactions in each state."""
    yield from _diagram(State.SEEN, MOVES, State.DONE)
    yield from table_head("State", *_COLUMNS.values())
    for state, row in TABLE.items():
        yield table_row(state, *(_handler(row, column) for column in _COLUMNS))


def _phases() -> Iterator[str]:
    """Yields the diagram of the phases of a placeholder's job."""
    yield from _diagram(Phase.UNASKED, PHASE_MOVES, Phase.ENDED)


def _diagram(first: str, moves: Mapping[_S, Mapping[_S, str]], last: str) -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> {first}")
    for before, others in moves.items():
        for after, cause in others.items():
            yield f"    {before} --> {after}: {cause}"
    yield from (f"    {last} --> [*]", "```", "")


def _handler(row: Row, column: str) -> str:
    """Returns the name of the function in a column; empty if the row has no reaction in this column."""
    name = getattr(row, column).__name__
    return "" if name.startswith("_") else f"`{name}`"


def metric_rows(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yields the table of a program's metrics."""
    yield from table_head("metric", "type", "labels", "description", "question")
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield table_row(f"`{metric.name}`", metric.kind, labels, metric.words, metric.question)


def _metrics() -> Iterator[str]:
    yield from metric_rows(METRICS)


PAGES: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "docs/reference/annotations.md": {
        "extender/pod_request/annotations.py": _annotations,
        "extender/pod_request/slurm_bridge.py": _slurm_bridge,
    },
    "docs/reference/reasons.md": {"extender/explain/pending_reasons.py": _pending_reasons},
    "docs/reference/preflight.md": {"extender/preflight": _preflight},
    "docs/design/architecture.md": {
        "extender/record/states.py and table.py": _states,
        "extender/jobs/phase.py": _phases,
    },
    "docs/reference/metrics.md": {"extender/telemetry/catalogue.py": _metrics},
}
"""The generated parts of each page, by source. Each part has the function that makes the lines."""


def renewed(name: str, page: str) -> str:
    """Returns the page of this name with new generated parts. Raises ValueError if the page lacks the
    marks of a part."""
    for source, make in PAGES[name].items():
        page = replaced(page, source, make())
    return page


def replaced(page: str, source: str, lines: Iterable[str]) -> str:
    """Returns the page with `lines` as the new content of the part that is generated from `source`.
    Raises ValueError if the page lacks the marks of the part."""
    begin = f"<!-- Made by `make docs` from {source}. -->\n"
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(_END)
    if not (begins and ends):
        raise ValueError(f"the page lacks {begin.strip()} or {_END.strip()}")
    return "".join((before, begin, *(f"{line}\n" for line in lines), _END, after))


def main() -> None:
    """Writes all pages under the working directory."""
    for name in PAGES:
        page = Path(name)
        page.write_text(renewed(name, page.read_text()))


if __name__ == "__main__":
    main()
