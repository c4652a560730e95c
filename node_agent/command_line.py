"""The command line of `node-agent`: its subcommands and their options."""

import sys

import typer

from node_agent import app as agent
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import DriverUnavailable
from node_agent.machine.gpu_vendors import VENDORS
from node_agent.machine.gres_conf import gres_conf, with_files
from service.command_line import Output, OutputOption, program

app = program("node-agent", "The agent of a Node. Its settings are NODE_AGENT_* in the environment.")


@app.command()
def run() -> None:
    """Keep the Pods of this Node to the devices of their jobs, until SIGTERM."""
    raise typer.Exit(agent.main())


@app.command()
def remove() -> None:
    """Remove the agent's limits from the kernel and from the Node: every Pod then has every device.

    Stop the agent first. Exit status: 0; 2 if something is left.
    """
    raise typer.Exit(agent.remove())


@app.command()
def status(output: OutputOption = Output.TABLE) -> None:
    """Show the devices, cores and memory of each Pod and job of this Node, granted and in force."""
    raise typer.Exit(agent.show(as_json=output is Output.JSON))


@app.command("gres-conf")
def print_gres_conf() -> None:
    """Print lines of gres.conf for the GPUs of this machine.

    Exit status: 0; 1, and no lines, if a GPU is absent; 2 if the machine could not be read.
    """
    try:
        devices = [with_files(device) for vendor in VENDORS for device in vendor.read()]
        cpus = Cpus.read()
    except (OSError, DriverUnavailable, ValueError) as error:
        print(f"the machine could not be read: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    for device in devices:
        if device.problem:
            print(f"{device}: {device.problem}", file=sys.stderr)
    if any(device.absent for device in devices):
        raise typer.Exit(1)
    print(gres_conf(devices, cpus), end="")
