"""`slurm-cluster topology`: subcommands and their options.

Exit status: 0: success. 1: labels or Slurm have an error. 2: the command or a file has an error."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from kubernetes_client.errors import KubernetesError, NoCredentials
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.rest import KubernetesRest
from service import probes
from service.http.connections import Limits
from service.http.listener import Server
from service.logging import configure_logging
from slurm_cluster.kubernetes_session import ask
from slurm_cluster.topology import drawing, files, running
from slurm_cluster.topology.build import Problem, build
from slurm_cluster.topology.files import CONF, YAML, WrongTopology
from slurm_cluster.topology.model import Kind
from slurm_cluster.topology.places import Place, Reader, standing
from slurm_cluster.topology.rules import Members, Names, Preset, Rules, WrongRules, tiers_of
from slurm_cluster.topology.watch import Follower, Pace, Target, among, before_of, text_of
from slurm_cluster.topology.words import in_words
from wellknown.names import NODE_NAME_LABEL
from wellknown.quoting import quoted

app = typer.Typer(no_args_is_help=True, help="Create Slurm's topology from labels of Nodes.")


class Format(StrEnum):
    """The format of the topology file."""

    YAML = "yaml"
    CONF = "conf"


_FILES: Final = {Format.YAML: YAML, Format.CONF: CONF}
_NO_ROOT: Final = "none"
_BODY: Final = 4096
_PACE: Final = Pace()

_KindOption = Annotated[Kind, typer.Option(help="Plugin: topology/tree or topology/block.")]
_PresetOption = Annotated[Preset | None, typer.Option(help="Source of labels, which sets the tiers.")]
_TierOption = Annotated[
    list[str] | None,
    typer.Option(help="Label key of a tier; widest tier first; may be repeated.", metavar="LABEL"),
]
_SizeOption = Annotated[
    list[int] | None, typer.Option(help="A size in BlockSizes; base block first; may be repeated.")
]
_NamesOption = Annotated[Names, typer.Option(help="Names of switches and blocks.")]
_MembersOption = Annotated[
    Members, typer.Option(help="listed: the file lists nodes; reported: each slurmd reports Topology=.")
]
_RootOption = Annotated[str, typer.Option(help="Name of the root switch; none: no root switch.")]
_SelectorOption = Annotated[
    list[str] | None,
    typer.Option(help="Only Nodes with this label, or KEY=VALUE; may be repeated.", metavar="KEY"),
]
_NameLabelOption = Annotated[str, typer.Option(help="Label with Slurm's name of a Node.")]
_AmongSlurmOption = Annotated[
    bool, typer.Option("--among-slurm", help="Only nodes that sinfo lists.", show_default=False)
]
_FormatOption = Annotated[Format, typer.Option(help="yaml: Slurm 25.05 and later; conf: earlier Slurm.")]
_KubeconfigOption = Annotated[
    Path | None,
    typer.Option(help="Path of a kubeconfig file; default: the service account.", envvar="KUBECONFIG"),
]


@app.command()
def render(  # noqa: PLR0913, PLR0917 -- typer makes an option of each
    kind: _KindOption,
    preset: _PresetOption = None,
    tier: _TierOption = None,
    block_size: _SizeOption = None,
    names: _NamesOption = Names.VALUE,
    members: _MembersOption = Members.LISTED,
    root: _RootOption = "cluster",
    selector: _SelectorOption = None,
    name_label: _NameLabelOption = NODE_NAME_LABEL,
    among_slurm: _AmongSlurmOption = False,
    output: _FormatOption = Format.YAML,
    nodes: Annotated[
        Path | None,
        typer.Option(help="Output of `kubectl get nodes -o json`; default: read from kube-apiserver."),
    ] = None,
    before: Annotated[
        Path | None, typer.Option(help="The current file: its names and their order stay.")
    ] = None,
    kubeconfig: _KubeconfigOption = None,
) -> None:
    """Print the topology of the Nodes. Changes nothing."""
    with _reported_errors():
        rules = _rules(kind, preset, tier, block_size, names, members, root)
        reader = Reader(rules.tiers, _selector(selector), name_label)
        manifests = _from_file(nodes) if nodes else ask(_nodes, kubeconfig)
        earlier = before_of(before.read_text(encoding="utf-8")) if before else None
        has = asyncio.run(running.nodes()) if among_slurm else None
    built = build(rules, among(_places(manifests, reader), has), earlier)
    text = text_of(built.topology, _FILES[output])
    sys.stdout.write(text)
    problems = [*built.problems]
    if output is Format.CONF and (left_out := files.to_conf(built.topology).left_out):
        problems.append(Problem("omitted: Slurm 24.11 rejects such switches or blocks", left_out))
    _say([in_words(problem) for problem in problems])
    if not text:
        _say(["no Node has such labels: Slurm would reject an empty file, so no file is printed"])
    raise typer.Exit(1 if problems or not text else 0)


@app.command()
def watch(  # noqa: PLR0913, PLR0917 -- typer makes an option of each
    kind: _KindOption,
    config_map: Annotated[str, typer.Option(help="ConfigMap to write.", metavar="NAMESPACE/NAME")],
    preset: _PresetOption = None,
    tier: _TierOption = None,
    block_size: _SizeOption = None,
    names: _NamesOption = Names.VALUE,
    members: _MembersOption = Members.LISTED,
    root: _RootOption = "cluster",
    selector: _SelectorOption = None,
    name_label: _NameLabelOption = NODE_NAME_LABEL,
    among_slurm: _AmongSlurmOption = False,
    output: _FormatOption = Format.YAML,
    settle: Annotated[
        float, typer.Option(help="Time without changes of labels before a write.", metavar="SECONDS")
    ] = _PACE.settle,
    longest: Annotated[
        float, typer.Option(help="Maximum delay of a change.", metavar="SECONDS")
    ] = _PACE.longest,
    probes_port: Annotated[int, typer.Option(help="Port of /healthz and /readyz; 0: no port.")] = 0,
    listen_address: Annotated[str, typer.Option(help="Address of the port.")] = "0.0.0.0",  # noqa: S104
    kubeconfig: _KubeconfigOption = None,
) -> None:
    """Keep the topology in a ConfigMap equal to the labels of Nodes, until SIGTERM."""
    namespace, slash, name = config_map.partition("/")
    if not (namespace and slash and name):
        raise typer.BadParameter(
            f"{quoted(config_map)} is not NAMESPACE/NAME", param_hint="--config-map"
        )
    configure_logging("INFO")
    with _reported_errors():
        rules = _rules(kind, preset, tier, block_size, names, members, root)
        reader = Reader(rules.tiers, _selector(selector), name_label)
        target = Target(namespace, name, _FILES[output])
        known = running.nodes if among_slurm else None
        pace = Pace(settle, longest)

        def follower(kubernetes: Kubernetes) -> Follower:
            return Follower(kubernetes, rules, reader, target, pace, known)

        asyncio.run(_follow(kubeconfig, follower, (listen_address, probes_port)))


@app.command()
def draw(
    file: Annotated[
        Path | None,
        typer.Argument(help="topology.yaml or topology.conf; default: the running Slurm."),
    ] = None,
    states: Annotated[
        bool | None,
        typer.Option(help="Read the nodes' states from sinfo; default: only without a file."),
    ] = None,
) -> None:
    """Print a picture (SVG) of a topology."""
    with _reported_errors():
        topology = (
            files.read(file.read_text(encoding="utf-8")) if file else asyncio.run(running.topology())
        )
        asks = file is None if states is None else states
        found = asyncio.run(running.states()) if asks else None
    sys.stdout.write(drawing.draw(topology, found))


@contextmanager
def _reported_errors() -> Iterator[None]:
    """If an error occurs, ends the command with a message."""
    try:
        yield
    except (WrongRules, WrongTopology, NoCredentials, OSError, UnicodeDecodeError) as error:
        _say([str(error)])
        raise typer.Exit(2) from error
    except (KubernetesError, running.SlurmFailed) as error:
        _say([str(error)])
        raise typer.Exit(1) from error


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        sys.stderr.write(f"{line}\n")


def _rules(  # noqa: PLR0917 -- as the commands have them
    kind: Kind,
    preset: Preset | None,
    tiers: list[str] | None,
    sizes: list[int] | None,
    names: Names,
    members: Members,
    root: str,
) -> Rules:
    """Returns the rules from options. Raises WrongRules."""
    chosen = tiers_of(kind, preset, tuple(tiers or ()))
    above = None if root == _NO_ROOT else root
    return Rules(kind, chosen, tuple(sizes or ()), names, members, above)


def _selector(given: list[str] | None) -> dict[str, str]:
    pairs = (each.partition("=") for each in given or ())
    return {key: value for key, _, value in pairs}


def _places(nodes: Sequence[Manifest], reader: Reader) -> tuple[Place, ...]:
    read = {node["metadata"]["name"]: reader.place_of(node) for node in nodes}
    return standing({name: place for name, place in read.items() if place is not None})


def _from_file(path: Path) -> Sequence[Manifest]:
    """Returns the Nodes in a file. Raises WrongRules."""
    try:
        listed: Sequence[Manifest] = orjson.loads(path.read_bytes())["items"]
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise WrongRules(f"{path} is not output of `kubectl get nodes -o json`: {error}") from error
    return listed


async def _nodes(kubernetes: Kubernetes) -> Sequence[Manifest]:
    """Returns all Nodes. Raises KubernetesError."""
    pages = [page async for page in kubernetes.pages("nodes", None)]
    return [node for page in pages for node in page.get("items") or ()]


async def _follow(
    kubeconfig: Path | None, make: Callable[[Kubernetes], Follower], address: tuple[str, int]
) -> None:
    """Runs until SIGTERM or SIGINT. Raises NoCredentials."""
    kubernetes = await KubernetesRest.connect(kubeconfig)
    follower = make(kubernetes)
    parts = [asyncio.ensure_future(follower.run())]
    if address[1]:
        limits = Limits(connections=64, body=lambda: _BODY)
        application = probes.application(follower.health)
        server = Server(application, address, limits, lambda _why: None, None)
        parts.append(asyncio.ensure_future(server.serve()))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, parts[0].cancel)
    try:
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        with suppress(asyncio.CancelledError):
            parts[0].result()
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        await kubernetes.aclose()
