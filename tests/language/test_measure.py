"""The measure of prose."""

from pathlib import Path

import pytest

from tests.language.measure import Measure, worst
from tests.language.prose import sentences_of

_PAGE = """# It that which what

The extender cancels the job of `what it was`. Slurm starts [another job](it-that.md).

    it that

- You delete the Pod.
- It goes anew.

| it | the second column |
|---|---|
| one cell here | `--what` is a flag |
"""
_MODULE = '''"""Counts jobs of users."""

LIMIT = 3
"""What nobody knows anew."""

def f():
    """Returns the count."""
    # Slurm numbers jobs from 1,
    # and wraps at the end.
    x = 1  # noqa: X1
'''


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "page.md",
            _PAGE,
            [
                *("The extender cancels the job of CODE.", "Slurm starts another job."),
                *("You delete the Pod.", "It goes anew."),
                *("the second column", "one cell here", "CODE is a flag"),
            ],
        ),
        (
            "module.py",
            _MODULE,
            [
                *("Counts jobs of users.", "What nobody knows anew.", "Returns the count."),
                "Slurm numbers jobs from 1, and wraps at the end.",
            ],
        ),
        (
            "values.yaml",
            "# -- Number of\n# replicas there.\nreplicas: 2\n\n# A second block here.\n",
            ["Number of\nreplicas there.", "A second block here."],
        ),
    ],
)
def test_sentences_of_a_file_are_read(name: str, text: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert sentences_of(file) == expected


def test_measure_counts_pronouns_openings_and_private_words() -> None:
    bad = "What it tells is what nobody asked."
    found = Measure.of([bad, "Slurm starts the job."])
    assert (found.words, found.pronouns, found.openings) == (11, 300 / 11, 50)
    assert found.private == pytest.approx(2000 / 11)
    assert len(found.excess) == 3
    assert Measure.of(["Slurm starts the job."]).excess == []
    assert worst(["Slurm starts the job.", bad], 1) == [bad]


def test_long_sentences_exceed_the_limit() -> None:
    (told,) = Measure.of([" ".join(["word"] * 31)] * 10).excess
    assert told.startswith("31.0 words in a sentence")
