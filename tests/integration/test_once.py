"""Calls that are made once: one result whoever asks, no second call while one runs, none lost to a crash."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction

from dlq.models import Once
from dlq.once import OnceBusy, OnceLost, OnceRefused, idempotency_key, once
from tests.consumers import ROOT, Line, effects, make_effect_table, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event_id(transactional_db):
    made = uuid4()
    yield made
    Once.objects.filter(event_id=made).delete()


def in_threads(number, work):
    def run(n):
        try:
            return work(n)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_many_at_once_make_one_call_and_share_its_result(event_id):
    calls, together = [], threading.Barrier(8, timeout=30)

    def call(key):
        calls.append(key)
        threading.Event().wait(0.5)
        return {"answer": len(calls)}

    def ask(_):
        together.wait()
        return once(event_id, "triage", call)

    assert in_threads(8, ask) == [{"answer": 1}] * 8
    assert calls == [idempotency_key(event_id, "triage")]


def test_the_result_is_reused_later_and_another_name_is_another_call(event_id):
    assert once(event_id, "a", lambda key: [1, None]) == [1, None]
    assert once(event_id, "a", lambda key: pytest.fail("called again")) == [1, None]
    assert once(event_id, "b", lambda key: None) is None
    assert once(event_id, "b", lambda key: pytest.fail("called again")) is None
    assert idempotency_key(event_id, "a") != idempotency_key(event_id, "b")


def test_a_result_outlives_the_handlers_transaction(event_id):
    with transaction.atomic():
        once(event_id, "call", lambda key: 7)
        transaction.set_rollback(True)
    assert once(event_id, "call", lambda key: pytest.fail("called again")) == 7


def test_a_call_that_raises_keeps_nothing_and_the_next_one_may_call(event_id):
    with pytest.raises(ConnectionError):
        once(event_id, "call", away)
    assert once(event_id, "call", lambda key: "back") == "back"


def away(key):
    raise ConnectionError


def test_whoever_waits_too_long_is_told_to_come_back(event_id):
    started, release = threading.Event(), threading.Event()

    def slow(key):
        started.set()
        assert release.wait(30)
        return 1

    def ask(n):
        if n == 0:
            return once(event_id, "call", slow)
        assert started.wait(30)
        with pytest.raises(OnceBusy) as busy:
            once(event_id, "call", slow, wait_s=0)
        release.set()
        return busy.value.retry_after_s

    result, retry_after_s = in_threads(2, ask)
    assert result == 1
    assert 0 < retry_after_s <= 15


def test_a_claim_is_kept_as_long_as_its_call_runs(event_id, settings):
    settings.ONCE_LEASE_S, settings.ONCE_RENEW_EVERY_S, settings.ONCE_LOOK_EVERY_S = 1.0, 0.2, 0.05
    calls, started = [], threading.Event()

    def slow(key):
        calls.append(key)
        started.set()
        threading.Event().wait(2.5)
        return len(calls)

    def ask(n):
        if n:
            assert started.wait(30)
        return once(event_id, "call", slow)

    assert in_threads(2, ask) == [1, 1]
    assert len(calls) == 1


def test_a_caller_that_lost_its_claim_cannot_overwrite_the_result_of_the_next(event_id, settings):
    settings.ONCE_LEASE_S, settings.ONCE_RENEW_EVERY_S, settings.ONCE_LOOK_EVERY_S = 0.3, 60, 0.05
    started, second_done = threading.Event(), threading.Event()

    def frozen(key):
        started.set()
        assert second_done.wait(30)
        return "first"

    def ask(n):
        if n == 0:
            with pytest.raises(OnceLost):
                once(event_id, "call", frozen)
            return None
        assert started.wait(30)
        try:
            return once(event_id, "call", lambda key: "second")
        finally:
            second_done.set()

    assert in_threads(2, ask) == [None, "second"]
    row = Once.objects.get(event_id=event_id)
    assert (row.result, row.claims) == ("second", 2)


@pytest.mark.parametrize("result", [object(), float("nan"), "x" * 300_000, "a\x00b", "\ud800"])
def test_a_result_that_cannot_be_kept_is_refused_for_good(event_id, result):
    with pytest.raises(OnceRefused):
        once(event_id, "call", lambda key: result)
    assert not Once.objects.filter(event_id=event_id).exists()


def test_a_name_is_needed(event_id):
    with pytest.raises(ValueError, match="1 to 200"):
        once(event_id, "", lambda key: 1)


CHILD = """
import os, sys, time, uuid, django
django.setup()
from dlq.once import once
def call(key):
    print("calling", flush=True)
    time.sleep(float(sys.argv[2]))
    return "from the first"
print(once(uuid.UUID(sys.argv[1]), "call", call), flush=True)
"""


def child(event_id, takes_s):
    database = connection.settings_dict
    url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(event_id), str(takes_s)],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings.run",
            "SIGNALBOX_DATA_DIR": os.devnull,
            "DATABASE_URL": url,
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_that_is_killed_in_its_call_is_followed_with_the_same_key(event_id, settings):
    first = child(event_id, 600)
    assert first.stdout.readline() == "calling\n"
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    first.stdout.close()
    with connection.cursor() as cursor:  # as if its claim had lasted its time
        cursor.execute("UPDATE dlq_once SET lease_until = clock_timestamp() WHERE event_id = %s", [event_id])
    keys = []
    assert once(event_id, "call", lambda key: keys.append(key) or "second") == "second"
    assert keys == [idempotency_key(event_id, "call")]


def test_a_handler_that_fails_after_its_call_does_not_call_again(transactional_db, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05
    make_effect_table()
    line, calls = Line(), []

    def handle(event, tx):
        answer = once(event.id, "model", lambda key: calls.append(key) or {"n": event.payload["n"]})
        if tx.attempt == 1:
            raise TimeoutError("after the call")
        assert answer == {"n": 1}
        write_effect(event, tx)

    event_id = line.put(1)
    with running(line, handle):
        until(lambda: line.committed() == 1)
    assert effects(line) == [("k", 1)]
    assert calls == [idempotency_key(event_id, "model")]
    line.drop()
