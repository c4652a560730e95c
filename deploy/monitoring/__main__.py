"""`python -m deploy.monitoring` writes the rules, the dashboards, and the tables in
docs/reference/metrics.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from deploy.monitoring import pages, rules
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.rule import document

FOLDER: Final = "deploy/charts/slurm-extender/files/monitoring"
_HEAD: Final = "# Made by `make docs` from deploy/monitoring.\n"
_WIDTH: Final = 110


def files() -> Iterator[tuple[str, str]]:
    """Yields the path in the checkout and the content of each file."""
    text = yaml.safe_dump(document(rules.GROUPS), sort_keys=False, width=_WIDTH, allow_unicode=True)
    yield f"{FOLDER}/rules.yaml", _HEAD + text
    for each in DASHBOARDS:
        page = json.dumps(each.document(), indent=1, ensure_ascii=False)
        yield f"{FOLDER}/dashboards/slurm-extender-{each.name}.json", page + "\n"


def main() -> None:
    """Writes all files. The current folder must be the checkout."""
    for name, text in files():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in pages.PAGES:
        path = Path(name)
        path.write_text(pages.renewed(name, path.read_text()))


if __name__ == "__main__":
    main()
