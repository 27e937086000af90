import json
import os
import re
import signal
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from relay.check.judge import Record, Row, judge
from relay.check.worktable import last_position
from tests.relay_helpers import ROOT, admin_client, database_url, make_topic, skip_to_now, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()


def environment():
    return {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "console.settings.test"}


def start(*options, **how):
    command = [sys.executable, "manage.py", "check_relay", *options]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True, **how)


def check(*options, within_s=170):
    process = start(*options, "--json", stdout=subprocess.PIPE)
    try:
        out, said = process.communicate(timeout=within_s)
    finally:
        process.kill()
    return process.returncode, json.loads(out) if out else {}, said


def leftovers():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'signalbox_check%'),"
            " (SELECT count(*) FROM relay_runner WHERE name LIKE 'check-%'),"
            " (SELECT count(*) FROM relay_process WHERE name LIKE 'check-%'),"
            " (SELECT count(*) FROM relay_checkpoint c JOIN relay_runner r ON r.id = c.holder)"
        )
        return cursor.fetchone()


def topics():
    return {name for name in admin_client().list_topics(timeout=10).topics if name.startswith("signalbox-check-")}


# -- The judge ---------------------------------------------------------------------------------------------
WRITTEN = {1: 3, 2: 1}
ROWS = {"a": Row(1, 1), "b": Row(1, 2), "c": Row(1, 3), "d": Row(2, 1)}


def judged(*ids, partitions=(), altered=()):
    """The verdict on records of these events, in this order; `x` was never committed."""
    places = partitions or (0,) * len(ids)
    return judge(
        WRITTEN,
        ROWS,
        [
            Record(partition, offset, event_id, Row(9, 9) if event_id in altered else ROWS.get(event_id))
            for offset, (event_id, partition) in enumerate(zip(ids, places, strict=True))
        ],
    )


@pytest.mark.parametrize("ids", ["abcd", "dabc", "abdabc", "abcdcba"])
def test_the_judge_accepts_first_occurrences_in_order_and_counts_repeats(ids):
    verdict = judged(*ids)
    assert verdict.faults() == []
    assert (verdict.committed, verdict.records, verdict.repeats) == (4, len(ids), len(ids) - 4)


@pytest.mark.parametrize(
    ("ids", "counts"),
    [
        ("abd", (1, 0, 0)),
        ("", (4, 0, 0)),
        ("acbd", (0, 1, 0)),
        ("cbad", (0, 2, 0)),
        ("caabcd", (0, 2, 0)),
        ("abcdx", (0, 0, 1)),
        ("xabd", (1, 0, 1)),
    ],
)
def test_the_judge_finds_what_is_lost_out_of_order_or_unknown(ids, counts):
    verdict = judged(*ids)
    assert (verdict.lost, verdict.inversions, verdict.unknown) == counts
    assert len(verdict.faults()) == sum(count > 0 for count in counts)


def test_a_key_that_goes_on_in_another_partition_is_out_of_order():
    assert judged(*"abcd", partitions=(0, 1, 0, 1)).inversions == 1


def test_a_record_with_other_bytes_than_its_row_is_unknown_and_its_row_lost():
    verdict = judged(*"abcd", altered="b")
    assert (verdict.lost, verdict.unknown) == (1, 1)


def test_rows_that_vanished_from_the_outbox_are_lost():
    assert judge({1: 3}, {"a": Row(1, 1)}, [Record(0, 0, "a", Row(1, 1))]).lost == 2


def test_a_run_that_committed_nothing_proves_nothing():
    assert judge({}, {}, []).faults() == ["nothing was committed, so nothing was tried"]


def test_a_new_outbox_has_given_out_no_position():
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER SEQUENCE relay_outbox_position RESTART")
        assert last_position() == 0
        transaction.set_rollback(True)


# -- The command -------------------------------------------------------------------------------------------
def test_relays_killed_ten_times_lose_nothing_and_keep_every_keys_order():
    code, report, said = check("--rows", "12000", "--keys", "300", "--kills", "10", "--seed", "7")
    assert report.get("faults") == [], said
    assert (code, report["lost"], report["inversions"], report["unknown"], report["kills"]) == (0, 0, 0, 0, 10)
    assert report["committed"] >= 12_000
    assert report["rolled_back_transactions"] > 20
    assert report["rolled_back_savepoints"] > 20
    assert report["writer_errors"] == 0
    assert leftovers() == (0, 0, 0, 0)
    assert report["topic"] not in topics()


def test_without_a_relay_the_check_fails_and_says_what_is_lost():
    topic = make_topic()
    code, report, _ = check(
        "--no-start-relays", "--topic", topic, "--rows", "50", "--keys", "5", "--writers", "1", "--timeout", "5"
    )
    assert (code, report["ok"], report["topic"]) == (1, False, topic)
    assert report["lost"] == report["committed"] >= 50
    assert report["faults"][0].startswith("not drained within 5 s")
    assert leftovers() == (0, 0, 0, 0)
    skip_to_now()


def test_a_check_that_is_stopped_cleans_up_after_itself():
    process = start("--rows", "1000000", "--relays", "1", stdout=subprocess.DEVNULL)
    wait_until(lambda: leftovers()[1] == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 1
    assert leftovers() == (0, 0, 0, 0)
    skip_to_now()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rows", "0"], "--rows must be from 1 to"),
        (["--keys", "-3"], "--keys must be from 1 to"),
        (["--relays", "0"], "--relays must be from 1 to 16, not 0"),
        (["--timeout", "0"], "--timeout must be more than 0 seconds"),
        (["--timeout", "nan"], "--timeout must be more than 0 seconds"),
        (["--no-start-relays", "--kills", "1"], "--kills needs relays of the check's own"),
        (["--topic", "no-such-topic"], "does not exist on the broker"),
        (["--rows", "many"], "invalid int value"),
        (["--kills", "1000000"], "--kills must be from 0 to 10,000"),
    ],
)
def test_bad_options_are_refused_in_words_before_anything_is_written(options, words):
    with pytest.raises(CommandError, match=re.escape(words)):
        call_command("check_relay", *options)
    assert leftovers() == (0, 0, 0, 0)


def test_a_paused_relay_is_told_at_once():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO relay_control (scope, paused_by, reason) VALUES ('all', 'ann', 'test')")
    with pytest.raises(CommandError, match="paused by ann"):
        call_command("check_relay")
    skip_to_now()


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_million_rows_through_a_hundred_kills():
    code, report, said = check(
        "--rows", "1000000", "--keys", "10000", "--kills", "100", "--timeout", "2400", within_s=2_900
    )
    assert (code, report["lost"], report["inversions"], report["unknown"]) == (0, 0, 0, 0), said
    assert report["kills"] == 100
