"""`python -m extender.policy`: checks a policy file, and prints the rule for a ServiceAccount."""

import argparse
import json
import sys
from pathlib import Path

from extender.policy.file import read, schema
from extender.policy.rules import Policy, described
from service.yaml_file import WrongFile


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 1 where the policy is wrong."""
    given = _parser().parse_args(arguments)
    if given.command == "schema":
        print(json.dumps(schema(), indent=2))
        return 0
    try:
        policy = read(given.file)
    except WrongFile as wrong:
        print(*wrong.lines, sep="\n", file=sys.stderr)
        return 1
    if given.command == "check":
        print(f"{given.file}: {len(policy.rules)} rules, {policy.preset} to all others")
    else:
        _tell(policy, given.namespace, given.service_account)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m extender.policy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="print every problem of a file; exit status 1 if any")
    check.add_argument("file", type=Path)
    who = commands.add_parser("who", help="print which rule counts for a Pod, and what it allows")
    who.add_argument("file", type=Path)
    who.add_argument("namespace")
    who.add_argument("service_account", nargs="?", default="default")
    commands.add_parser("schema", help="print the file's JSON Schema")
    return parser


def _tell(policy: Policy, namespace: str, service_account: str) -> None:
    rule = policy.rule_for(namespace, service_account)
    if rule is None:
        print(f"no rule: {'anything goes' if policy.open else 'forbidden'} (preset: {policy.preset})")
        return
    print(f"rule {rule.name!r}")
    for line in described(rule):
        print(f"  {line}")


if __name__ == "__main__":
    raise SystemExit(main())
