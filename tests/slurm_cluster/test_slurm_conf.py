"""Tests of the reader of slurm.conf: settings in upper and lower case, and included files."""

import pytest

from slurm_cluster.configuration.slurm_conf import SlurmConf, parse, render


def conf(text: str, **included: str) -> SlurmConf:
    return parse(text, lambda path: included[path])


def test_settings_are_read_by_key_without_comments_and_quotes() -> None:
    read = conf(
        'ClusterName = a # "b"\nslurmctldhost=x(1.2.3.4)\nSlurmctldHost=y\nMailProg="/bin/a b"\n'
    )
    assert read.settings() == {
        "clustername": ("a",),
        "slurmctldhost": ("x(1.2.3.4)", "y"),
        "mailprog": ("/bin/a b",),
    }


def test_several_keys_in_a_line_and_continued_lines_are_read() -> None:
    found = conf("SlurmctldPort=1 SlurmdPort=2\nAuthType=\\\nauth/slurm").settings()
    assert found == {"slurmctldport": ("1",), "slurmdport": ("2",), "authtype": ("auth/slurm",)}


def test_nodes_have_the_defaults_of_the_lines_before() -> None:
    read = conf("NodeName=DEFAULT CPUs=4\nNodeName=n[1-2] RealMemory=5\nNodeName=x CPUs=8\n")
    both = {"cpus": "4", "realmemory": "5"}
    assert read.nodes() == {"n1": both, "n2": both, "x": {"cpus": "8"}}
    assert read.settings() == {}


def test_partitions_and_node_sets_are_read() -> None:
    read = conf("PartitionName=main Nodes=ALL Default=YES\nNodeSet=gpu Feature=gpu\n")
    assert read.partitions() == {"main": {"nodes": "ALL", "default": "YES"}}
    assert read.others() == {"nodeset=gpu": {"feature": "gpu"}}


def test_an_included_file_takes_the_place_of_its_include_line() -> None:
    read = conf("A=1\ninclude more\nC=3\n", more="B=2\n")
    assert [line.pairs for line in read.lines] == [(("A", "1"),), (("B", "2"),), (("C", "3"),)]


def test_a_recursive_or_missing_include_is_an_error() -> None:
    with pytest.raises(LookupError, match="itself"):
        conf("include a", a="include a")
    with pytest.raises(LookupError):
        conf("include a")


def test_a_line_of_another_form_stays_unchanged() -> None:
    (line,) = conf("this is nothing # really").lines
    assert (line.pairs, line.text, line.kind) == ((), "this is nothing", "")


def test_a_value_with_spaces_is_written_in_quotes() -> None:
    assert render([(("A", "1 2"), ("B", "3"))]) == 'A="1 2" B=3\n'
