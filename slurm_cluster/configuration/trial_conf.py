"""Makes the slurm.conf of a temporary slurmctld from the wanted slurm.conf. Leaves out settings that
could affect the running slurmctld.

The temporary slurmctld has ports on loopback and its own state. The temporary slurmctld reaches no node,
no slurmdbd and no other slurmctld, and runs no program with effects on machines. As far as possible,
`untried` checks the values that the trial replaces.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm_client.hostlist import compress
from slurm_cluster.configuration.slurm_conf import Line, Pairs, SlurmConf, render

LOOPBACK: Final = "127.0.0.1"
_NOTHING: Final = "/bin/true"
_DROPPED: Final = frozenset(
    {
        *("accountingstoragebackuphost", "accountingstorageexternalhost", "accountingstoragehost"),
        *("accountingstoragepass", "accountingstorageport"),
        *("authinfo", "backupaddr", "backupcontroller", "communicationparameters", "controladdr"),
        *("controlmachine", "mailprog", "resumefailprogram", "resumeprogram", "slurmschedlogfile"),
        *("statesavelocation", "suspendprogram"),
        *("slurmctldaddr", "slurmctlddebug", "slurmctldhost", "slurmctldlogfile"),
        *("slurmctldparameters", "slurmctldpidfile", "slurmctldport", "slurmctldprimaryoffprog"),
        *("slurmctldprimaryonprog", "slurmctldsyslogdebug"),
    }
)
_PROGRAMS: Final = ("resumefailprogram", "resumeprogram", "suspendprogram")
"""The programs of power saving, which the trial replaces by _NOTHING. If the trial dropped them, power
saving would be off, and slurmctld would not check the other keys of power saving."""
_NODE: Final = frozenset({"bcastaddr", "nodeaddr", "nodehostname", "port"})
_OF_DATABASE: Final = frozenset(
    {"accountingstorageenforce", "accountingstoragetres", "accountingstoragetype"}
)
_OF_DATABASE_IN_PARTITION: Final = frozenset(
    {"allowaccounts", "allowqos", "denyaccounts", "denyqos", "qos"}
)
_SENDS_AT_START: Final = "reconfig_on_restart"
"""Option of slurmctld with which a starting slurmctld makes all slurmds restart."""
_ELSEWHERE: Final = ("jobcomp/kafka", "jobcomp/mysql")
"""Plugins that write to another server as soon as they are loaded."""
_TRES: Final = re.compile(
    r"billing|cpu|energy|mem|node|pages|vmem|(bb|fs|gres|ic|license)/[\w:.+-]+", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class Place:
    """Folders, ports and facts for the temporary slurmctld."""

    folder: Path
    """Folder with `etc` (the wanted files) and `state`."""
    host: str
    port: int
    closed_port: int
    """Port of loopback without a listener. In the trial, nodes and slurmdbd have this port."""
    running: Path
    """Folder in the paths of slurm.conf. In the trial, `etc` replaces this folder."""
    with_database: bool
    """True if the state has the running slurmctld's copy of slurmdbd's QOS, accounts and TRES."""
    known_tres: frozenset[str] = frozenset()
    """TRES that slurmdbd knows, in lower case."""
    slurm_user: str = ""
    """User of slurmctld. "" means the user in slurm.conf."""
    joining: frozenset[str] = frozenset()
    """Nodes of the topology that are not in slurm.conf."""

    @property
    def etc(self) -> Path:
        return self.folder / "etc"

    @property
    def state(self) -> Path:
        """StateSaveLocation of the trial."""
        return self.folder / "state"


def trial_text(conf: SlurmConf, place: Place) -> str:
    """Returns the text of slurm.conf for a trial."""
    kept = "".join(_line(line, place) for line in conf.lines)
    text = kept + render((pair,) for pair in _own(conf.settings(), place)) + _joining(place)
    return re.sub(rf"{re.escape(str(place.running))}(?=/)", str(place.etc), text)


def _joining(place: Place) -> str:
    if not place.joining:
        return ""
    nodes = ("NodeName", compress(sorted(place.joining)))
    return render([(nodes, ("CPUs", "1"), ("NodeAddr", LOOPBACK), ("Port", str(place.closed_port)))])


def untried(conf: SlurmConf, host: str) -> list[str]:
    """Returns the errors in those keys of slurm.conf that the trial replaces."""
    settings = conf.settings()
    hosts = list(conf.hosts())
    names = {host, host.partition(".")[0]}
    wrong = [] if names & set(hosts) else [f"SlurmctldHost names {hosts or 'no host'}, not {host}"]
    port = _last(settings, "slurmctldport") or "6817"
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?", port) or not all(
        0 < int(each) < 65536 for each in port.split("-")
    ):
        wrong.append(f"SlurmctldPort={port} is not a port")
    storage = _last(settings, "accountingstoragetype")
    if storage and storage.lower() != "accounting_storage/slurmdbd":
        wrong.append(f"AccountingStorageType={storage}: must be accounting_storage/slurmdbd")
    wrong += [
        f"AccountingStorageTRES={each} is not a TRES"
        for each in _listed(settings, "accountingstoragetres")
        if not _TRES.fullmatch(each)
    ]
    return wrong + _gres_of_no_type(conf)


def _gres_of_no_type(conf: SlurmConf) -> list[str]:
    """Returns an error for each Gres of a node that is not in GresTypes. slurmctld ignores such a Gres
    without a message."""
    types = {each.lower() for each in _listed(conf.settings(), "grestypes")}
    given = {
        each.partition(":")[0]
        for attributes in conf.nodes().values()
        for each in attributes.get("gres", "").split(",")
    }
    return [
        f"Gres={name} of a node is not in GresTypes"
        for name in sorted(given - {""})
        if name.lower() not in types
    ]


def _line(line: Line, place: Place) -> str:
    """Returns a line of slurm.conf in the form for the trial. A line that this module cannot parse stays
    unchanged."""
    if line.kind == "nodename":
        own = [("NodeAddr", LOOPBACK), ("Port", str(place.closed_port))]
        return render([(*_without(line.pairs, _NODE), *own)])
    if line.kind == "partitionname":
        dropped = frozenset() if place.with_database else _OF_DATABASE_IN_PARTITION
        return render([_without(line.pairs, dropped)])
    dropped = _DROPPED | _OF_DATABASE
    if place.slurm_user:
        dropped |= {"slurmuser"}
    pairs = tuple(_elsewhere(key, value) for key, value in _without(line.pairs, dropped))
    if pairs == line.pairs:
        return f"{line.text}\n"
    return render([pairs]) if pairs else ""


def _without(pairs: Pairs, keys: frozenset[str]) -> Pairs:
    return tuple((key, value) for key, value in pairs if key.lower() not in keys)


def _elsewhere(key: str, value: str) -> tuple[str, str]:
    if key.lower() == "jobcomptype" and value.lower() in _ELSEWHERE:
        return key, "jobcomp/none"
    return key, value


def _own(settings: dict[str, tuple[str, ...]], place: Place) -> Iterator[tuple[str, str]]:
    yield "SlurmctldHost", f"{place.host}({LOOPBACK})"
    yield "SlurmctldPort", str(place.port)
    yield "StateSaveLocation", str(place.state)
    yield "SlurmctldPidFile", str(place.folder / "slurmctld.pid")
    yield "SlurmctldDebug", "info"
    yield "MailProg", _NOTHING
    yield "AuthInfo", _options(settings, "authinfo", "disable_sack")
    yield "CommunicationParameters", _options(settings, "communicationparameters", "NoCtldInAddrAny")
    parameters = [
        each for each in _listed(settings, "slurmctldparameters") if each.lower() != _SENDS_AT_START
    ]
    if parameters:
        yield "SlurmctldParameters", ",".join(parameters)
    if place.slurm_user:
        yield "SlurmUser", place.slurm_user
    yield from ((key, _NOTHING) for key in _PROGRAMS if key in settings)
    if place.with_database:
        yield from _of_database(settings, place)


def _of_database(settings: dict[str, tuple[str, ...]], place: Place) -> Iterator[tuple[str, str]]:
    """Yields settings of an unreachable slurmdbd, so that slurmctld uses the copies in the state."""
    yield "AccountingStorageType", "accounting_storage/slurmdbd"
    yield "AccountingStorageHost", LOOPBACK
    yield "AccountingStoragePort", str(place.closed_port)
    if enforce := _last(settings, "accountingstorageenforce"):
        yield "AccountingStorageEnforce", enforce
    known = [
        each
        for each in _listed(settings, "accountingstoragetres")
        if each.lower() in place.known_tres or not _TRES.fullmatch(each)
    ]
    if known:
        yield "AccountingStorageTRES", ",".join(known)


def _options(settings: dict[str, tuple[str, ...]], key: str, more: str) -> str:
    return ",".join([*_listed(settings, key), more])


def _listed(settings: dict[str, tuple[str, ...]], key: str) -> list[str]:
    return [each for each in _last(settings, key).split(",") if each]


def _last(settings: dict[str, tuple[str, ...]], key: str) -> str:
    return settings.get(key, ("",))[-1]
