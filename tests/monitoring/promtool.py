"""What promtool says of tests of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from deploy.local.prometheus import Prometheus


def results(
    tools: Prometheus, rules: Path, tests: list[dict[str, Any]], folder: Path
) -> tuple[int, str]:
    """Its exit status and words."""
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump(document))
    done = tools.promtool("test", "rules", str(file))
    return done.returncode, done.stdout + done.stderr
