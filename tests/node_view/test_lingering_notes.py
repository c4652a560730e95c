"""Tests of the leader's notes, and of the notes that another replica reads from the Nodes."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from extender.node_view.lingering_notes import LingeringNotes
from tests.clock import Clock
from wellknown.lingering import MAX_NOTES_PER_NODE, LingeringNote

CHAT = LingeringNote(4711, "default/chat", 30.0)
SHORT = LingeringNote(4712, "default/short", 10.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def notes(clock: Clock) -> LingeringNotes:
    return LingeringNotes(clock)


def left(notes: LingeringNotes, node: str = "n1") -> dict[str, float]:
    """Returns the remaining seconds of each note, by Pod."""
    return {each.pod: each.seconds for each in notes.on(node)}


def to_write(notes: LingeringNotes) -> Sequence[LingeringNote]:
    """Returns the notes to write onto the only outdated Node."""
    assert notes.outdated() == ["n1"]
    written = notes.to_write("n1")
    assert written is not None
    return written


def test_note_counts_until_it_expires(notes: LingeringNotes, clock: Clock) -> None:
    notes.add("n1", CHAT)
    notes.add("n1", SHORT)
    assert left(notes) == {"default/chat": 30.0, "default/short": 10.0}
    assert left(notes, "n2") == {}
    clock.now += 11.0
    assert left(notes) == {"default/chat": 19.0}


def test_new_note_is_to_be_written_until_the_node_has_it(notes: LingeringNotes, clock: Clock) -> None:
    notes.add("n1", CHAT._replace(seconds=29.5))
    assert to_write(notes) == (CHAT,)
    clock.now += 0.6
    notes.follow_node("n1", [CHAT])
    assert notes.outdated() == []
    assert left(notes) == {"default/chat": pytest.approx(28.9)}


def test_expired_note_is_to_be_removed_from_its_node(notes: LingeringNotes, clock: Clock) -> None:
    notes.follow_node("n1", [SHORT])
    assert notes.outdated() == []
    clock.now += 11.0
    assert to_write(notes) == ()
    notes.follow_node("n1", ())
    assert notes.outdated() == []


def test_expired_note_beside_another_is_to_be_removed(notes: LingeringNotes, clock: Clock) -> None:
    """If the expired note stayed on the Node, a starting replica would count the full time of the note
    again."""
    notes.follow_node("n1", [CHAT, SHORT])
    clock.now += 11.0
    assert to_write(notes) == (CHAT._replace(seconds=19.0),)


def test_new_version_of_a_node_does_not_restart_the_time_of_a_note(
    notes: LingeringNotes, clock: Clock
) -> None:
    for _ in range(3):
        notes.follow_node("n1", [SHORT])
        clock.now += 4.0
    assert left(notes) == {}


def test_note_removed_by_others_still_counts_and_is_written_again(notes: LingeringNotes) -> None:
    notes.follow_node("n1", [CHAT])
    notes.follow_node("n1", ())
    assert left(notes) == {"default/chat": 30.0}
    assert to_write(notes) == (CHAT,)


def test_note_does_not_expire_while_the_node_is_unreachable(notes: LingeringNotes, clock: Clock) -> None:
    """The Node's kubelet does not know of the deletion, and starts the grace period later."""
    notes.follow_node("n1", [SHORT], away=True)
    clock.now += 60.0
    assert left(notes) == {"default/short": 10.0}
    assert notes.outdated() == []


@pytest.mark.parametrize("away_for_s", [5.0, 60.0])
def test_time_of_a_note_begins_again_when_the_node_is_back(
    notes: LingeringNotes, clock: Clock, away_for_s: float
) -> None:
    notes.follow_node("n1", [SHORT], away=True)
    clock.now += away_for_s
    notes.follow_node("n1", [SHORT])
    assert left(notes) == {"default/short": 10.0}
    assert notes.outdated() == []
    clock.now += 11.0
    assert left(notes) == {}


def test_notes_of_a_node_that_is_away_are_written_with_their_whole_time(
    notes: LingeringNotes, clock: Clock
) -> None:
    """When the Node is back, a new leader counts the whole time that the notes on the Node contain."""
    notes.follow_node("n1", [SHORT], away=True)
    clock.now += 60.0
    notes.add("n1", CHAT)
    assert to_write(notes) == (SHORT, CHAT)


