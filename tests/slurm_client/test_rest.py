"""Tests of `SlurmRest` with a real slurmrestd. Only a real slurmrestd shows the tested behaviour."""

import asyncio
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from slurm_client import negotiation
from slurm_client.errors import InvalidRequest, NeedsOperator, OutcomeUnknown, RetryLater, Unreachable
from slurm_client.rest.client import SlurmRest
from slurm_client.tokens import StaticToken
from tests.eventually import until
from tests.slurm_client.bench import GPUS, RealBench, spec

pytestmark = pytest.mark.real

# Expected capabilities of each release.
OFFERED = {
    "26.05": {
        "api_version": "v0.0.45",
        "external_jobs": True,
        "configuration": True,
        "resources": True,
        "books": False,
        "default_partition": True,
    },
    "24.11": {
        "api_version": "v0.0.42",
        "external_jobs": False,
        "configuration": False,
        "resources": False,
        "books": False,
        "default_partition": False,
    },
}


async def test_a_unix_socket_works_as_tcp_does(cluster: Cluster, real_bench: RealBench) -> None:
    slurm = SlurmRest(f"unix://{cluster.slurmrestd_socket}", cluster.token_file)
    job_id = await slurm.allocate(spec(gres=(("gpu", 1),)), next(real_bench.ids))
    job = await slurm.job(job_id)
    assert job is not None
    assert job.state.running
    await slurm.aclose()


async def test_the_newest_common_api_and_its_capabilities_are_found(
    cluster: Cluster, rest: SlurmRest
) -> None:
    found = asdict(await rest.connect())
    assert found.pop("release").startswith(cluster.spec.release)
    assert found.pop("cluster") == "local"
    assert found == OFFERED[cluster.spec.release]


async def test_before_connecting_there_are_no_capabilities(rest: SlurmRest) -> None:
    with pytest.raises(RuntimeError, match="connect"):
        _ = rest.capabilities


async def test_array_tasks_are_not_mistaken_for_other_jobs(
    cluster: Cluster, real_bench: RealBench
) -> None:
    """Slurm writes the id of an array task as two numbers: 7_3 is task 3 of array 7, and not job 73."""
    job_id = await real_bench.slurm.submit(spec(), next(real_bench.ids))
    before = await real_bench.slurm.all_states()
    array = ("--parsable", "--hold", "--array=0-9", "--chdir=/tmp", "--wrap=true")
    number = cluster.run_slurm("sbatch", *array).stdout.strip()
    try:
        for _ in range(2):
            states = await real_bench.slurm.all_states()
            assert states.keys() <= before.keys()
            assert job_id in states
            assert states.entries >= 10
            cluster.run_slurm("scontrol", "update", f"jobid={number}_[3-5]", "comment=apart")
    finally:
        cluster.run_slurm("scancel", number)


# -- tokens


@pytest.mark.parametrize("problem", ["is not a JWT", "expired 3 minutes ago"])
async def test_wrong_token_needs_an_operator_and_is_described(
    cluster: Cluster, tmp_path: Path, problem: str
) -> None:
    file = tmp_path / "token"
    file.write_text("garbage\n" if "JWT" in problem else cluster.mint_token("root", -200))
    slurm = SlurmRest(cluster.slurmrestd_url, file)
    for call in (slurm.ping(), slurm.states([1]), slurm.nodes(), slurm.submit(spec(), 29_000_001)):
        with pytest.raises(NeedsOperator, match=f"the token in {file} {problem}"):
            await call
    await slurm.aclose()


async def test_a_token_signed_with_another_key_is_reported_with_its_cause(cluster: Cluster) -> None:
    head, claims, signature = cluster.mint_token("root").split(".")
    slurm = SlurmRest(cluster.slurmrestd_url, StaticToken(f"{head}.{claims}.{signature[::-1]}"))
    with pytest.raises(NeedsOperator, match="signed with Slurm's key"):
        await slurm.ping()
    await slurm.aclose()


