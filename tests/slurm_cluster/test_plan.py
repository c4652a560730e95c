"""Tests of the plan of a change: the action that the change needs (a reconfiguration or a restart), the
jobs that the change would end, and the printed lines."""

from itertools import pairwise

import pytest

from slurm_cluster import jwks
from slurm_cluster.configuration.needs import TABLE, Need
from slurm_cluster.configuration.plan import Configuration, Job, Plan, plan
from slurm_cluster.configuration.slurm_conf import parse
from slurm_cluster.jwks import Key

BASE = (
    "ClusterName=c\nSlurmctldPort=6817\nSlurmctldDebug=info\nNodeName=n[1-3] CPUs=4\n"
    "PartitionName=main Nodes=ALL\nPartitionName=batch Nodes=n1\n"
)


def configuration(text: str, **files: bytes) -> Configuration:
    return Configuration(parse(text, lambda path: path), {"slurm.conf": text.encode(), **files})


def planned(wanted: str, *jobs: Job) -> Plan:
    return plan(configuration(BASE), configuration(wanted), jobs, {})


def test_an_equivalent_configuration_changes_nothing() -> None:
    same = planned(BASE.replace("SlurmctldDebug=info", "slurmctlddebug = info # as before"))
    assert (same.need, same.lines()) == (Need.NOTHING, ["nothing changes"])


@pytest.mark.parametrize(
    ("before", "after", "need", "line"),
    [
        ("Debug=info", "Debug=debug", Need.RECONFIGURE, "SlurmctldDebug: info -> debug"),
        (
            "6817",
            "6818",
            Need.RESTART,
            "SlurmctldPort: 6817 -> 6818 (slurmctld changes listening ports only at a restart)",
        ),
        ("CPUs=4", "CPUs=4 Feature=a", Need.RECONFIGURE, "node n[1-3]: feature not set -> a"),
        ("CPUs=4", "CPUs=4 Port=7", Need.RESTART_ALL, ""),
        ("CPUs=4", "CPUs=4 Port=7 Gres=gpu:1", Need.RESTART_WITHOUT_RECONFIGURE, ""),
        ("Name=c\n", "Name=d\n", Need.BY_HAND, ""),
        ("Nodes=n1", "Nodes=n2", Need.RECONFIGURE, "partition batch: nodes n1 -> n2"),
    ],
)
def test_each_change_has_its_need_and_its_line_in_the_plan(
    before: str, after: str, need: Need, line: str
) -> None:
    made = planned(BASE.replace(before, after))
    assert made.need is need
    assert line in made.lines() or not line


def test_the_greatest_need_counts() -> None:
    made = planned(BASE.replace("6817", "6818").replace("info", "debug"))
    assert made.need is Need.RESTART
    assert made.lines()[-1] == "needs: a restart of slurmctld, then scontrol reconfigure"


def test_new_device_numbers_need_a_restart_without_reconfiguration() -> None:
    before = configuration(BASE, **{"gres.conf": b"a"})
    other = BASE.replace("SlurmctldDebug=info", "CommunicationParameters=NoInAddrAny")
    made = plan(before, configuration(other, **{"gres.conf": b"b"}), (), {})
    assert made.need is Need.RESTART_WITHOUT_RECONFIGURE
    assert "without scontrol reconfigure" in made.lines()[-1]
    new_node = plan(
        before, configuration(f"{BASE}NodeName=n4 Gres=gpu:1\n", **{"gres.conf": b"a"}), (), {}
    )
    assert new_node.need is Need.RECONFIGURE


def test_jobs_of_a_removed_partition_or_node_are_listed() -> None:
    jobs = (
        Job("1", frozenset({"batch"})),
        Job("2", frozenset({"main"}), frozenset({"n3"})),
        Job("3", frozenset({"main"}), frozenset({"n2"})),
        Job("4", frozenset({"main", "batch"})),
    )
    without = BASE.replace("n[1-3]", "n[1-2]").replace("PartitionName=batch Nodes=n1\n", "")
    assert planned(without, *jobs).jobs == ("1", "2", "4")
    assert "would end jobs: 1, 2, 4" in planned(without, *jobs).lines()


LIVE = {"main": "DRAIN", "batch": "UP", "live": "UP"}
"""States of the partitions in slurmctld, after an administrator has drained `main` and created `live`
with scontrol."""
REMOVED = "partition live: is removed: scontrol created the partition, and slurm.conf lacks it"
OPENED = "partition main: state DRAIN by scontrol -> UP"


