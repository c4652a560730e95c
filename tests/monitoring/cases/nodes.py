"""Cases for the alerts about Nodes, node agents and pools."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series, agent_degraded

_OLDEST_DRAIN = "slurm_extender_drained_oldest_timestamp_seconds"


def _agents(*looks: str) -> Series:
    looked = {
        f'node_agent_last_look_timestamp_seconds{{node="n{n}",instance="{n}"}}': v
        for n, v in enumerate(looks)
    }
    return {"slurm_extender_agent_nodes": "2x120", **looked}


def _gpu(used: str, *held: str) -> Series:
    """Returns the series of a GPU: the use, and the jobs that have the GPU in turn."""
    jobs = {
        f'node_agent_device_holder{{UUID="GPU-a",gpu="0",node="n1",job_id="{job}"}}': times
        for job, times in enumerate(held or ("1x90",))
    }
    return {'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a",gpu="0"}': used, **jobs}


def _instance(used: str) -> Series:
    """Returns the series of a MIG instance with this use. Another instance of the same GPU is busy."""
    return {
        'node_agent_device_holder{UUID="GPU-a",gpu="0",GPU_I_ID="7",node="n1"}': "1x90",
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-a",gpu="0",GPU_I_ID="7"}': used,
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-a",gpu="0",GPU_I_ID="9"}': "0.9x90",
    }


CASES = (
    Case(
        "SlurmExtenderNodesDrainedLong",
        {f'{_OLDEST_DRAIN}{{cause="outstayed"}}': "60x90"},
        {f'{_OLDEST_DRAIN}{{cause="cordoned"}}': "60x90"},
        "75m",
    ),
    Case(
        "SlurmExtenderNodesDrainedLong",  # among 5,000 Nodes, some are always not ready
        {f'{_OLDEST_DRAIN}{{cause="not-ready"}}': "60x4400"},
        {f'{_OLDEST_DRAIN}{{cause="not-ready"}}': "86400x4400"},
        "73h",
    ),
    Case(
        "SlurmExtenderNodesDrainedLong",  # two leaders lead one after the other
        {
            f'{_OLDEST_DRAIN}{{cause="outstayed",instance="a"}}': "60x61 _x30",
            f'{_OLDEST_DRAIN}{{cause="outstayed",instance="b"}}': "_x61 60x30",
        },
        {f'{_OLDEST_DRAIN}{{cause="outstayed",instance="b"}}': "_x20 1260x70"},
        "67m",
    ),
    Case("SlurmExtenderNodeAgentSilent", _agents("0+60x60", "60x60"), _agents("0+60x60", "0+60x60")),
    Case("SlurmExtenderNodeAgentSilent", _agents("0+60x5 _x55"), _agents(), "25m"),
    Case(
        "SlurmExtenderNodeAgentSilent",  # a rolling update replaces one agent after the other
        _agents("0+60x60", "0+60x2 _x58"),
        _agents("0+60x5 _x55", "0+60x11 _x49")
        | {
            'node_agent_last_look_timestamp_seconds{node="n0",instance="new"}': "_x14 840+60x46",
            'node_agent_last_look_timestamp_seconds{node="n1",instance="new"}': "_x20 1200+60x40",
        },
        "19m",
    ),
    Case("SlurmExtenderNodeAgentsNotWatched", _agents(), _agents("0+60x5 _x115"), "90m"),
    Case("SlurmExtenderNodeAgentsNotWatched", _agents(), {"slurm_extender_agent_nodes": "0x120"}, "90m"),
    Case(
        "SlurmExtenderLimitsNotApplied",
        agent_degraded("guard", "1x60"),
        agent_degraded("watch of Pods", "1x60"),
    ),
    Case(
        "SlurmExtenderLimitsNotApplied",
        agent_degraded("numbers of devices", "1x60"),
        agent_degraded("file of the numbers of devices", "1x60"),
    ),
    Case(
        "SlurmExtenderLimitsNotApplied",
        {'node_agent_pods_with_less_than_their_jobs{node="n1"}': "1x60"},
        {'node_agent_pods_with_less_than_their_jobs{node="n1"}': "0x60"},
    ),
    Case(
        "SlurmExtenderCoresShared",
        {'node_agent_shared_cpus{node="n1"}': "2x60"},
        {'node_agent_shared_cpus{node="n1"}': "0x60"},
    ),
    Case(
        "SlurmExtenderGresMismatch",
        {'node_agent_gres_mismatches{node="n1"}': "1x60"},
        {'node_agent_gres_mismatches{node="n1"}': "1x5 0x60"},
    ),
    Case(
        "SlurmExtenderOtherDevices",
        {'node_agent_pods_with_other_devices{node="n1",resource="nvidia.com/gpu"}': "1x60"},
        {'node_agent_pods_with_other_devices{node="n1",resource="nvidia.com/gpu"}': "1x4 0x60"},
    ),
    Case("SlurmExtenderDeviceIdle", _gpu("0x90"), _gpu("0x40 3 0x49"), "75m"),
    Case("SlurmExtenderDeviceIdle", _gpu("0x90"), _gpu("0x40 _x20 0x30"), "75m"),  # no metrics
    Case("SlurmExtenderDeviceIdle", _gpu("0x90"), _gpu("0x90", "1x40", "_x41 1x49"), "75m"),  # a new job
    Case("SlurmExtenderDeviceIdle", _instance("0x90"), _instance("0.01x90"), "75m"),
    Case(
        "SlurmExtenderDevicesFailed",
        {'node_agent_devices_failed{node="n1",gres="gpu",type="h100"}': "1x60"},
        {'node_agent_devices_failed{node="n1",gres="gpu",type="h100"}': "0x60"},
    ),
    Case(
        "SlurmExtenderKubeletRejectsPods",  # 0: a Pod is tried between two pauses
        {'slurm_extender_pods_rejecting_nodes{closed_to="all"}': "1x4 0 1x4 0 1x60"},
        {'slurm_extender_pods_rejecting_nodes{closed_to="all"}': "0x20 1x1 0x60"},
    ),
    Case(
        "SlurmExtenderPoolRollOutStopped",
        {'slurm_extender_pool_stopped{pool="gpus"}': "1x60"},
        {'slurm_extender_pool_stopped{pool="gpus"}': "0x60"},
    ),
)
