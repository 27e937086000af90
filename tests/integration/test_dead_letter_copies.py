"""Each dead letter is copied to its topic through the outbox: readable by others, whole or openly less, no loop."""

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from dlq import copying
from dlq.copying import get_copy
from dlq.models import DeadLetter
from dlq.models_copy import Copy
from dlq.types import CopiedPayload, Family, Permanent
from relay.facade import declare_topic, get_relay_policy, get_topic, list_topics
from relay.kafka.topics import create_missing_topics, is_topic
from relay.types import IncidentKind, OnFailed, TopicSpec
from tests.consumers import Line, headers_of, make_effect_table, running, until, write_effect
from tests.copies import copies_on, copy_of, read_copies
from tests.relay_helpers import alter_topic, count_unsent, has_incident, read_topic, run_relay_until_drained
from tests.topics import create_topic
from tests.unit.test_export_headers import decode_connect, decode_spring

pytestmark = pytest.mark.django_db(transaction=True)
FAILED = IncidentKind.DEAD_LETTER_COPY_FAILED


@pytest.fixture
def line(transactional_db):
    make_effect_table()
    made = Line(partitions=3)
    yield made
    made.drop()


def park(line, *, partition=0, **record):
    """Park one record of the line; its handler refuses everything."""
    line.put_raw(record.pop("value", b"{"), partition=partition, **record)
    with running(line, write_effect):
        until(lambda: line.committed(partition) == 1)
    return DeadLetter.objects.get(group=line.group)


@pytest.mark.parametrize(("family", "decode"), [("spring", decode_spring), ("connect", decode_connect)])
def test_other_programs_read_from_the_broker_where_and_why_it_failed(line, family, decode):
    with copies_on(line, family=family) as topic:
        letter = park(line, headers=headers_of(), partition=2)
        (copy,) = read_copies(topic)
    told = decode(copy.headers())
    assert (told["topic"], told["partition"], told["offset"]) == (line.topic, 2, 0)
    assert told["class"] == letter.error_class
    assert topic == f"{line.topic}.{line.group}.dlq"
    assert dict(copy.headers())["event-type"] == b"dead-letter.parked"
    assert dict(copy.headers())["x-signalbox-dead-letter"] == str(letter.pk).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\x00\xffk", b"\xff\xfe\x00"), (None, b"{"), (b"k", None), (b"k", b"")],
    ids=["not UTF-8", "unkeyed", "tombstone", "empty value"],
)
def test_with_the_payload_a_copy_holds_the_exact_bytes(line, key, value):
    own = [*headers_of(), ("x", None), ("x", b"\x00\xff")]
    with copies_on(line, payload=True) as topic:
        park(line, key=key, value=value, headers=own)
        (copy,) = read_copies(topic)
    assert (copy.key(), copy.value()) == (key, value)
    assert [pair for pair in copy.headers() if pair[0] == "x"] == own[2:]
    assert dict(copy.headers())["x-signalbox-event-id"] == own[0][1]


def test_without_a_rule_no_content_leaves(line):
    with copies_on(line) as topic:
        park(line, key=b"secret", value=b"secret", headers=[*headers_of(), ("x", b"secret")])
        (copy,) = read_copies(topic)
    assert (copy.key(), copy.value()) == (None, None)
    assert not any(b"secret" in (value or b"") for _, value in copy.headers())
    assert copy_of(line).payload == CopiedPayload.WITHHELD.value


def test_a_copy_goes_to_the_partition_of_its_record_modulo_those_that_there_are(line):
    with copies_on(line, create=False) as topic:
        create_topic(topic, partitions=2)
        with running(line, write_effect):
            until(lambda: topic in copying._learnt)
            for partition in range(3):
                line.put_raw(b"{", key=None, partition=partition)
            until(lambda: all(line.committed(p) == 1 for p in range(3)))
        placed = {int(dict(c.headers())["x-signalbox-partition"]): c.partition() for c in read_copies(topic)}
    assert placed == {0: 0, 1: 1, 2: 0}


def test_the_copy_is_written_with_the_dead_letter_or_not_at_all(line):
    with copies_on(line):
        park(line)
        line.rewind(0)
        with running(line, write_effect) as member:
            until(lambda: member.tally or DeadLetter.objects.filter(group=line.group).count() == 1)
            until(lambda: line.committed() == 1)
        assert Copy.objects.filter(dead_letter__group=line.group).count() == 1
        assert count_unsent() == 1


