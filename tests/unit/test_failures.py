from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.failure import Scene, describe_failure
from dlq.domain.fingerprint import fingerprint, normalise_message
from dlq.domain.start import Lost, Start, decide_start, describe_loss

SCENE = Scene(base=str(Path(__file__).parent), foreign=frozenset(), frames_limit=20, secret="s")


def fail(message):
    raise KeyError(message)


def failure_of(message, scene=SCENE):
    with pytest.raises(KeyError) as caught:
        fail(message)
    return describe_failure(caught.value, handler="h", attempts=1, scene=scene)


@given(st.text(st.characters(min_codepoint=0x100), min_size=1, max_size=50))
def test_no_text_of_an_exception_is_kept(message):
    kept = failure_of(message)
    assert message not in kept.message + kept.stack + kept.error_class + kept.fingerprint


def test_own_frames_are_kept_as_file_line_and_function():
    kept = failure_of("x")
    assert kept.stack.splitlines()[-1].startswith("test_failures.py:")
    assert kept.stack.endswith(" fail")
    assert " at test_failures.py:" in kept.message


def test_frames_of_others_are_left_out():
    assert failure_of("x", Scene(base="/", foreign=frozenset({__file__}), frames_limit=20, secret="s")).stack == ""


def test_failures_that_differ_in_numbers_and_ids_share_a_fingerprint():
    one = failure_of("order 17 of 2026-11-30T10:00:00Z, 0b9e0b1c-9d3c-4c1f-8a55-3f0a8e0f6a11")
    two = failure_of("order 4711 of 2025-01-02T03:04:05Z,  5f5b1d9e-1d1c-4b1f-9a55-3f0a8e0f6a99")
    other = failure_of("invoice 17")
    assert one.fingerprint == two.fingerprint != other.fingerprint


@given(st.text(max_size=300))
def test_normalising_twice_changes_nothing_more_for_plain_words(text):
    assert len(fingerprint(handler="h", error_class="E", message=text, frame="f", secret="s")) == 16
    assert not any(c.isdigit() and c.isascii() for c in normalise_message(text))


@pytest.mark.parametrize(
    ("committed", "remembered", "first", "expected"),
    [
        (None, None, 0, Start(offset=None)),
        (None, None, 50, Start(offset=None)),
        (None, 70, 50, Start(offset=70)),
        (None, 50, 50, Start(offset=50)),
        (None, 40, 50, Lost(first=40, upto=50, count=10)),
        (40, None, 50, Lost(first=40, upto=50, count=10)),
        (40, 45, 50, Lost(first=40, upto=50, count=10)),
        (90, None, 0, Lost(first=90, upto=0, count=None)),
    ],
)
def test_where_a_partition_starts(committed, remembered, first, expected):
    assert decide_start(committed=committed, remembered=remembered, first=first) == expected


def test_a_loss_names_the_range():
    assert describe_loss(Lost(first=40, upto=50, count=10)) == "10 offsets are gone: 40 to 49"