def test_rewritten_note_gets_its_whole_time_when_the_node_is_back(
    notes: LingeringNotes, clock: Clock
) -> None:
    """The notes of a Node were written again shortly before Kubernetes lost the Node."""
    notes.follow_node("n1", [CHAT])
    clock.now += 20.0
    rewritten = CHAT._replace(seconds=10.0)
    notes.follow_node("n1", [rewritten])
    notes.follow_node("n1", [rewritten], away=True)
    assert to_write(notes) == (CHAT,)
    notes.follow_node("n1", [rewritten])
    assert left(notes) == {"default/chat": 30.0}


def test_notes_of_a_deleted_node_expire(notes: LingeringNotes, clock: Clock) -> None:
    notes.follow_node("n1", [SHORT], away=True)
    notes.drop_node("n1")
    assert left(notes) == {"default/short": 10.0}
    clock.now += 11.0
    assert left(notes) == {}
    assert notes.outdated() == []


def test_number_of_notes_is_limited_and_the_latest_are_kept(notes: LingeringNotes) -> None:
    with capture_logs() as logged:
        for number in range(MAX_NOTES_PER_NODE + 2):
            pod = f"default/p{number}"
            notes.add("n1", LingeringNote(number, pod, 600.0 - number))
    assert [each.job_id for each in notes.on("n1")] == list(range(MAX_NOTES_PER_NODE))
    assert [line["note"] for line in logged] == ["default/p128", "default/p129"]


PROLONGED = CHAT._replace(seconds=600.0)


def test_prolonged_note_is_written_again(notes: LingeringNotes) -> None:
    """Another Pod of the same workload is deleted by force later."""
    notes.follow_node("n1", [CHAT])
    notes.add("n1", PROLONGED)
    assert to_write(notes) == (PROLONGED,)
    notes.follow_node("n1", [PROLONGED])
    assert notes.outdated() == []


def test_shorter_time_does_not_shorten_a_note(notes: LingeringNotes) -> None:
    notes.add("n1", PROLONGED)
    notes.add("n1", CHAT)
    assert left(notes) == {"default/chat": 600.0}


def test_note_prolonged_during_the_write_is_written_again(notes: LingeringNotes) -> None:
    notes.add("n1", CHAT)
    notes.add("n1", PROLONGED)
    notes.note_written("n1", [CHAT])
    assert to_write(notes) == (PROLONGED,)


def test_other_replicas_prolong_a_prolonged_note(notes: LingeringNotes, clock: Clock) -> None:
    notes.follow_node("n1", [CHAT])
    clock.now += 20.0
    notes.follow_node("n1", [PROLONGED])
    assert left(notes) == {"default/chat": 600.0}
    clock.now += 10.0
    notes.follow_node("n1", [PROLONGED])
    assert left(notes) == {"default/chat": 590.0}


def test_other_replicas_notice_a_note_prolonged_by_an_equal_time(
    notes: LingeringNotes, clock: Clock
) -> None:
    """If the annotation got the same text again, the watch would send no new version of the Node."""
    other = LingeringNotes(clock)
    for each in (notes, other):
        each.follow_node("n1", [CHAT])
    clock.now += 20.0
    notes.add("n1", CHAT)
    written = to_write(notes)
    for each in (notes, other):
        each.follow_node("n1", written)
        assert left(each)["default/chat"] >= 30.0
        assert each.outdated() == []


def test_rewritten_notes_keep_their_expiry(notes: LingeringNotes, clock: Clock) -> None:
    other = LingeringNotes(clock)
    notes.add("n1", CHAT)
    for number in range(5):
        notes.add("n1", SHORT._replace(job_id=number, seconds=600.0))
        written = to_write(notes)
        clock.now += 0.5
        for each in (notes, other):
            each.follow_node("n1", written)
        clock.now += 4.1
    clock.now += 30.0 - 5 * 4.6 + 1.0
    assert "default/chat" not in left(notes)
    assert "default/chat" not in left(other)
