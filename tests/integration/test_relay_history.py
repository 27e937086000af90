"""The relay's history: what a sample counts, what minutes and hours keep of it, and what a chart gets."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from relay import samples
from relay.domain.histogram import SIZE, bucket_of
from relay.domain.history import Reading, merge_readings
from relay.errors import BadHistoryRange
from relay.facade import get_relay_history, publish, sample_relay
from tests.relay_helpers import make_topic, running_relay, skip_to_now, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)


@pytest.fixture(autouse=True)
def _nothing_yet():
    skip_to_now()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_sample")
        cursor.execute("DELETE FROM relay_sweep WHERE name LIKE 'relay.%%sample%%'")


def counted(*latencies_ms):
    buckets = [0] * SIZE
    for latency_ms in latencies_ms:
        buckets[bucket_of(latency_ms)] += 1
    return buckets


def reading(at, **changes):
    made = {
        "at": at,
        "span_s": 5.0,
        "unsent": 3,
        "unsent_capped": False,
        "oldest_age_s": 1.0,
        "written": 10.0,
        "sent": 2,
        "buckets": counted(4, 90),
    }
    return Reading(**{**made, **changes})


def rows(unit):
    with connection.cursor() as cursor:
        cursor.execute(samples._READ, [unit, NOON - timedelta(days=400), NOON + timedelta(days=1)])
        return [samples._reading(row) for row in cursor.fetchall()]


def record_sent(sent, seconds_ago, *latencies_ms):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_stat (at, runner, sent, buckets)"
            " VALUES (clock_timestamp() - make_interval(secs => %s), gen_random_uuid(), %s, %s)",
            [seconds_ago, sent, counted(*latencies_ms)],
        )


def test_a_sample_counts_what_waits_and_what_a_real_relay_sent(settings):
    settings.RELAY_SAMPLE_EVERY_S = 0.6
    topic = make_topic()
    with transaction.atomic():
        for n in range(20):
            publish(topic, key=f"k{n}", type="t", payload={})
    samples._sample()
    assert rows("sample")[0].unsent == 20
    assert rows("sample")[0].written == pytest.approx(20, abs=1)
    with running_relay():
        wait_until(lambda: samples._sample() or sum(r.sent for r in rows("sample")) >= 20, within_s=30)
    assert sum(sum(r.buckets) for r in rows("sample")) == 20
    assert rows("sample")[-1].unsent == 0
    (hour, *_) = rows("hour")
    assert (hour.sent, hour.unsent) == (20, 20)


def test_each_row_that_was_sent_is_counted_in_one_sample_only(settings):
    record_sent(7, 3.0, *[4] * 7)
    samples._sample()
    assert [r.sent for r in rows("sample")] == [7]
    settings.RELAY_SAMPLE_EVERY_S = 0.5
    samples._sample()
    record_sent(5, 0.0, *[4] * 5)  # of the last second: it waits for the next sample
    samples._sample()
    assert sum(r.sent for r in rows("sample")) == 7
    wait_until(lambda: samples._sample() or sum(r.sent for r in rows("sample")) == 12, within_s=10)


def test_two_processes_at_once_write_one_sample():
    barrier = threading.Barrier(2)

    def sample():
        barrier.wait(5)
        samples._sample()
        connection.close()

    threads = [threading.Thread(target=sample) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(rows("sample")) == 1
    assert rows("minute")[0].span_s == rows("sample")[0].span_s


def test_a_tick_samples_when_it_is_due():
    assert sample_relay() is True
    assert sample_relay() is False
    assert len(rows("sample")) == 1


@pytest.mark.parametrize(("unit", "width"), [("minute", timedelta(minutes=1)), ("hour", timedelta(hours=1))])
def test_a_minute_and_an_hour_say_what_their_samples_say_together(unit, width):
    written = [
        reading(
            NOON + timedelta(seconds=37 * n),
            unsent=(n * 7) % 11,
            unsent_capped=n == 40,
            oldest_age_s=None if n % 3 else float(n),
            sent=n % 4,
            buckets=counted(*[n * 3] * (n % 4)),
        )
        for n in range(120)
    ]
    for one in written:
        samples._write(one)
    pieces = {}
    for one in written:
        pieces.setdefault((one.at - NOON) // width, []).append(one)
    assert rows(unit) == [merge_readings(piece) for _, piece in sorted(pieces.items())]


def test_history_has_mean_rates_greatest_backlog_and_the_latency_of_all_rows_together():
    for n in range(12):
        samples._write(reading(NOON + timedelta(seconds=5 * n), unsent=n, oldest_age_s=float(n)))
    points = get_relay_history(since=NOON, until=NOON + timedelta(minutes=1), max_points=3)
    assert [(p.unsent, p.oldest_age_s, p.written_per_s, p.sent_per_s) for p in points] == [
        (3, 3.0, 2.0, 0.4),
        (7, 7.0, 2.0, 0.4),
        (11, 11.0, 2.0, 0.4),
    ]
    assert {(p.latency_p50_ms, p.latency_p99_ms) for p in points} == {(4.0, 110.0)}


def test_a_time_without_readings_is_a_gap_and_nothing_sent_has_no_latency():
    samples._write(reading(NOON, sent=0, buckets=counted()))
    samples._write(reading(NOON + timedelta(minutes=10)))
    points = get_relay_history(since=NOON, until=NOON + timedelta(minutes=15), max_points=60)
    assert [p.unsent for p in points] == [3, None, 3]
    assert (points[0].latency_p50_ms, points[0].sent_per_s) == (None, 0.0)


def test_a_long_window_is_read_from_hours_and_a_short_one_from_samples():
    for day in range(30):
        for hour in range(24):
            samples._write(reading(NOON - timedelta(days=day, hours=hour)))
    month = get_relay_history(since=NOON - timedelta(days=30), until=NOON, max_points=300)
    assert 200 < len(month) <= 300
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_sample WHERE unit <> 'hour'")
    assert get_relay_history(since=NOON - timedelta(days=30), until=NOON, max_points=300) == month
    assert get_relay_history(since=NOON - timedelta(hours=1), until=NOON + timedelta(minutes=5), max_points=300) == []


def test_what_is_past_its_retention_is_forgotten():
    now = datetime.now(UTC)
    for days in (1, 3, 15, 91):
        samples._write(reading(now - timedelta(days=days)))
    samples._forget()
    assert [len(rows(unit)) for unit in ("sample", "minute", "hour")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("since", "until", "points"),
    [
        (NOON, NOON, 10),
        (NOON.replace(tzinfo=None), NOON, 10),
        (NOON, NOON + timedelta(hours=1), 0),
        (NOON, NOON + timedelta(hours=1), 5_000),
    ],
)
def test_a_history_that_cannot_be_is_refused_in_words(since, until, points):
    with pytest.raises(BadHistoryRange, match="relay's history"):
        get_relay_history(since=since, until=until, max_points=points)
