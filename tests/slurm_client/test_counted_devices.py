"""Devices without files, as on EXTERNAL nodes without gres.conf: Slurm only counts such devices."""

from itertools import count
from typing import Any

import pytest

from deploy.local.spec import ClusterSpec
from extender.jobs.grants import covers, requested_gres
from slurm_client import gres
from slurm_client.model import JobSpec
from tests.slurm_client.bench import slurm_of

NODES = 2
GPUS = 8


@pytest.mark.real
async def test_all_devices_of_a_job_are_counted_on_each_node() -> None:
    size: dict[str, Any] = {"nodes": 0, "external_nodes": NODES, "gpus_per_node": GPUS}
    spec = ClusterSpec(release="26.05", kubernetes=False, extender=False, kill_wait=5, **size)
    ids = count(1)
    async with slurm_of(spec) as slurm:
        for number in (1, 2, GPUS):
            asked = JobSpec("counted", 1, 10, gres=(("gpu", number),), nodes=NODES)
            job_id = await slurm.allocate(asked, next(ids))
            job, grant = await slurm.job(job_id), await slurm.grant(job_id)
            assert job is not None
            assert grant is not None
            for shown in (job.grant, grant):
                assert [gres.counts(each)["gpu"] for each in shown.gres] == [number] * NODES
                assert covers(shown, asked)
            assert requested_gres(job)["gpu"] == number
            await slurm.cancel(job_id)
