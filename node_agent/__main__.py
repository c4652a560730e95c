"""`node-agent run` is the agent of a Node. Its settings are NODE_AGENT_* in the environment.

`node-agent remove` takes away what the agent has left in the kernel, and then what it says on its Node:
every Pod has every device from then on. Stop the agent first. Exit status: 0; 2 where something is left.

`node-agent status` shows what each Pod and job of this Node has, granted and in force.

`node-agent gres-conf` prints lines of gres.conf(5) for the GPUs of this machine. Exit status: 0; 1,
and no lines, where a GPU is absent; 2 where the machine could not be read.
"""

import argparse
import sys
from collections.abc import Sequence

from node_agent.machine import amd
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import NvmlUnavailable, gres_conf, with_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given = _parser().parse_args(arguments)
    return int(given.act())


def _run() -> int:
    # structlog would load it, for a console that nobody looks at: 4 MB.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from node_agent import app  # noqa: PLC0415 -- the other commands need neither Kubernetes nor a server

    return app.main()


def _remove() -> int:
    from node_agent import app  # noqa: PLC0415

    return app.remove()


def _status() -> int:
    from node_agent import app  # noqa: PLC0415

    return app.show()


def _print_gres_conf() -> int:
    from node_agent.machine import nvidia  # noqa: PLC0415 -- no other command needs NVML

    try:
        devices = [with_files(device) for device in (*nvidia.read(), *amd.read())]
        cpus = Cpus.read()
    except (OSError, NvmlUnavailable, ValueError) as error:
        print(f"the machine could not be read: {error}", file=sys.stderr)
        return 2
    for device in devices:
        if device.problem:
            print(f"{device}: {device.problem}", file=sys.stderr)
    if any(device.absent for device in devices):
        return 1
    print(gres_conf(devices, cpus), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-agent", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    what = "keep the Pods of this Node to the devices of their jobs"
    commands.add_parser("run", help=what, description=what).set_defaults(act=_run)
    what = "take away what the agent has left on this machine and on its Node"
    commands.add_parser("remove", help=what, description=what).set_defaults(act=_remove)
    what = "show what each Pod and job of this Node has, granted and in force"
    commands.add_parser("status", help=what, description=what).set_defaults(act=_status)
    what = "print lines of gres.conf for the GPUs of this machine"
    commands.add_parser("gres-conf", help=what, description=what).set_defaults(act=_print_gres_conf)
    return parser


if __name__ == "__main__":
    sys.exit(main())
