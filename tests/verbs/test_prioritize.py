"""Tests of /prioritize. All Nodes get the same score, because Slurm chooses the node."""

from tests.verbs.callers import Listeners, body


async def test_every_node_offered_gets_the_same_score() -> None:
    answer = await Listeners().ask("prioritize", body("prioritize"))
    assert answer == [{"Host": f"n{i}", "Score": 0} for i in range(6)]


async def test_no_names_get_no_scores() -> None:
    assert await Listeners().ask("prioritize", body("prioritize") | {"NodeNames": None}) == []


async def test_unknown_verb_is_not_found() -> None:
    assert (await Listeners().post("evict", {})).status_code == 404
