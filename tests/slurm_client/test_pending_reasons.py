"""Tests of the list of pending reasons in tests/data: the list equals the reasons in Slurm's C
library."""

import subprocess
import sys

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.words import REASONS

ASK = """
import ctypes, sys
name_of = ctypes.CDLL(sys.argv[1]).slurm_job_state_reason_string
name_of.restype = ctypes.c_char_p
print(*(name_of(number).decode() for number in range(1000)))
"""
NONE = {"InvalidReason", "InvaildReason"}
"""The library's names for a number that is no reason. 24.11 misspells the name."""


@pytest.mark.real
@pytest.mark.parametrize("release", list(DEBIAN_SUITES))
def test_known_pending_reasons_equal_the_reasons_of_slurms_library(release: str) -> None:
    """The Python program that loads Slurm's library runs with the C library of the unpacked Debian tree,
    because Slurm's library needs this C library."""
    tree, _ = Cluster.prepare(ClusterSpec(kubernetes=False, extender=False, release=release))
    (library,) = tree.glob("usr/lib/*/slurm-wlm/libslurmfull.so")
    (loader,) = library.parents[1].glob("ld-linux-*")
    found = f"{library.parents[1]}:{library.parent}"
    program = (sys.executable, "-I", "-S", "-c", ASK, str(library))
    command = (str(loader), "--library-path", found, *program)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(said) - NONE == set(REASONS[release])
