"""Generates files for the chart slurm: docs/reference/slurm-values.md, the schema of the value
`accounts`, and copies of the scripts in deploy/slurm.

`make docs` runs `python -m deploy.charts.slurm_pages`.
"""

import json
from pathlib import Path
from typing import Any, Final

from deploy.charts.pages import sections
from slurm_cluster.accounts.document import Document

CHART: Final = Path(__file__).with_name("slurm")
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
PAGE: Final = Path(__file__).parents[2] / "docs/reference/slurm-values.md"
SCRIPTS: Final = Path(__file__).parents[1] / "slurm"
_HEAD: Final = """# Values of the chart slurm

This page lists all values of the chart slurm. [slurm-chart.md](../tasks/slurm-chart.md) describes the
chart. Helm rejects unknown and contradictory values before the installation.

`make docs` makes this page from the chart's values.yaml.
"""


def page() -> str:
    """Returns the page of all values."""
    return _HEAD + "\n".join((*sections(VALUES.read_text()), ""))


def renewed_schema(text: str) -> str:
    """Returns the text of the chart's schema. Replaces the schema of the value `accounts` by the current
    schema of the file that `slurm-cluster accounts` reads."""
    schema: dict[str, Any] = json.loads(text)
    made = Document.model_json_schema(ref_template="#/definitions/{model}")
    schema["definitions"] |= made.pop("$defs", {})
    schema["properties"]["accounts"] = made
    return json.dumps(schema, indent=2) + "\n"


def copies() -> dict[Path, str]:
    """Returns the scripts that the chart has as copies: the path of each copy, with the text of the
    original script."""
    scripts = (SCRIPTS / name for name in ("slurm-extender-gate", "slurm-extender-hook"))
    return {CHART / "files" / script.name: script.read_text() for script in scripts}


def main() -> None:
    """Writes the page, the schema and the copies."""
    PAGE.write_text(page())
    SCHEMA.write_text(renewed_schema(SCHEMA.read_text()))
    for path, text in copies().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
