"""Tests of the expressions in which Prometheus joins metrics of node agents, dcgm-exporter and the
extender."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from deploy.local.prometheus import Prometheus
from deploy.monitoring.gpu_use import OF_PODS, held_by, used_by
from tests.monitoring.promtool import results

_P, _Q = (f'pod_namespace="ml",pod_name="{pod}",job_id="{job}"' for pod, job in (("p", 7), ("q", 8)))
SERIES = {
    f'node_agent_device_holder{{UUID="GPU-a",gpu="0",instance="n1",{_P}}}': "1",
    f'node_agent_device_holder{{UUID="GPU-b",gpu="1",GPU_I_ID="7",instance="n1",{_Q}}}': "1",
    f'node_agent_device_holder{{UUID="GPU-c",gpu="2",instance="n2",{_Q}}}': "1",  # no DCGM metrics
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a",gpu="0",hpc_job="7",exported_pod="p"}': "50",
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-d",gpu="3"}': "100",  # a GPU of a native job
    'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-a",gpu="0"}': "0.4",
    'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-b",gpu="1",GPU_I_ID="7"}': "0.25",
    'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-b",gpu="1",GPU_I_ID="9"}': "1",
    f'slurm_extender_job_info{{instance="before",account="x",user="",{_P}}}': "1",
    f'slurm_extender_job_info{{instance="after",account="x",user="alice",{_P}}}': "1",
    f'slurm_extender_job_info{{instance="after",account="x",user="bob",{_Q}}}': "1",
}
"""Series during a change of the leader. The old and the new leader both have series."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("expr", "samples"),
    [
        (
            OF_PODS,
            {f'{{UUID="GPU-a",{_P}}}': 0.5, f'{{UUID="GPU-b",GPU_I_ID="7",{_Q}}}': 0.25},
        ),
        (used_by("account"), {'{account="x"}': 0.75}),
        (held_by("account"), {'{account="x"}': 2}),
    ],
)
def test_gpu_use_is_joined_with_pods_and_jobs(
    expr: str, samples: dict[str, float], tools: Prometheus, tmp_path: Path
) -> None:
    expected = [{"labels": labels, "value": value} for labels, value in samples.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in SERIES.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "0m", "exp_samples": expected}],
    }
    status, said = results(tools, {"groups": []}, [test], tmp_path)
    assert (status, "SUCCESS" in said) == (0, True), said


def test_page_shows_the_join_of_the_dashboard() -> None:
    page = (CHECKOUT / "docs/reference/metrics.md").read_text()
    assert OF_PODS in " ".join(page.split())
