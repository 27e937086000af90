"""Foreign dead letters: every family's headers as exact bytes, then whatever else a header can hold."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.foreign import LAYOUTS, STOPS_LIMIT, read_foreign_letter
from dlq.types import FailureClass, Family

DLQ = "the-dead-letter-topic"
AT_MS = 1_700_000_000_123
AT = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
JAVA_STACK = (
    b"org.springframework.kafka.listener.ListenerExecutionFailedException: card 4111 refused\n"
    b"\tat org.springframework.kafka.Container.invoke(Container.java:88)\n"
    b"Caused by: java.lang.IllegalStateException: card 4111\n"
    b"\tat com.shop.Pay.charge(Pay.java:12)\n"
    b"\tat com.shop.Pay$Inner.lambda$0(Pay.java:40)\n"
    b"\t... 12 more\n"
)
JAVA_FRAMES = ["Pay.java:40 com.shop.Pay$Inner.lambda$0", "Pay.java:12 com.shop.Pay.charge"]
PYTHON_STACK = (
    b'Traceback (most recent call last):\n  File "/app/shop/pay.py", line 7, in charge\n    raise Refused(card)\n'
    b"shop.pay.Refused: card 4111\n"
)

SPRING = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\x00\x00\x00\x03"),
    ("kafka_dlt-original-offset", b"\x00\x00\x00\x01\x00\x00\x00\x11"),
    ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"Listener failed; card 4111"),
    ("kafka_dlt-exception-stacktrace", JAVA_STACK),
]
RETRY = [
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", b"\x00\x00\x00\x03"),
    ("kafka_original-offset", b"\x00\x00\x00\x01\x00\x00\x00\x11"),
    ("kafka_original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
    ("kafka_original-timestamp-type", b"LogAppendTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_exception-message", b"Listener failed; card 4111"),
    ("kafka_exception-stacktrace", JAVA_STACK),
    ("retry_topic-attempts", b"\x00\x00\x00\x04"),
    ("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5\x68\x7b"),
    ("retry_topic-original-timestamp", b"\x01\x8b\xcf\xe5\x68\x7b"),
]
CLOUD = [
    ("x-original-topic", b"orders"),
    ("x-original-partition", b"\x00\x00\x00\x03"),
    ("x-original-offset", b"\x00\x00\x00\x01\x00\x00\x00\x11"),
    ("x-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
    ("x-original-timestamp-type", b"CreateTime"),
    ("x-exception-fqcn", b"java.lang.IllegalStateException"),
    ("x-exception-message", b"card 4111"),
    ("x-exception-stacktrace", JAVA_STACK),
]
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"4294967313"),
    ("__connect.errors.connector.name", b"orders-to-s3"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", None),
    ("__connect.errors.exception.stacktrace", JAVA_STACK),
]
STREAMS = [
    ("__streams.errors.exception", b"java.lang.IllegalStateException: card 4111"),
    ("__streams.errors.message", b"card 4111"),
    ("__streams.errors.stacktrace", JAVA_STACK),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"3"),
    ("__streams.errors.offset", b"4294967313"),
]
SHARE = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"4294967313"),
    ("__dlq.errors.group", b"billing"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset rejected by client."),
]
KARAFKA = [
    ("source_topic", b"orders"),
    ("source_partition", b"3"),
    ("source_offset", b"4294967313"),
    ("source_consumer_group", b"billing"),
    ("source_attempts", b"4"),
    ("source_trace_id", b"5a7b"),
]
SMALLRYE = [
    ("dead-letter-exception-class-name", b"java.lang.RuntimeException"),
    ("dead-letter-cause-class-name", b"java.lang.IllegalStateException"),
    ("dead-letter-reason", b"card 4111"),
    ("dead-letter-cause", b"card 4111"),
    ("dead-letter-topic", b"orders"),
    ("dead-letter-partition", b"3"),
    ("dead-letter-offset", b"4294967313"),
    ("delayed-retry-count", b"4"),
]
DJANGO = [
    ("DEAD_LETTER_MESSAGE_TOPIC", b"orders"),
    ("DEAD_LETTER_MESSAGE_PARTITION", b"3"),
    ("DEAD_LETTER_MESSAGE_OFFSET", b"4294967313"),
    ("DEAD_LETTER_SUMMARY", b"card 4111"),
    ("DEAD_LETTER_DETAIL", PYTHON_STACK),
]
OWN = [
    ("x-signalbox-topic", b"orders"),
    ("x-signalbox-partition", b"3"),
    ("x-signalbox-offset", b"4294967313"),
    ("x-signalbox-timestamp", b"1700000000123"),
    ("x-signalbox-group", b"billing"),
    ("x-signalbox-handler", b"shop.pay.charge"),
    ("x-signalbox-attempts", b"4"),
    ("x-signalbox-error-class", b"shop.pay.Refused"),
    ("x-signalbox-error-message", b"raised at pay.py:7 charge"),
]
ILLEGAL, SCHEMA, UNKNOWN = "java.lang.IllegalStateException", FailureClass.SCHEMA, FailureClass.UNKNOWN
# family -> headers, group, time, error class, attempts, failure class, frames
TABLE = {
    Family.SIGNALBOX: (OWN, "billing", AT, "shop.pay.Refused", 4, UNKNOWN, []),
    Family.SHARE_GROUP: (SHARE, "billing", None, "unknown", 5, UNKNOWN, []),
    Family.CONNECT: (CONNECT, "", None, "org.apache.kafka.connect.errors.DataException", 1, SCHEMA, JAVA_FRAMES),
    Family.STREAMS: (STREAMS, "", None, ILLEGAL, 1, UNKNOWN, JAVA_FRAMES),
    Family.SPRING: (SPRING, "billing", AT, ILLEGAL, 1, UNKNOWN, JAVA_FRAMES),
    Family.SPRING_RETRY: (RETRY, "billing", AT, ILLEGAL, 4, UNKNOWN, JAVA_FRAMES),
    Family.SPRING_CLOUD: (CLOUD, "", AT, ILLEGAL, 1, UNKNOWN, JAVA_FRAMES),
    Family.KARAFKA: (KARAFKA, "billing", None, "unknown", 4, UNKNOWN, []),
    Family.SMALLRYE: (SMALLRYE, "", None, ILLEGAL, 4, UNKNOWN, []),
    Family.DJANGO_KAFKA: (DJANGO, "", None, "shop.pay.Refused", 1, UNKNOWN, ["pay.py:7 charge"]),
}


def read(headers, topic=DLQ):
    return read_foreign_letter(headers, topic=topic, frames_limit=20)


def changed(headers, name, value):
    return [(n, value if n == name else v) for n, v in headers]


def without(headers, *names):
    return [(n, v) for n, v in headers if n not in names]


def place(origin):
    return (origin.topic, origin.partition, origin.offset)


def test_the_table_has_every_family():
    assert set(TABLE) == {layout.family for layout in LAYOUTS} == set(Family) - {Family.UNKNOWN}


@pytest.mark.parametrize(("family", "case"), TABLE.items(), ids=TABLE)
def test_each_family_is_recognised_and_read_from_its_exact_bytes(family, case):
    headers, group, at, error_class, attempts, failure_class, frames = case
    letter = read([("traceparent", b"00-1-2-01"), *headers, ("tenant", b"\xff")])
    (origin,) = letter.origins
    assert (origin.family, place(origin), origin.complaints) == (family, ("orders", 3, 4294967313), ())
    assert (origin.timestamp, letter.group, letter.error_class) == (at, group, error_class)
    assert (letter.attempts, letter.failure_class, list(letter.frames)) == (attempts, failure_class, frames)


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_no_text_of_a_foreign_exception_is_among_what_is_kept(case):
    letter = read(case[0])
    kept = str([letter.message, letter.frames, letter.error_class, letter.handler, letter.origins])
    assert "4111" not in kept
    assert letter.message.startswith("dead-lettered by ")


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_the_order_of_the_headers_does_not_matter(case):
    assert read(case[0]) == read(case[0][::-1])


def test_kafkas_own_fixed_texts_are_kept():
    assert read(SHARE).message == "dead-lettered by a share group of Kafka: Offset rejected by client."


def test_connects_connector_stage_and_task_are_shown():
    letter = read(CONNECT)
    assert letter.handler == "orders-to-s3"
    assert letter.origins[0].details == (
        ("task", "0"),
        ("stage", "VALUE_CONVERTER"),
        ("class at work", "org.apache.kafka.connect.json.JsonConverter"),
    )


def test_a_null_message_of_connect_is_no_complaint_but_a_null_topic_is():
    assert read(CONNECT).message == "dead-lettered by Kafka Connect, which gave no text"
    (origin,) = read(changed(CONNECT, "__connect.errors.topic", None)).origins
    assert (origin.is_known, origin.complaints) == (False, ("__connect.errors.topic is null",))


# -- Numbers -----------------------------------------------------------------------------------------------
BINARY = {
    b"\x07": 7,
    b"\x01\x00": 256,
    b"\x00\x00\x00\x03": 3,
    b"\x00\x00\x00\x00\x00\x00\x00\x09": 9,
    b"\x7f\xff\xff\xff": 2**31 - 1,
    b"": "is no number of 1, 2, 4 or 8 bytes (0 bytes)",
    b"\x00\x00\x03": "is no number of 1, 2, 4 or 8 bytes (3 bytes)",
    b"3\x00\x00\x00\x00": "is no number of 1, 2, 4 or 8 bytes (5 bytes)",
    b"\xff\xff\xff\xff": "is negative or too large",
    b"\x00\x00\x00\x00\x80\x00\x00\x00": "is negative or too large",
}


@pytest.mark.parametrize(("raw", "said"), BINARY.items(), ids=[raw.hex() or "empty" for raw in BINARY])
def test_springs_numbers_are_read_by_their_length_and_what_is_no_partition_is_said(raw, said):
    (origin,) = read(changed(SPRING, "kafka_dlt-original-partition", raw)).origins
    if isinstance(said, int):
        assert (origin.partition, origin.complaints) == (said, ())
    else:
        assert (origin.partition, origin.is_known) == (None, False)
        assert origin.complaints == (f"kafka_dlt-original-partition {said}",)
    assert (origin.topic, origin.offset) == ("orders", 4294967313)


DECIMAL = {
    b"0": 0,
    b"9223372036854775807": 2**63 - 1,
    b"007": 7,
    b"9223372036854775808": "is negative or too large",
    b"-1": "is negative or too large",
    b"": "is no decimal number (0 bytes)",
    b"1_000": "is no decimal number (5 bytes)",
    b" 1": "is no decimal number (2 bytes)",
    b"1.5": "is no decimal number (3 bytes)",
    b"\x00\x00\x00\x03": "is no decimal number (4 bytes)",
    "\uff13".encode(): "is no decimal number (3 bytes)",
    b"9" * 100_000: "is no decimal number (100000 bytes)",
}


@pytest.mark.parametrize(("raw", "said"), DECIMAL.items(), ids=range(len(DECIMAL)))
def test_text_numbers_are_ascii_digits_and_nothing_else(raw, said):
    (origin,) = read(changed(CONNECT, "__connect.errors.offset", raw)).origins
    if isinstance(said, int):
        assert (origin.offset, origin.complaints) == (said, ())
    else:
        assert (origin.offset, origin.complaints) == (None, (f"__connect.errors.offset {said}",))


TIMES = {
    b"\xff" * 8: (None, ()),  # -1: the record had no time
    b"\x00" * 8: (datetime(1970, 1, 1, tzinfo=UTC), ()),
    b"\x7f" + b"\xff" * 7: (None, ("kafka_dlt-original-timestamp is a time beyond the calendar",)),
    b"\xff" * 7 + b"\xfe": (None, ("kafka_dlt-original-timestamp is a time before 1970",)),
}


@pytest.mark.parametrize(("raw", "said"), TIMES.items(), ids=[raw.hex() for raw in TIMES])
def test_times_are_milliseconds_and_minus_one_is_none(raw, said):
    (origin,) = read(changed(SPRING, "kafka_dlt-original-timestamp", raw)).origins
    assert (origin.timestamp, origin.complaints) == said
    assert origin.is_known


def test_retry_attempts_are_read_in_their_old_and_new_width():
    assert read(changed(RETRY, "retry_topic-attempts", b"\x09")).attempts == 9
    assert read(changed(RETRY, "retry_topic-attempts", b"\x00\x00\x01\x00")).attempts == 256


def test_the_retry_topics_own_times_are_minimal_big_integers():
    (origin,) = read(without(RETRY, "kafka_original-timestamp")).origins
    assert origin.timestamp == AT
    assert ("next try was due", "2023-11-14T22:13:20.123+00:00") in origin.details


# -- Failures ----------------------------------------------------------------------------------------------
def test_without_a_cause_the_outer_exception_is_named():
    letter = read(without(SPRING, "kafka_dlt-exception-cause-fqcn"))
    assert letter.error_class.endswith("ListenerExecutionFailedException")


def test_a_key_that_could_not_be_deserialized_is_a_schema_failure():
    own = without(SPRING, "kafka_dlt-exception-fqcn", "kafka_dlt-exception-cause-fqcn")
    letter = read([*own, ("kafka_dlt-key-exception-fqcn", b"com.shop.KeyBroken")])
    assert (letter.error_class, letter.failure_class) == ("com.shop.KeyBroken", SCHEMA)


def test_a_serialized_java_object_is_never_read_but_tells_that_deserializing_failed():
    letter = read([*SPRING, ("springDeserializerExceptionValue", b"\xac\xed\x00\x05sr")])
    assert letter.failure_class is SCHEMA


def test_an_exception_class_that_is_no_class_name_is_said_and_not_kept():
    letter = read(changed(CLOUD, "x-exception-fqcn", b"maria.example@example.org"))
    assert letter.error_class == "unknown"
    assert letter.origins[0].complaints == ("x-exception-fqcn is no class name (25 bytes)",)


def test_a_name_that_is_not_utf8_or_cannot_be_shown_is_said():
    for raw in (b"\xff\xfe", b"or\x00ders", b"", b"a b", b"x" * 250):
        (origin,) = read(changed(SPRING, "kafka_dlt-original-topic", raw)).origins
        assert origin.topic is None
        assert origin.complaints[0].startswith("kafka_dlt-original-topic is ")
    assert read(changed(SPRING, "kafka_dlt-original-consumer-group", "a\u202eb".encode())).group == ""


# -- Missing, repeated, several ----------------------------------------------------------------------------
def test_a_missing_part_is_said_and_the_rest_is_read():
    (origin,) = read(without(CONNECT, "__connect.errors.offset")).origins
    assert (place(origin), origin.is_known) == (("orders", 3, None), False)
    assert origin.complaints == ("__connect.errors.offset is missing",)


def test_a_record_without_any_family_says_so():
    for headers in ([], [("tenant", b"a")], [("source_topic", b"orders")], [("Kafka_DLT-original-topic", b"orders")]):
        letter = read(headers)
        assert [o.family for o in letter.origins] == [Family.UNKNOWN]
        assert letter.message == "no header of a known program says where it came from"


def test_headers_that_the_client_cannot_give_are_said():
    letter = read(None)
    assert letter.origins[0].family is Family.UNKNOWN
    assert "not UTF-8" in letter.origins[0].complaints[0]


def test_a_record_that_was_dead_lettered_twice_keeps_both_stops_the_first_is_its_origin():
    again = [
        ("kafka_dlt-original-topic", b"orders-dlt"),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x00"),
        ("kafka_dlt-original-offset", b"\x00\x00\x00\x00\x00\x00\x00\x05"),
        ("kafka_dlt-exception-cause-fqcn", b"com.shop.Later"),
        ("kafka_dlt-original-consumer-group", b"repair"),
    ]
    letter = read(SPRING + again)
    assert [(place(o), o.group) for o in letter.origins] == [
        (("orders", 3, 4294967313), "billing"),
        (("orders-dlt", 0, 5), "repair"),
    ]
    assert (letter.group, letter.error_class) == ("billing", "com.shop.Later")


def test_two_families_on_one_record_are_both_kept_oldest_first():
    connect = changed(CONNECT, "__connect.errors.topic", b"orders-dlt")
    letter = read(SPRING + connect)
    assert [(o.family, o.topic) for o in letter.origins] == [(Family.SPRING, "orders"), (Family.CONNECT, "orders-dlt")]
    assert (letter.group, letter.error_class) == ("billing", "org.apache.kafka.connect.errors.DataException")


def test_the_topic_that_is_imported_is_never_the_first_origin():
    connect = changed(CONNECT, "__connect.errors.topic", DLQ.encode())
    assert [o.family for o in read(connect + SPRING).origins] == [Family.SPRING, Family.CONNECT]


def test_retry_topics_are_not_taken_for_the_other_family_of_spring():
    assert [o.family for o in read(RETRY).origins] == [Family.SPRING_RETRY]


def test_unequal_repeats_take_the_first_of_each_and_say_so():
    (origin,) = read([*SPRING, ("kafka_dlt-original-topic", b"orders-dlt")]).origins
    assert place(origin) == ("orders", 3, 4294967313)
    (said,) = origin.complaints
    assert said.startswith("which belong together cannot be said, so the first of each was taken: ")
    counts = "kafka_dlt-original-topic 2, kafka_dlt-original-partition 1, kafka_dlt-original-offset 1 times"
    assert said.endswith(counts)


def test_a_thousand_repeats_are_cut_and_said():
    letter = read(SPRING * 1_000)
    assert len(letter.origins) == STOPS_LIMIT
    assert letter.origins[0].complaints == (f"1000 places are told; the first {STOPS_LIMIT} were read",)


def test_only_what_went_wrong_without_a_place_is_a_stop_at_an_unknown_place():
    (origin,) = read([("kafka_dlt-exception-fqcn", b"com.shop.Broken")]).origins
    assert (origin.family, origin.is_known, len(origin.complaints)) == (Family.SPRING, False, 3)


def test_a_huge_hostile_stack_is_bounded():
    stack = b"Caused by: x\n" * 10_000 + b"\tat a.b(C.java:1)\n" * 10_000 + b"\tat " + b"a." * 200_000
    assert len(read(changed(SPRING, "kafka_dlt-exception-stacktrace", stack)).frames) <= 20


# -- Whatever else -----------------------------------------------------------------------------------------
NAMES = [*sorted({f.name for layout in LAYOUTS for f in layout.fields}), "tenant", "springDeserializerExceptionKey"]
GOOD = [value for case in TABLE.values() for _, value in case[0]]
VALUES = st.one_of(
    st.none(), st.binary(max_size=40), st.text(max_size=20).map(lambda t: t.encode()), st.sampled_from(GOOD)
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=60))
def test_no_headers_crash_the_reading_and_what_is_read_can_be_stored(headers):
    letter = read(headers)
    assert 1 <= len(letter.origins) <= STOPS_LIMIT * len(LAYOUTS)
    assert 1 <= letter.attempts < 2**31
    for text in (letter.group, letter.handler, letter.error_class, letter.message):
        assert len(text) <= 500
        assert "\0" not in text
    for origin in letter.origins:
        assert origin.topic is None or len(origin.topic) <= 249
        assert origin.partition is None or 0 <= origin.partition < 2**31
        assert origin.offset is None or 0 <= origin.offset < 2**63
        assert origin.is_known or origin.complaints
        str([*origin.details, *origin.complaints]).encode("utf-8")


@given(st.binary(max_size=200), st.sampled_from(NAMES))
def test_a_broken_value_never_hides_what_the_others_say(raw, name):
    for case in TABLE.values():
        told = read(changed(case[0], name, raw)).origins[0]
        right = read(case[0]).origins[0]
        changed_names = {n for n, _ in case[0]} & {name}
        kept = [a == b for a, b in zip(place(told), place(right), strict=True)]
        assert sum(kept) >= (2 if changed_names else 3)
