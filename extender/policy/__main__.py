"""`python -m extender.policy`: checks a policy file, and prints the rule for a ServiceAccount."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from extender.policy.file import read, schema
from extender.policy.rules import Policy, described
from service.command_line import Output, OutputOption, program
from service.yaml_file import WrongFile
from wellknown.quoting import quoted

_NAME = "python -m extender.policy"
app = program(_NAME, "The policy: the values that each Pod may request from Slurm.", completes=False)
_File = Annotated[Path, typer.Argument(help="The policy file (docs/concepts/policy.md).")]


@app.command()
def check(file: _File) -> None:
    """Print every problem of a policy file. Exit status: 1 if the file has a problem."""
    policy = _read(file)
    print(f"{file}: {len(policy.rules)} rules, {policy.preset} to all other Pods")


@app.command()
def who(
    file: _File,
    namespace: Annotated[str, typer.Argument(help="The Pod's namespace.")],
    service_account: Annotated[str, typer.Argument(help="The Pod's ServiceAccount.")] = "default",
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the rule that applies to a Pod, and the values that the rule allows."""
    policy = _read(file)
    rule = policy.rule_for(namespace, service_account)
    if output is Output.JSON:
        entry = None if rule is None else {"name": rule.name, "allows": [*described(rule)]}
        print(json.dumps({"rule": entry, "preset": policy.preset}, indent=2))
        return
    if rule is None:
        print(f"no rule: {'anything goes' if policy.open else 'forbidden'} (preset: {policy.preset})")
        return
    print(f"rule {quoted(rule.name)}")
    for line in described(rule):
        print(f"  {line}")


@app.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a policy file."""
    print(json.dumps(schema(), indent=2))


def _read(file: Path) -> Policy:
    try:
        return read(file)
    except WrongFile as wrong:
        print(*wrong.lines, sep="\n", file=sys.stderr)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app(prog_name=_NAME)
