"""/prioritize, which leaves everything to Slurm."""

from __future__ import annotations

import pytest

from tests.verbs.callers import Listeners, body


async def test_every_node_offered_gets_the_same_score() -> None:
    answer = await Listeners().ask("prioritize", body("prioritize"))
    assert answer == [{"Host": f"n{i}", "Score": 0} for i in range(6)]


async def test_no_names_get_no_scores() -> None:
    assert await Listeners().ask("prioritize", body("prioritize") | {"NodeNames": None}) == []


@pytest.mark.parametrize("sent", [b"", b"[", [], {"NodeNames": "n1"}, {"NodeNames": [None]}])
async def test_a_malformed_call_to_prioritize_is_told_so(sent: object) -> None:
    response = await Listeners().post("prioritize", sent)
    assert response.status_code == 400
    assert "malformed request" in response.json()["Error"]


async def test_an_unheard_of_verb_is_not_found() -> None:
    assert (await Listeners().post("evict", {})).status_code == 404