def test_a_record_near_the_limit_sheds_until_it_fits(line):
    with copies_on(line, create=False, payload=True) as topic:
        create_topic(topic, partitions=3)
        alter_topic(topic, "max.message.bytes", "100000")
        with running(line, write_effect):
            until(lambda: topic in copying._learnt)
            line.put_raw(b"x" * 200_000, headers=headers_of())
            until(lambda: line.committed() == 1)
        (copy,) = read_copies(topic)
    assert (copy.value(), copy_of(line).payload) == (None, "shed")
    assert dict(copy.headers())["x-signalbox-shed"] == b"payload"
    assert decode_spring(copy.headers())["offset"] == 0


def test_a_copy_that_the_relay_gives_up_is_marked_and_nothing_is_parked_again(line):
    with copies_on(line, payload=True) as topic:
        letter = park(line, value=b"x" * 200_000)
        alter_topic(topic, "max.message.bytes", "100000")  # after it was written
        run_relay_until_drained()
        assert read_topic(topic) == []
        assert DeadLetter.objects.exclude(pk=letter.pk).count() == 0
        copy = get_copy(letter.pk)
        assert copy.failure.startswith("the relay gave it up: too_large")
        with running(line, write_effect):
            until(lambda: has_incident(FAILED, topic), what="the incident")


def test_a_dead_letter_topic_is_made_when_it_may_be(line):
    with copies_on(line, create=False) as topic:
        with running(line, write_effect):
            until(lambda: is_topic(topic))
        assert not has_incident(FAILED, topic)


def test_a_dead_letter_topic_that_may_not_be_made_opens_an_incident_that_ends_when_it_is_there(line):
    with (
        copies_on(line, create=False) as topic,
        override_settings(DLQ_COPY_CREATE_TOPICS=False, DLQ_COPY_LOOK_EVERY_S=0),
        running(line, write_effect),
    ):
        until(lambda: has_incident(FAILED, topic), what="the incident")
        assert not is_topic(topic)
        assert topic not in create_missing_topics(list_topics())
        create_topic(topic, partitions=3)
        until(lambda: not has_incident(FAILED, topic), what="the end of the incident")


def test_a_name_that_is_declared_for_something_else_is_not_written_to(line):
    name = f"{line.topic}.{line.group}.dlq"
    declare_topic(TopicSpec(name=name))
    with copies_on(line, create=False):
        letter = park(line)
        assert "declared for something else" in get_copy(letter.pk).failure
        assert count_unsent() == 0
    with copies_on(line, to=f"{name}.other") as other:
        with running(line, write_effect):
            assert not [m for m in run_checks() if m.id == "dlq.E005"]
            line.put_raw(b"{{")
            until(lambda: line.committed() == 2)
        assert len(read_copies(other)) == 1


def test_a_record_of_a_dead_letter_topic_gets_no_copy(line):
    with copies_on(line) as topic:
        bot = Line.__new__(Line)
        bot.topic, bot.group = topic, f"bot-{line.group}"

        def refuse(event, tx):
            raise Permanent("no")

        with running(bot, refuse, decode="bytes"), running(line, write_effect):
            line.put_raw(b"{")
            until(lambda: line.committed() == 1)
            run_relay_until_drained()
            until(lambda: DeadLetter.objects.filter(group=bot.group).exists())
            assert f"{topic}.{bot.group}.dlq" not in [spec.name for spec in list_topics()]
        letter = DeadLetter.objects.get(group=bot.group)
        assert get_copy(letter.pk) is None


def test_a_group_with_odd_characters_gets_its_copies(line):
    line.group = f"räte / {line.group}"
    with copies_on(line) as topic:
        park(line)
        (copy,) = read_copies(topic)
    assert dict(copy.headers())["x-signalbox-group"] == line.group.encode()


def test_the_dead_letter_topics_follow_from_the_handlers_and_park_what_fails(line):
    with copies_on(line) as topic, running(line, write_effect):
        assert topic in [spec.name for spec in list_topics()]
        assert get_topic(topic).partitions == 6
        assert get_relay_policy(topic).on_failed is OnFailed.PARK


@override_settings(DLQ_COPIES=True, DLQ_COPY_RULES={"orders": {"family": "karafka"}})
def test_a_rule_that_cannot_be_is_said_by_the_check_and_loses_nothing(line):
    assert [m.msg for m in run_checks() if m.id == "dlq.E004"] == [
        'DLQ_COPY_RULES: "family" of "orders" must be spring or connect.'
    ]
    with override_settings(DLQ_COPY_RULES={line.topic: {"family": "karafka"}}):
        letter = park(line)
        copy = get_copy(letter.pk)
    assert (copy.failure, copy.family) == (f'"family" of "{line.topic}" must be spring or connect', Family.SPRING)