@pytest.mark.parametrize(
    ("more", "lines", "jobs"),
    [
        ("", [OPENED, REMOVED], ("1",)),
        ("ReconfigFlags=KeepPartState\n", [REMOVED], ("1",)),
        ("ReconfigFlags=KeepPowerSaveSettings,KeepPartInfo\n", [], ()),
        ("PartitionName=live Nodes=n2\n", [OPENED], ()),
    ],
)
def test_partitions_set_by_scontrol_are_lost_unless_slurm_keeps_them(
    more: str, lines: list[str], jobs: tuple[str, ...]
) -> None:
    job = Job("1", frozenset({"live"}), frozenset({"n2"}))
    made = plan(configuration(BASE), configuration(BASE + more), [job], LIVE)
    assert sorted({OPENED, REMOVED} & {*made.lines()}) == sorted(lines)
    assert made.jobs == jobs


def test_a_partition_state_in_slurm_conf_is_not_a_change_by_scontrol() -> None:
    closed = BASE.replace("Nodes=ALL", "Nodes=ALL State=DOWN").replace("Nodes=n1", "Nodes=n1 State=down")
    live = {"main": "UP", "batch": "DOWN"}
    made = plan(configuration(BASE), configuration(closed), (), live)
    assert made.lines()[:-1] == [
        "partition batch: state not set -> down",
        "partition main: state not set -> DOWN",
    ]


def test_a_new_node_size_ends_jobs_of_the_node_and_a_new_feature_does_not() -> None:
    job = Job("1", frozenset({"main"}), frozenset({"n1"}))
    assert planned(BASE.replace("CPUs=4", "CPUs=8"), job).jobs == ("1",)
    assert planned(BASE.replace("CPUs=4", "CPUs=4 Feature=x"), job).jobs == ()


def test_changes_of_files_beside_slurm_conf_are_in_the_plan() -> None:
    before = configuration(BASE, **{"gres.conf": b"a", "old.lua": b"", "slurm.key": b"1"})
    after = configuration(BASE, **{"gres.conf": b"b", "new.yaml": b"", "slurm.key": b"1"})
    lines = plan(before, after, (), {}).lines()[:3]
    assert lines[0].startswith("gres.conf: has other content (slurmd would number devices in another")
    assert lines[1:] == ["new.yaml: is new", "old.lua: is removed"]
    other = configuration(BASE, **{"slurm.key": b"2"})
    assert plan(configuration(BASE, **{"slurm.key": b"1"}), other, (), {}).need is Need.BY_HAND
    assert plan(configuration(BASE), other, (), {}).need is Need.RECONFIGURE


OLD, NEW = Key("old", b"1", signs=True), Key("new", b"2")


def keys_of(*keys: Key) -> dict[str, bytes]:
    """Returns the files of auth/slurm, as in the Secret."""
    return {"slurm.jwks": jwks.render(keys), "slurm.key": jwks.signing(keys).value}


def test_each_step_of_a_rotation_of_the_keys_needs_a_reconfiguration() -> None:
    """slurmctld reads slurm.key only if slurm.jwks does not exist. Each step changes slurm.jwks, but
    only one step changes slurm.key."""
    found: list[dict[str, bytes]] = [{"slurm.key": b"1"}, keys_of(OLD)]
    keys: jwks.Keys = (OLD,)
    for _ in jwks.Stage:
        keys = jwks.rotated(keys, NEW)
        found.append(keys_of(*keys))
    assert [each["slurm.key"] for each in found] == [b"1", b"1", b"1", b"2", b"2"]
    for before, after in pairwise(found):
        assert plan(configuration(BASE, **before), configuration(BASE, **after), (), {}).need is (
            Need.RECONFIGURE
        )


@pytest.mark.parametrize("after", [keys_of(NEW), {"slurm.key": b"2"}, {}, {"slurm.jwks": b"no keys"}])
def test_a_replacement_of_all_known_keys_must_be_made_by_hand(after: dict[str, bytes]) -> None:
    made = plan(configuration(BASE, **keys_of(OLD)), configuration(BASE, **after), (), {})
    assert made.need is Need.BY_HAND


def test_every_row_names_its_source() -> None:
    assert all(row.source and row.why and key == key.lower() for key, row in TABLE.items())
