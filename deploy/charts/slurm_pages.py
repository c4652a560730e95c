"""`python -m deploy.charts.slurm_pages` (`make docs`) writes, for the chart slurm, docs/slurm-values.md,
the accounts in its schema, and its copies of the scripts of deploy/slurm."""

import json
from pathlib import Path
from typing import Any, Final

from deploy.charts.pages import sections
from slurm_cluster.accounts.document import Document

CHART: Final = Path(__file__).with_name("slurm")
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
PAGE: Final = Path(__file__).parents[2] / "docs/slurm-values.md"
SCRIPTS: Final = Path(__file__).parents[1] / "slurm"
_HEAD: Final = """# Values of the chart slurm

Made by `make docs` from the chart's values.yaml. What to do with it: [slurm-chart.md](slurm-chart.md).

Unknown values, and values that contradict each other, are refused by Helm before anything is installed.
"""


def page() -> str:
    """Returns the page of all values."""
    return _HEAD + "\n".join((*sections(VALUES.read_text()), ""))


def renewed_schema(text: str) -> str:
    """Returns the schema with the accounts that `slurm-cluster accounts` takes."""
    schema: dict[str, Any] = json.loads(text)
    made = Document.model_json_schema(ref_template="#/definitions/{model}")
    schema["definitions"] |= made.pop("$defs", {})
    schema["properties"]["accounts"] = made
    return json.dumps(schema, indent=2) + "\n"


def copies() -> dict[Path, str]:
    """Returns the files of the chart that are others' copies, and what they should be."""
    scripts = (SCRIPTS / name for name in ("slurm-extender-gate", "slurm-extender-hook"))
    return {CHART / "files" / script.name: script.read_text() for script in scripts}


def main() -> None:
    """Writes all of them."""
    PAGE.write_text(page())
    SCHEMA.write_text(renewed_schema(SCHEMA.read_text()))
    for path, text in copies().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
