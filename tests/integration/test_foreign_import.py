"""Foreign dead-letter topics, imported from a real broker: each record once, whatever happens on the way."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, connections

from dlq import foreign
from dlq.facade import (
    BadImport,
    NotExportable,
    export_dead_letter,
    get_dead_letter,
    get_dlq_status,
    import_dead_letters,
    list_dead_letters,
)
from dlq.models import Counter, DeadLetter, ForeignStop
from dlq.originals import decode_headers
from dlq.signals import dead_letters_changed
from dlq.types import DeadLetterFilter, Family, Origin
from relay.facade import TopicNotRead, read_whole_topic
from relay.types import ConsumerRecord, PartitionRef
from tests.consumers import ROOT, Line, make_topic, running, until
from tests.unit.test_export_headers import READERS
from tests.unit.test_foreign_headers import CONNECT, RETRY, SPRING, TABLE, changed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(transactional_db):
    made = Line(partitions=2)
    yield made
    made.drop()


def spring(offset, topic=b"orders"):
    told = changed(SPRING, "kafka_dlt-original-offset", struct.pack(">q", offset))
    return changed(told, "kafka_dlt-original-topic", topic)


def fill(line, count, partition=0):
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            line.topic, key=b"k", value=str(number).encode(), headers=spring(number), partition=partition
        )  # fmt: skip
    assert producer.flush(30) == 0


def letters(line):
    return list(DeadLetter.objects.filter(topic=line.topic).order_by("partition", "offset"))


def numbers(report):
    return (report.read, report.imported, report.already_here, report.origin_unknown)


def open_count(line):
    return sum(Counter.objects.filter(topic=line.topic).values_list("open", flat=True))


# -- What an import keeps ----------------------------------------------------------------------------------
def test_every_family_is_imported_byte_for_byte_with_where_it_came_from(line):
    for number, (headers, *_) in enumerate(TABLE.values()):
        line.put_raw(f"value {number}".encode(), key=b"\x00\xffkey", headers=headers)
    report = import_dead_letters(line.topic)
    assert numbers(report) == (len(TABLE), len(TABLE), 0, 0)
    assert dict(report.families) == dict.fromkeys(TABLE, 1)
    for number, (letter, (family, case)) in enumerate(zip(letters(line), TABLE.items(), strict=True)):
        assert (letter.original_key, letter.original_value) == (b"\x00\xffkey", f"value {number}".encode())
        assert decode_headers(letter.original_headers) == tuple(case[0])
        assert (letter.origin, letter.state, letter.error_class) == ("foreign", "parked", case[3])
        assert letter.group == (case[1] or "foreign")
        (stop,) = get_dead_letter(letter.pk).origins
        assert (stop.family, stop.topic, stop.partition, stop.offset) == (family, "orders", 3, 4294967313)
        assert stop.timestamp == case[2]


def test_null_and_empty_keys_and_values_stay_what_they_are(line):
    for key, value in ((None, None), (b"", b""), (b"k", None)):
        line.put_raw(value, key=key, headers=SPRING)
    import_dead_letters(line.topic)
    assert [(d.original_key, d.original_value) for d in letters(line)] == [(None, None), (b"", b""), (b"k", None)]


def test_odd_records_are_imported_too_and_say_what_is_odd(line):
    line.put_raw(b"1", headers=None)
    line.put_raw(b"2", headers=[("kafka_dlt-original-topic", b"\xff"), ("kafka_dlt-original-topic", None)])
    line.put_raw(b"3", headers=changed(CONNECT, "__connect.errors.offset", b"many"))
    report = import_dead_letters(line.topic, group="whoever")
    assert numbers(report) == (3, 3, 0, 3)
    unknown, broken, textual = (get_dead_letter(d.pk) for d in letters(line))
    assert unknown.origins[0].complaints == ["no header of a known program says where it came from"]
    assert "kafka_dlt-original-topic is not UTF-8 (1 byte)" in broken.origins[0].complaints
    assert textual.origins[0].complaints == ["__connect.errors.offset is no decimal number (4 bytes)"]
    assert {d.group for d in letters(line)} == {"whoever"}


def test_a_header_name_that_the_client_cannot_give_is_kept_as_a_dead_letter_that_says_so(line):
    record = ConsumerRecord(
        place=PartitionRef(line.topic, 0), offset=0, leader_epoch=None, timestamp_ms=None, key=b"k", value=b"v",
        headers=None,
    )  # fmt: skip
    with foreign.open_backlog(line.topic) as backlog:
        assert foreign._keep(backlog, [(record, foreign._read_letter(record))], "foreign") == 1
    (letter,) = letters(line)
    assert letter.original_headers is None
    assert "not UTF-8" in letter.error_message


def test_nothing_that_a_foreign_exception_says_is_stored_outside_the_hidden_bytes(line):
    for headers, *_ in TABLE.values():
        line.put_raw(b"v", headers=headers)
    import_dead_letters(line.topic)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_jsonb(d) - 'original_headers', to_jsonb(s) FROM dlq_dead_letter d"
            " JOIN dlq_foreign_stop s ON s.dead_letter_id = d.id WHERE d.topic = %s",
            [line.topic],
        )
        found = cursor.fetchall()
    assert len(found) == len(TABLE)
    assert "4111" not in str(found)


# -- Once --------------------------------------------------------------------------------------------------
def test_a_second_import_goes_on_where_the_first_ended_and_from_the_start_nothing_becomes_two(line):
    fill(line, 7, partition=0)
    fill(line, 5, partition=1)
    assert numbers(import_dead_letters(line.topic)) == (12, 12, 0, 0)
    assert numbers(import_dead_letters(line.topic)) == (0, 0, 0, 0)
    fill(line, 2, partition=1)
    assert numbers(import_dead_letters(line.topic)) == (2, 2, 0, 0)
    assert numbers(import_dead_letters(line.topic, from_start=True, group="other")) == (14, 0, 14, 0)
    assert len(letters(line)) == open_count(line) == 14


def test_equal_records_are_linked_and_not_merged(line):
    for _ in range(2):
        line.put_raw(b"same", headers=[*SPRING, ("event-id", str(uuid4()).encode())])
    import_dead_letters(line.topic)
    first, second = (get_dead_letter(d.pk) for d in letters(line))
    assert [row.id for row in first.linked] == [second.row.id]
    assert [row.id for row in second.linked] == [first.row.id]


def test_two_records_of_one_event_are_two_dead_letters(line):
    headers = [*SPRING, ("event-id", str(uuid4()).encode()), ("event-type", b"order.paid")]
    for _ in range(2):
        line.put_raw(b"same", headers=headers)
    assert import_dead_letters(line.topic).imported == 2
    assert {d.event_type for d in letters(line)} == {"order.paid"}


def test_a_dead_letter_that_a_group_here_parked_is_linked_both_ways(line):
    other = Line()
    try:
        other.put_raw(b"{", headers=[("event-type", b"x")])
        with running(other, lambda event, tx: None):
            until(lambda: other.committed() == 1)
        told = changed(spring(0, other.topic.encode()), "kafka_dlt-original-partition", b"\x00\x00\x00\x00")
        line.put_raw(b"{", headers=changed(told, "kafka_dlt-original-consumer-group", other.group.encode()))
        import_dead_letters(line.topic)
        (imported,), (parked,) = letters(line), letters(other)
        assert [row.id for row in get_dead_letter(imported.pk).linked] == [parked.pk]
        assert [row.id for row in get_dead_letter(parked.pk).linked] == [imported.pk]
    finally:
        other.drop()


def test_imports_at_once_make_no_record_two_and_none_is_lost(line, settings):
    settings.DLQ_IMPORT_BATCH_RECORDS = 7
    fill(line, 150, partition=0)
    fill(line, 150, partition=1)
    reports, barrier = [], threading.Barrier(4)

    def run():
        barrier.wait()
        try:
            reports.append(import_dead_letters(line.topic))
        except Exception as error:
            reports.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert [type(r).__name__ for r in reports] == ["ImportReport"] * 4, reports
    assert sum(r.imported for r in reports) == len(letters(line)) == open_count(line) == 300


def test_a_topic_made_anew_under_the_name_is_read_from_its_beginning(line):
    fill(line, 3)
    import_dead_letters(line.topic)
    line.drop()
    until(lambda: not _exists(line.topic))
    make_topic(2, name=line.topic)
    fill(line, 2)
    assert numbers(import_dead_letters(line.topic)) == (2, 2, 0, 0)
    assert len({d.topic_id for d in letters(line)}) == 2


def _exists(topic):
    try:
        with foreign.open_backlog(topic):
            return True
    except TopicNotRead:
        return False


def test_a_batch_that_fails_leaves_whole_batches_and_the_next_run_goes_on(line, settings, monkeypatch):
    settings.DLQ_IMPORT_BATCH_RECORDS = 10
    fill(line, 35)
    calls, real = [], foreign.park_foreign

    def break_at_25(*args, **kwargs):
        calls.append(1)
        if len(calls) == 25:
            raise RuntimeError("the process dies here")
        return real(*args, **kwargs)

    monkeypatch.setattr(foreign, "park_foreign", break_at_25)
    with pytest.raises(RuntimeError):
        import_dead_letters(line.topic)
    assert len(letters(line)) == open_count(line) == 20
    monkeypatch.undo()
    settings.DLQ_IMPORT_BATCH_RECORDS = 10
    assert numbers(import_dead_letters(line.topic)) == (15, 15, 0, 0)
    assert ForeignStop.objects.filter(dead_letter__topic=line.topic).count() == open_count(line) == 35


def test_an_import_killed_again_and_again_imports_each_record_once(line):
    fill(line, 600, partition=0)
    fill(line, 600, partition=1)
    seen = 0
    for _ in range(2):
        process = _start_import(line)
        until(lambda seen=seen: _count(line) > seen, within_s=120, what="a batch of the child")
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        seen = DeadLetter.objects.filter(topic=line.topic).count()
        assert seen % 10 == 0
    assert 0 < seen < 1_200, "the kills came too late to prove anything"
    call_command("import_dead_letters", line.topic)
    places = list(DeadLetter.objects.filter(topic=line.topic).values_list("partition", "offset"))
    assert len(places) == len(set(places)) == open_count(line) == 1_200


def _count(line):
    return DeadLetter.objects.filter(topic=line.topic).count()


def _start_import(line):
    database = connection.settings_dict
    code = (
        "import os, django; django.setup()\n"
        "from django.conf import settings; settings.DLQ_IMPORT_BATCH_RECORDS = 10\n"
        "from dlq.facade import import_dead_letters; import_dead_letters(os.environ['TOPIC'])\n"
    )
    url = f"postgresql://{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    env = {
        "DJANGO_SETTINGS_MODULE": "console.settings.run",
        "SIGNALBOX_DATA_DIR": "/dev/null",
        "DATABASE_URL": f"{url}/{database['NAME']}",
        "TOPIC": line.topic,
    }
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env})


# -- Counts, hints, deleted records ------------------------------------------------------------------------
def test_imported_ones_are_open_and_listed_but_not_parked_in_the_last_hour(line):
    fill(line, 2)
    hints = []
    dead_letters_changed.connect(lambda **_: hints.append(1), weak=False, dispatch_uid="test")
    try:
        before = get_dlq_status()
        import_dead_letters(line.topic)
        after = get_dlq_status()
    finally:
        dead_letters_changed.disconnect(dispatch_uid="test")
    assert (after.open - before.open, after.parked_last_hour - before.parked_last_hour, len(hints)) == (2, 0, 1)
    page = list_dead_letters(DeadLetterFilter(topic=line.topic), limit=10)
    assert [row.origin for row in page.rows] == [Origin.FOREIGN] * 2


def test_records_that_were_deleted_between_two_imports_are_named(line):
    fill(line, 3)
    import_dead_letters(line.topic)
    fill(line, 6)
    line.delete_before(7)
    report = import_dead_letters(line.topic)
    assert numbers(report) == (2, 2, 0, 0)
    assert report.remarks == ["partition 0: offsets 3 to 6 were deleted before they were imported"]


def test_only_what_is_committed_is_imported_and_the_end_of_a_transaction_is_no_obstacle(line):
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "transactional.id": line.topic})
    producer.init_transactions(30)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(line.topic, value=str(number).encode(), headers=RETRY, partition=0)
        end(30)
    # A commit is answered before its marker is in the partition: until then the broker gives out nothing of it.
    until(lambda: len(list(read_whole_topic(line.topic))) == 1)
    assert numbers(import_dead_letters(line.topic)) == (1, 1, 0, 0)
    assert [d.original_value for d in letters(line)] == [b"0"]
    assert numbers(import_dead_letters(line.topic)) == (0, 0, 0, 0)


# -- The command -------------------------------------------------------------------------------------------
def test_a_dry_run_says_what_would_come_and_writes_nothing(line, capsys):
    fill(line, 3)
    import_dead_letters(line.topic)
    fill(line, 2)
    call_command("import_dead_letters", line.topic, "--dry-run", "--from-start")
    said = capsys.readouterr().out
    assert f"{line.topic}: 5 read, 2 would be imported, 3 already here" in said
    assert "5 by Spring for Kafka" in said
    assert len(letters(line)) == 3
    call_command("import_dead_letters", line.topic, "--json")
    assert json.loads(capsys.readouterr().out)["imported"] == 2


def test_a_topic_that_is_not_there_is_a_clear_error(transactional_db):
    with pytest.raises(CommandError, match="there is no such topic"):
        call_command("import_dead_letters", f"none-{uuid4().hex[:8]}")


def test_a_group_that_cannot_be_is_refused_before_anything_is_read(line):
    for group in ("a\0b", "x" * 201):
        with pytest.raises(BadImport, match="at most 200 printable characters"):
            import_dead_letters(line.topic, group=group)
    with pytest.raises(CommandError, match="Nothing was read"):
        call_command("import_dead_letters", line.topic, "--group", "a\nb")


def test_an_empty_topic_is_read_to_its_end(line):
    assert numbers(import_dead_letters(line.topic)) == (0, 0, 0, 0)


# -- And out again -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", READERS)
def test_an_exported_dead_letter_is_read_by_other_programs_and_by_us(line, family, capsys):
    line.put_raw(b"\x00\xffvalue", key=b"\xffkey", headers=[("tenant", None), *SPRING])
    import_dead_letters(line.topic)
    (letter,) = letters(line)
    target = Line()
    try:
        call_command("export_dead_letter", str(letter.pk), "--family", family.value, "--to", target.topic)
        (record,) = read_whole_topic(target.topic)
        assert (record.key, record.value) == (b"\xffkey", b"\x00\xffvalue")
        assert record.headers[0] == ("tenant", None)
        told = READERS[family](record.headers)
        assert (told["topic"], told["partition"], told["offset"]) == ("orders", 3, 4294967313)
        assert told["class"] == "java.lang.IllegalStateException"
        assert numbers(import_dead_letters(target.topic)) == (1, 1, 0, 0)
        assert letter.pk in {row.id for row in get_dead_letter(letters(target)[0].pk).linked}
    finally:
        target.drop()
    assert "value" not in capsys.readouterr().out


def test_what_cannot_be_exported_is_a_clear_error(line):
    with pytest.raises(CommandError, match="no dead letter has the id"):
        call_command("export_dead_letter", str(uuid4()))
    with pytest.raises(NotExportable, match="use spring or connect"):
        export_dead_letter(uuid4(), Family.KARAFKA)
    line.put_raw(b"v", headers=SPRING)
    import_dead_letters(line.topic)
    with pytest.raises(CommandError, match="the dead letter stays as it is"):
        call_command("export_dead_letter", str(letters(line)[0].pk), "--to", "none-such")
