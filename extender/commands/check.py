"""`slurm-extender check`: tests an installation with a Pod that Slurm must place, and with a Pod that
the webhook must refuse."""

import asyncio
import signal
import sys
from collections.abc import Callable

from extender.check.pods import Wish
from extender.check.steps import Steps
from extender.commands.output import console, print_line, show, summary
from extender.commands.systems import kubernetes_of, slurm_of
from extender.preflight.result import Result
from extender.settings import Settings
from kubernetes_client.errors import NoCredentials
from service.command_line import Output
from service.logging import configure_logging
from service.settings import from_environment

_TO_STOP = (signal.SIGTERM, signal.SIGINT)


def run(output: Output, wish: Wish) -> int:
    """Prints the outcome of each step. For a table, prints the line of a step as soon as the step ends.
    Returns the exit status: 0 if all steps pass, 1 if a step fails or a signal ends the check, 2 if
    kube-apiserver gives no access."""
    settings = from_environment(Settings)
    configure_logging(settings.log_level)
    found: list[Result] = []
    where = console()

    def tell(result: Result) -> None:
        found.append(result)
        if output is Output.TABLE:
            print_line(result, where)

    try:
        good = asyncio.run(_checked(settings, wish, tell))
    except NoCredentials as error:
        print(f"no access to kube-apiserver: {error}", file=sys.stderr)
        return 2
    except asyncio.CancelledError:
        print("ended by a signal; the Pods of the check are deleted", file=sys.stderr)
        return 1
    if output is Output.JSON:
        show(found, output)
    else:
        where.print(summary(found))
    return 0 if good else 1


async def _checked(settings: Settings, wish: Wish, tell: Callable[[Result], object]) -> bool:
    async with slurm_of(settings) as slurm, kubernetes_of(settings) as kubernetes:
        steps = asyncio.ensure_future(Steps(kubernetes, slurm, settings, wish).run(tell))
        for number in _TO_STOP:
            asyncio.get_running_loop().add_signal_handler(number, steps.cancel)
        return await steps
