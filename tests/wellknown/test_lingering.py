from wellknown.lingering import LingeringContainers, lingering_on, text_of
from wellknown.names import LINGERING


def read(text: str | None) -> tuple[LingeringContainers, ...]:
    return lingering_on({} if text is None else {LINGERING: text})


def test_text_is_read_as_it_was_written() -> None:
    containers = (
        LingeringContainers(4711, "default/chat", 35.0),
        LingeringContainers(0, "team-a/web.v2", 4.2),
    )
    text = text_of(containers)
    assert text == "job 4711, Pod default/chat: 35 s; job 0, Pod team-a/web.v2: 5 s"
    assert read(text) == (containers[0], containers[1]._replace(seconds=5.0))


def test_no_containers_have_no_text() -> None:
    assert text_of(()) is None
    assert read(None) == read("") == ()


def test_other_words_are_left_out() -> None:
    assert read("by hand; job x, Pod a/b: 3 s; job 7, Pod a/b: 3 s") == (
        LingeringContainers(7, "a/b", 3.0),
    )


def test_text_is_limited_and_keeps_the_longest() -> None:
    many = [LingeringContainers(number, f"default/{'p' * 200}", number) for number in range(1, 1000)]
    text = text_of(many) or ""
    assert len(text) <= 65_536
    assert [each.job_id for each in read(text)[:2]] == [999, 998]
