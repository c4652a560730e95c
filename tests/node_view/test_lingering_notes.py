"""The notes of the leader, and those that another replica reads on the Nodes."""

import asyncio

from extender.node_view.lingering_notes import LingeringNotes
from wellknown.lingering import MOST, LingeringContainers

CHAT = LingeringContainers(4711, "default/chat", 30.0)
SHORT = LingeringContainers(4712, "default/short", 0.05)


def names(notes: LingeringNotes, node: str = "n1") -> list[str]:
    return [each.pod for each in notes.on(node)]


async def test_note_counts_until_it_expires() -> None:
    notes = LingeringNotes()
    notes.add("n1", CHAT)
    notes.add("n1", SHORT)
    assert names(notes) == ["default/chat", "default/short"]
    assert names(notes, "n2") == []
    await asyncio.sleep(0.06)
    assert names(notes) == ["default/chat"]


async def test_new_note_is_to_be_written_until_the_node_has_it() -> None:
    notes = LingeringNotes()
    notes.add("n1", CHAT)
    [(node, written)] = notes.to_write()
    assert (node, [each.pod for each in written]) == ("n1", ["default/chat"])
    notes.see("n1", [CHAT._replace(seconds=31.0)])  # rounded up
    assert list(notes.to_write()) == []
    assert notes.on("n1")[0].seconds < 30.0


async def test_expired_note_is_to_be_removed_from_its_node() -> None:
    notes = LingeringNotes()
    notes.see("n1", [SHORT])
    assert list(notes.to_write()) == []
    await asyncio.sleep(0.06)
    assert list(notes.to_write()) == [("n1", ())]
    notes.see("n1", ())
    assert list(notes.to_write()) == []


async def test_another_version_of_the_node_does_not_begin_the_time_again() -> None:
    notes = LingeringNotes()
    for _ in range(3):
        notes.see("n1", [SHORT])
        await asyncio.sleep(0.03)
    assert names(notes) == []


async def test_note_that_somebody_removes_from_its_node_still_counts_and_is_written_again() -> None:
    notes = LingeringNotes()
    notes.see("n1", [CHAT])
    notes.see("n1", ())
    assert names(notes) == ["default/chat"]
    assert [node for node, _ in notes.to_write()] == ["n1"]


async def test_note_does_not_expire_while_kubernetes_does_not_hear_from_the_node() -> None:
    """Its kubelet does not know of the deletion, and begins the grace later."""
    notes = LingeringNotes()
    notes.see("n1", [SHORT], away=True)
    await asyncio.sleep(0.06)
    assert names(notes) == ["default/short"]
    assert list(notes.to_write()) == []
    notes.see("n1", [SHORT], away=False)
    assert names(notes) == ["default/short"]
    await asyncio.sleep(2.1)
    assert names(notes) == []


async def test_number_of_notes_is_limited_and_the_latest_are_kept() -> None:
    notes = LingeringNotes()
    for number in range(MOST + 2):
        notes.add("n1", CHAT._replace(job_id=number, seconds=600.0 - number))
    assert [each.job_id for each in notes.on("n1")] == list(range(MOST))


async def test_prolonged_note_is_written_again() -> None:
    """Another Pod of the same workload is deleted by force later."""
    notes = LingeringNotes()
    notes.see("n1", [CHAT])
    notes.add("n1", CHAT._replace(seconds=600.0))
    assert [node for node, _ in notes.to_write()] == ["n1"]
