"""The copy of a dead letter: its topic's name, its rule, and what is left out of what does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.copying import BadCopyRule, CopyLimits, build_copy, check_rule, find_rule, name_copy_topic
from dlq.types import CopiedPayload, Family
from tests.unit.test_export_headers import FACTS, READERS, changed

WIDE = CopyLimits(record_bytes=1_000_000, added_bytes=16 * 1024, headers=64)
OPEN = find_rule({"*": {"payload": True}}, "orders", "billing")
SHUT = find_rule({}, "orders", "billing")
FOUR = [("event-id", b"1"), ("event-type", b"order.paid"), ("published-at", b"7"), ("content-type", b"text/plain")]


def copy(key=b"k", value=b"v", headers=(), facts=FACTS, rule=OPEN, limits=WIDE):
    return build_copy(key, value, headers, facts=facts, rule=rule, limits=limits)


def size(made):
    return len(made.key or b"") + len(made.value or b"") + sum(len(n.encode()) + len(v or b"") for n, v in made.headers)


# -- Names -------------------------------------------------------------------------------------------------
def test_the_topic_of_copies_is_named_after_topic_and_group():
    assert name_copy_topic("orders", "billing") == "orders.billing.dlq"


@pytest.mark.parametrize("group", ["bill ing", "räte", "a/b", "x" * 300, "line\nbreak"])
def test_a_group_with_odd_characters_gets_a_name_that_kafka_takes_and_no_other_group_has(group):
    name = name_copy_topic("orders", group)
    assert len(name) <= 249
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    assert name.endswith(".dlq")
    assert name != name_copy_topic("orders", group.replace(group[-1], "?"))


@given(st.text(min_size=1, max_size=260), st.text(min_size=1, max_size=260))
def test_names_of_odd_groups_never_meet(one, other):
    same = name_copy_topic("t", one) == name_copy_topic("t", other)
    assert same == (one == other)


# -- Rules -------------------------------------------------------------------------------------------------
def test_the_narrower_rule_goes_before_field_by_field():
    rules = {"*": {"family": "connect"}, "orders": {"payload": True}, "orders/billing": {"to": "bad-orders"}}
    rule = find_rule(rules, "orders", "billing")
    assert (rule.to, rule.family, rule.with_payload, rule.is_on) == ("bad-orders", Family.CONNECT, True, True)
    assert find_rule(rules, "orders", "other").to == "orders.other.dlq"
    assert find_rule(rules, "else", "billing").with_payload is False


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("yes", "must be an object"),
        ({"famly": "spring"}, "famly"),
        ({"payload": "no"}, "true or false"),
        ({"family": "karafka"}, "spring or connect"),
        ({"to": "a b"}, "a topic name"),
        ({"to": ".."}, "a topic name"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_words(rule, words):
    with pytest.raises(BadCopyRule, match=words):
        check_rule("orders", rule)


# -- Records -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        (b"k", b"v", CopiedPayload.COPIED),
        (None, b"v", CopiedPayload.COPIED),
        (b"k", None, CopiedPayload.NONE),
        (b"\x00\xff", b"\xff\xfe", CopiedPayload.COPIED),
        (b"k", b"", CopiedPayload.COPIED),
    ],
    ids=["plain", "unkeyed", "tombstone", "not UTF-8", "empty"],
)
def test_key_value_and_own_headers_travel_byte_for_byte_where_the_rule_says_so(key, value, word):
    own = [("x", None), ("x", b"\xff"), ("y", b"")]
    made = copy(key, value, [*FOUR, *own])
    assert (made.key, made.value, made.payload, made.shed) == (key, value, word, ())
    assert made.headers[:3] == own
    told = dict(made.headers)
    assert told["x-signalbox-payload"] == word.value.encode()
    assert told["x-signalbox-event-id"] == b"1"
    assert told["x-signalbox-content-type"] == b"text/plain"
    assert not {"event-id", "event-type", "published-at", "content-type"} & set(told)


def test_without_the_payload_nothing_of_the_record_travels_but_what_identifies_it():
    made = copy(b"secret", b"secret", [*FOUR, ("x", b"secret")], rule=SHUT)
    assert (made.key, made.value, made.payload) == (None, None, CopiedPayload.WITHHELD)
    assert b"secret" not in b"".join(v or b"" for _, v in made.headers)
    assert dict(made.headers)["x-signalbox-event-id"] == b"1"


@pytest.mark.parametrize("family", READERS)
def test_other_programs_read_the_place_from_a_copy(family):
    rule = find_rule({"*": {"family": family.value}}, "orders", "billing")
    told = READERS[family](copy(rule=rule).headers)
    assert (told["topic"], told["partition"], told["offset"]) == ("orders", 3, 4294967313)
    assert told["stack"] == "pay.py:7"


def test_what_does_not_fit_goes_stack_first_then_message_class_headers_payload_and_key():
    facts = changed(stack="s" * 900, message="m" * 900, error_class="c" * 900)
    whole = copy(b"k" * 500, b"v" * 5_000, [("x", b"h" * 3_000)], facts=facts)
    assert whole.shed == ()
    seen = []
    for limit in range(size(whole) + 400, 1_000, -50):
        limits = CopyLimits(record_bytes=limit, added_bytes=16 * 1024, headers=64)
        made = copy(b"k" * 500, b"v" * 5_000, [("x", b"h" * 3_000)], facts=facts, limits=limits)
        assert size(made) <= limit
        told = READERS[Family.SPRING](made.headers)
        assert (told["topic"], told["partition"], told["offset"]) == ("orders", 3, 4294967313)
        seen += [word for word in made.shed if word not in seen]
    assert seen == ["stack", "error-message", "error-class", "own headers", "payload", "key"]


def test_what_was_left_out_is_said_in_the_copy():
    limits = CopyLimits(record_bytes=3_000, added_bytes=16 * 1024, headers=64)
    made = copy(value=b"v" * 5_000, facts=changed(stack="s" * 5_000), limits=limits)
    told = dict(made.headers)
    assert (made.value, told["x-signalbox-payload"]) == (None, b"shed")
    assert told["x-signalbox-shed"] == b"stack, payload"


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ([("", b"1")], "headers without a name"),
        ([("a\0b", b"1")], "headers without a name"),
        ([(f"h{n}", b"1") for n in range(100)], "own headers"),
        (None, "headers"),
    ],
    ids=["empty name", "NUL in a name", "a hundred", "unreadable"],
)
def test_headers_that_cannot_travel_are_left_out_and_said(headers, word):
    made = copy(headers=headers)
    assert made.shed == (word,)
    assert (made.key, made.value) == (b"k", b"v")
    assert len(made.headers) <= 64


def test_an_empty_key_is_left_out_and_said():
    assert (copy(key=b"").key, copy(key=b"").shed) == (None, ("empty key",))


def test_headers_of_the_relay_that_are_huge_or_many_do_not_travel():
    many = [("event-id", b"1")] * 100
    assert sum(name == "x-signalbox-event-id" for name, _ in copy(headers=many).headers) == 8
    assert "x-signalbox-event-id" not in dict(copy(headers=[("event-id", b"1" * 10_000)], rule=SHUT).headers)


@given(
    st.none() | st.binary(max_size=3_000),
    st.none() | st.binary(max_size=5_000),
    st.none() | st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=500)), max_size=80),
    st.integers(1_500, 12_000),
    st.sampled_from(list(READERS)),
    st.booleans(),
)
def test_every_record_has_a_copy_that_fits(key, value, headers, limit, family, with_payload):
    rule = find_rule({"*": {"family": family.value, "payload": with_payload}}, "orders", "billing")
    limits = CopyLimits(record_bytes=limit, added_bytes=4_000, headers=64)
    facts = changed(stack="é" * 3_000)
    made = copy(key, value, headers, facts=facts, rule=rule, limits=limits)
    assert size(made) <= limit
    assert len(made.headers) <= 64
    assert READERS[family](made.headers)["offset"] == FACTS.offset
