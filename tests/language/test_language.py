"""Each page, each package, and the charts' values and notes stay within the limits of prose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from deploy.local.layout import CHECKOUT
from tests.language.measure import LEAST_WORDS, Measure, worst
from tests.language.prose import sentences_of

_CODE: Final = (
    *("deploy", "extender", "kubernetes_client", "loadtest", "node_agent", "service", "slurm_client"),
    *("slurm_cluster", "tests", "wellknown"),
)


def _texts() -> Iterator[tuple[str, list[Path]]]:
    """Yields the name and the files of each page, package and chart."""
    folders = ("", "docs/**/", "examples/**/", "deploy/**/", ".github/**/")
    for page in [page for folder in folders for page in CHECKOUT.glob(f"{folder}*.md")]:
        yield str(page.relative_to(CHECKOUT)), [page]
    for top in _CODE:
        for folder in [CHECKOUT / top, *(CHECKOUT / top).rglob("*/")]:
            if modules := [each for each in folder.glob("*.py") if not each.stem.endswith("_pb2")]:
                yield str(folder.relative_to(CHECKOUT)), modules
    for file in [*CHECKOUT.glob("deploy/charts/*/values.yaml"), *CHECKOUT.rglob("NOTES.txt")]:
        yield str(file.relative_to(CHECKOUT)), [file]


TEXTS: Final = dict(sorted(_texts()))


@pytest.mark.parametrize("name", TEXTS)
def test_text_stays_within_the_limits(name: str) -> None:
    sentences = [each for file in TEXTS[name] for each in sentences_of(file)]
    found = Measure.of(sentences)
    excess = found.excess if found.words >= LEAST_WORDS else []
    assert not excess, "\n".join([*excess, *(" ".join(each.split()) for each in worst(sentences))])
