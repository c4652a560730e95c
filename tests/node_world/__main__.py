"""Runs random walks of the node world.

    python -m tests.node_world 0 200     # seeds 0 to 199, each with failures and without

Prints each bad walk. The exit status is 1 after a bad walk.
"""

import logging
import sys
from functools import partial

import structlog

from extender.bind import node_reservation
from extender.unmanaged import free_capacity
from tests.node_world.test_node_world import walk
from tests.node_world.virtual_time import run


def main(first: int, end: int) -> int:
    """Returns the number of bad walks."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    bad = 0
    for seed in range(first, end):
        for fails in (False, True):
            one = partial(walk, seed, fails=fails)
            world, actors = run(one, node_reservation, free_capacity)
            wrong = [*world.lasting_overlaps()[:1], *world.left]
            if wrong:
                bad += 1
                did = [act for each in actors for act in each.did]
                sys.stdout.write(f"seed {seed}, failures: {fails}: {wrong}\n{did}\n")
    sys.stdout.write(f"{2 * (end - first)} walks, {bad} bad\n")
    return bad


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
