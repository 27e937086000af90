"""Acceptance of parking: a kill at any step, a record that breaks its schema, a record that is almost too large."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from dlq.facade import get_replay, preview_replay, start_replay
from dlq.models import DeadLetter
from dlq.models_copy import Copy
from dlq.originals import decode_headers
from dlq.types import FailureClass, Permanent, ReplayState, Selection
from tests.consumers import ROOT, Line, effects, headers_of, make_effect_table, running, until, write_effect
from tests.copies import copies_on, read_copies
from tests.relay_helpers import database_url
from tests.unit.test_export_headers import decode_spring

pytestmark = pytest.mark.django_db(transaction=True)
# The step at which a process kills itself, and the how many-th time it comes there.
STEPS = {
    "in-handler": 4, "after-copy": 1, "after-quarantine": 1, "before-commit": 5, "after-commit": 5, "before-finish": 2,
}  # fmt: skip
MORE_STEPS = {
    "after-claim": 3, "before-dead-letter": 1, "before-copy": 1, "after-dead-letter": 1, "before-offset": 1,
    "after-offset": 1,
}  # fmt: skip
RECORDS, KEYS = 60, 12


@pytest.fixture
def line(transactional_db):
    make_effect_table()
    made = Line()
    yield made
    made.drop()


@contextmanager
def child(line, step, nth):
    """`tests.parking_child` on this test's database; it is killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.parking_child", line.topic, line.group, step, str(nth)],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings.base",
            "SIGNALBOX_DATA_DIR": os.devnull,
            "DATABASE_URL": database_url(),
            "CONSUMER_SESSION_TIMEOUT_MS": "6000",
            "DLQ_COPIES": "true",
        },
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "steps", [STEPS, pytest.param(STEPS | MORE_STEPS, marks=pytest.mark.long)], ids=["six steps", "twelve steps"]
)
def test_kills_at_every_step_lose_nothing_double_no_effect_and_park_each_record_once(line, steps):
    line.put_many([(n, f"k{n % KEYS}", 0) for n in range(RECORDS)])
    with copies_on(line) as topic:
        for step, nth in steps.items():
            with child(line, step, nth) as killed:
                killed.wait(120)
                assert killed.returncode == -9, step
        with child(line, "never", 0):
            until(lambda: line.committed() == RECORDS, within_s=120, what="the end of the backlog")
        copies = read_copies(topic)
    parked = [(letter.key_label, json.loads(bytes(letter.original_value))["n"]) for letter in letters(line)]
    done = Counter(n for _, n in effects(line)) + Counter(n for _, n in parked)
    assert done == Counter(range(RECORDS)), "each record is applied once, or parked once, never both"
    assert {n for _, n in parked} >= set(range(4, RECORDS, 5)), "what is refused for good is parked"
    for key in range(KEYS):
        applied = [n for k, n in effects(line) if k == f"k{key}"]
        refused = min((n for n in range(4, RECORDS, 5) if n % KEYS == key), default=RECORDS)
        assert applied == [n for n in range(key, RECORDS, KEYS) if n < refused], "in order, up to the first refused one"
    copied = Counter(dict(copy.headers())["x-signalbox-dead-letter"].decode() for copy in copies)
    assert set(copied) == {str(letter.pk) for letter in letters(line)}
    assert Copy.objects.filter(dead_letter__group=line.group, failure="").count() == len(parked)


def test_a_record_that_breaks_its_schema_is_parked_at_its_first_attempt(line):
    line.put_raw(b'{"n": 1, "key":', headers=headers_of())
    line.put(2, key="other")
    with running(line, write_effect):
        until(lambda: line.committed() == 2)
    (letter,) = letters(line)
    assert (letter.failure_class, letter.attempts) == (FailureClass.SCHEMA.value, 1)
    assert effects(line) == [("other", 2)]


def test_a_record_near_the_limit_with_a_huge_stack_parks_copies_with_shed_headers_and_replays_byte_exact(
    line, settings
):
    settings.DLQ_STACK_FRAMES = 600
    settings.REPLAY_LOOK_EVERY_MS = settings.REPLAY_BUSY_LOOK_MS = 20
    value = json.dumps({"n": 1, "key": "k", "text": "x" * 998_000}).encode()
    own = [*headers_of(), ("x", None), ("x", b"\x00\xff"), ("note", b"n" * 500)]
    seen, is_mended = [], []

    def work(event, tx):
        if not is_mended:
            fail(500)
        write_effect(event, tx)
        seen.append(event)

    with copies_on(line, payload=True) as topic, running(line, work):
        line.put_raw(value, key=b"k", headers=own)
        until(lambda: line.committed() == 1)
        (letter,) = letters(line)
        assert len(letter.stack) > settings.DLQ_EXPORT_HEADER_BYTES
        (copy,) = read_copies(topic)
        assert (copy.key(), copy.value()) == (b"k", value)
        assert dict(copy.headers())["x-signalbox-shed"] == b"stack"
        told = decode_spring(copy.headers())
        assert (told["topic"], told["offset"], told["stack"]) == (line.topic, 0, "")
        is_mended.append(True)
        preview = preview_replay(Selection(ids=[letter.pk]), rate_per_s=None, actor="ada")
        job = start_replay(preview.id, rate_per_s=None, reason="mended", actor="ada")
        until(lambda: get_replay(job.id).state is ReplayState.FINISHED, what="the end of the replay")
    (event,) = seen
    assert (event.key, event.value, list(event.headers)) == (b"k", value, own)
    assert decode_headers(letters(line)[0].original_headers) == tuple(own)
    assert effects(line) == [("k", 1)]
    assert letters(line)[0].state == "applied"


def letters(line):
    return list(DeadLetter.objects.filter(group=line.group).order_by("offset"))


def fail(depth):
    if depth:
        return fail(depth - 1)
    raise Permanent("too deep")