async def test_a_rotated_token_is_used_at_once(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(cluster.mint_token("root", -200))
    slurm = SlurmRest(cluster.slurmrestd_url, file)
    with pytest.raises(NeedsOperator):
        await slurm.ping()
    fresh = tmp_path / "fresh"
    fresh.write_text(cluster.mint_token("root") + "\n")
    fresh.replace(file)
    await slurm.ping()
    await slurm.aclose()


async def test_a_refused_token_is_read_again_even_if_its_file_looks_unchanged(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    good = cluster.mint_token("root")
    file.write_text("x" * len(good))
    stamp = file.stat().st_mtime_ns
    slurm = SlurmRest(cluster.slurmrestd_url, file)
    with pytest.raises(NeedsOperator):
        await slurm.ping()
    file.write_text(good)
    os.utime(file, ns=(stamp, stamp))
    await slurm.ping()
    await slurm.aclose()


async def test_the_token_of_slurm_user_is_enough(cluster: Cluster, real_bench: RealBench) -> None:
    slurm = SlurmRest(cluster.slurmrestd_url, StaticToken(cluster.mint_token("slurm")))
    asked = spec(user_id=2001, admin_comment="key")
    job_id = await slurm.submit(asked, next(real_bench.ids))
    job = await slurm.job(job_id)
    assert job is not None
    assert (job.user_id, job.admin_comment) == (2001, "key")
    await slurm.aclose()


async def test_the_token_of_a_plain_user_needs_an_operator(
    cluster: Cluster, real_bench: RealBench
) -> None:
    slurm = SlurmRest(cluster.slurmrestd_url, StaticToken(cluster.mint_token("alice")))
    for asked in (spec(), spec(admin_comment="key"), spec(user_id=2002)):
        with pytest.raises(NeedsOperator):
            await slurm.submit(asked, next(real_bench.ids))
    await slurm.aclose()


# -- errors and connections


async def test_an_error_reply_does_not_disturb_the_next_call(real_bench: RealBench) -> None:
    # If slurmrestd 26.05 replies with an error, slurmrestd sends the reply twice and closes the
    # connection.
    for _ in range(20):
        with pytest.raises(InvalidRequest, match="Invalid partition name"):
            await real_bench.submit(partition="nowhere")
        await real_bench.slurm.ping()


async def test_an_error_has_slurms_number_http_status_and_message(real_bench: RealBench) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await real_bench.submit(partition="nowhere")
    error = refused.value
    # The client decides by Slurm's error number, because the HTTP status differs: 422 in 26.05, and 500
    # before 26.05.
    assert error.number == 2000
    assert error.http_status in {422, 500}
    assert "Invalid partition name specified" in str(error)
    assert "2000" in str(error)


async def test_an_address_without_a_server_is_unreachable(cluster: Cluster) -> None:
    slurm = SlurmRest("http://127.0.0.1:1", cluster.token_file)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await slurm.connect()
    gone = SlurmRest("unix:///nowhere/slurmrestd.sock", cluster.token_file)
    with pytest.raises(Unreachable):
        await gone.connect()


async def test_calls_succeed_after_a_restart_of_slurmrestd(
    cluster: Cluster, real_bench: RealBench
) -> None:
    slurm = real_bench.slurm
    # The pings open many connections, and the restart then closes all connections.
    await asyncio.gather(*(slurm.ping() for _ in range(16)))
    cluster.stop("slurmrestd")
    cluster.start("slurmrestd")
    await asyncio.gather(*(real_bench.submit(priority=0) for _ in range(16)))


async def test_without_external_jobs_placeholders_are_scripts_that_sleep(
    cluster: Cluster, real_bench: RealBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this API version, which 24.11 also offers, the client has no EXTERNAL_JOB.
    monkeypatch.setattr(negotiation, "KNOWN", ("v0.0.42",))
    bench = RealBench(SlurmRest(cluster.slurmrestd_url, cluster.token_file), cluster)
    assert not (await bench.slurm.connect()).external_jobs
    queued = await bench.until_running(await bench.submit(gres=(("gpu", 2),), user_id=2001))
    allocated = await bench.allocate(gres=(("gpu", 1),), required_nodes=queued.nodes)
    assert (queued.gres, allocated.gres) == (("gpu:h100:2(IDX:0-1)",), ("gpu:h100:1(IDX:2)",))
    assert (queued.user_id, queued.external, queued.requeue) == (2001, False, False)
    assert (await bench.slurm.configuration()).kill_wait_s is None
    await bench.clear()
    await bench.slurm.aclose()


async def test_a_batch_placeholder_that_its_owner_requeues_ends(
    cluster: Cluster, real_bench: RealBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "KNOWN", ("v0.0.42",))
    bench = RealBench(SlurmRest(cluster.slurmrestd_url, cluster.token_file), cluster)
    await bench.slurm.connect()
    job = await bench.until_running(await bench.submit(gres=(("gpu", 2),)))

    def scontrol(*arguments: str) -> None:
        cluster.run_slurm("scontrol", *arguments)

    async def has_run_twice() -> bool:
        read = await bench.read(job.id)
        if read.state.pending:  # slurmctld delays a requeued job for two minutes
            with suppress(ClusterError):  # raised if the job has just started
                await asyncio.to_thread(scontrol, "update", of, "StartTime=now", "NumCPUs=1")
        return read.restart_count == 1 and read.state.ended

    of = f"JobId={job.id}"
    await asyncio.to_thread(scontrol, "update", of, "Requeue=1")
    await asyncio.to_thread(scontrol, "requeue", str(job.id))
    await until(has_run_twice, "it has run twice, and has ended by itself", 40)
    await bench.clear()
    await bench.slurm.aclose()


# -- accounting


async def test_a_placeholder_is_charged_to_its_user_account_and_qos(real_office: RealBench) -> None:
    job_id = await real_office.submit(
        user_id=2001,
        group_id=2002,
        account="lab",
        qos="normal",
        priority=4321,
        comment="for the paper",
        admin_comment="key",
        gres=(("gpu", 2),),
    )
    await real_office.until_running(job_id)
    await real_office.slurm.cancel(job_id)
    fields = "user,group,account,qos,priority,comment,admincomment,state"
    asked = ("--noheader", "--parsable2", "--allocations", f"--jobs={job_id}")

    async def written() -> bool:
        sacct = await asyncio.to_thread(
            real_office.cluster.run_slurm, "sacct", *asked, f"--format={fields},alloctres%99"
        )
        entry, _, tres = sacct.stdout.strip().rpartition("|")
        charged = "alice|bob|lab|normal|4321|for the paper|key|CANCELLED by 0"
        return entry == charged and "gres/gpu=2" in tres

    await until(written, within_s=15)


# -- slurmctld down


async def test_calls_fail_without_side_effects_while_slurmctld_is_down(
    cluster: Cluster, real_bench: RealBench
) -> None:
    slurm, job_id = real_bench.slurm, next(real_bench.ids)
    cluster.stop("slurmctld")  # saves the nodes' states; else a kill may bring back an earlier drain
    cluster.start("slurmctld")
    await slurm.connect()
    cluster.kill("slurmctld")
    try:
        with pytest.raises(Unreachable, match=r"slurm controller|no slurmctld responds"):
            await slurm.ping()
        submitted, allocated, cancelled, *reads = await asyncio.gather(
            slurm.submit(spec(), job_id),
            slurm.allocate(spec(), job_id),
            slurm.cancel(job_id),
            # While slurmctld is down, none of these reads may return "there is no such job".
            slurm.states([1]),
            slurm.all_states(),
            slurm.job(1),
            slurm.nodes(),
            return_exceptions=True,
        )
    finally:
        cluster.start("slurmctld")
    assert isinstance(submitted, Unreachable)
    assert isinstance(allocated, Unreachable)
    assert isinstance(cancelled, OutcomeUnknown)
    assert all(isinstance(one, RetryLater | OutcomeUnknown) for one in reads), reads
    await slurm.ping()
    assert await slurm.job(job_id) is None


async def test_jobs_survive_a_restart_of_slurmctld(cluster: Cluster, real_bench: RealBench) -> None:
    job = await real_bench.allocate(gres=(("gpu", GPUS),))
    cluster.stop("slurmctld")
    cluster.start("slurmctld")
    assert (await real_bench.state(job.id)).running
