"""Tests of the slurm.conf that a trial gives to the temporary slurmctld: no setting lets this slurmctld
reach the running Slurm."""

from pathlib import Path

import pytest

from slurm_cluster.configuration.slurm_conf import SlurmConf, parse
from slurm_cluster.configuration.trial_conf import Place, trial_text, untried

TEXT = """\
ClusterName=c
SlurmctldHost=ctl-0(10.0.0.5)
SlurmctldHost=ctl-1
SlurmctldPort=6817
SlurmUser=slurm
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldParameters=enable_configless,reconfig_on_restart,idle_on_node_suspend
SlurmctldPrimaryOnProg=/usr/bin/move-address
SuspendProgram=/usr/bin/suspend
MailProg=/usr/bin/mail
AuthInfo=use_client_ids
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key
CommunicationParameters=block_null_hash
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=slurmdbd
AccountingStoragePort=6819
AccountingStorageEnforce=qos
AccountingStorageTRES=gres/gpu,gres/new
JobCompType=jobcomp/mysql
KillWait=30
NodeName=n[1-9] NodeAddr=10.1.0.[1-9] NodeHostname=h[1-9] Port=6818 CPUs=4
PartitionName=main Nodes=ALL QOS=part AllowAccounts=a
Kill Wait=30
"""


def place(tmp_path: Path, *, with_database: bool, user: str = "") -> Place:
    return Place(
        tmp_path, "ctl-0", 4001, 4002, Path("/etc/slurm"), with_database, frozenset({"gres/gpu"}), user
    )


def conf(text: str = TEXT) -> SlurmConf:
    return parse(text, lambda path: path)


def test_the_trial_conf_has_its_own_addresses_ports_state_and_files(tmp_path: Path) -> None:
    settings = conf(trial_text(conf(), place(tmp_path, with_database=False))).settings()
    own = {
        "slurmctldhost": ("ctl-0(127.0.0.1)",),
        "slurmctldport": ("4001",),
        "statesavelocation": (f"{tmp_path}/state",),
        "slurmctldpidfile": (f"{tmp_path}/slurmctld.pid",),
        "authinfo": ("use_client_ids,disable_sack",),
        "communicationparameters": ("block_null_hash,NoCtldInAddrAny",),
        "authaltparameters": (f"jwt_key={tmp_path}/etc/jwt_hs256.key",),
        "slurmctldparameters": ("enable_configless,idle_on_node_suspend",),
        "clustername": ("c",),
    }
    assert settings.items() >= own.items()


def test_the_trial_conf_runs_no_program_and_uses_no_other_server(tmp_path: Path) -> None:
    settings = conf(trial_text(conf(), place(tmp_path, with_database=True))).settings()
    assert "slurmctldprimaryonprog" not in settings
    assert settings["suspendprogram"] == settings["mailprog"] == ("/bin/true",)
    assert settings["jobcomptype"] == ("jobcomp/none",)
    assert settings["accountingstoragehost"] == ("127.0.0.1",)
    assert settings["accountingstorageport"] == ("4002",)


def test_the_trial_conf_reaches_no_node(tmp_path: Path) -> None:
    nodes = conf(trial_text(conf(), place(tmp_path, with_database=True))).nodes()
    assert nodes["n1"] == {"cpus": "4", "nodeaddr": "127.0.0.1", "port": "4002"}
    assert len(nodes) == 9


def test_the_trial_conf_keeps_qos_and_accounts_with_a_database(tmp_path: Path) -> None:
    text = conf(trial_text(conf(), place(tmp_path, with_database=True)))
    assert text.partitions()["main"] == {"nodes": "ALL", "qos": "part", "allowaccounts": "a"}
    assert text.settings()["accountingstorageenforce"] == ("qos",)
    assert text.settings()["accountingstoragetres"] == ("gres/gpu",)


def test_the_trial_conf_omits_accounting_without_a_database(tmp_path: Path) -> None:
    text = conf(trial_text(conf(), place(tmp_path, with_database=False)))
    assert text.partitions()["main"] == {"nodes": "ALL"}
    assert not [key for key in text.settings() if key.startswith("accountingstorage")]


def test_the_trial_conf_keeps_unreadable_lines(tmp_path: Path) -> None:
    assert "\nKill Wait=30\n" in trial_text(conf(), place(tmp_path, with_database=False))


def test_slurm_user_is_replaced_only_for_root(tmp_path: Path) -> None:
    as_root = conf(trial_text(conf(), place(tmp_path, with_database=False, user="root")))
    assert as_root.settings()["slurmuser"] == ("root",)
    as_itself = conf(trial_text(conf(), place(tmp_path, with_database=False)))
    assert as_itself.settings()["slurmuser"] == ("slurm",)


def test_valid_settings_that_the_trial_replaces_have_no_problems() -> None:
    assert untried(conf(), "ctl-0") == []
    assert untried(conf(), "ctl-1.slurm.svc") == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("ctl-", "other-", "SlurmctldHost"),
        ("SlurmctldPort=6817", "SlurmctldPort=68170", "SlurmctldPort=68170 is not a port"),
        ("accounting_storage/slurmdbd", "accounting_storage/mysql", "accounting_storage/slurmdbd"),
        ("gres/new", "gers/new", "AccountingStorageTRES=gers/new is not a TRES"),
    ],
)
def test_a_wrong_setting_that_the_trial_replaces_is_named(before: str, after: str, words: str) -> None:
    (problem,) = untried(conf(TEXT.replace(before, after)), "ctl-0")
    assert words in problem
