"""Retry policies: documents, waits, targets and which policy counts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.policy import (
    BadRetryPolicy,
    PolicyBounds,
    PolicyTarget,
    RetryPolicy,
    attempts_for,
    backoff_s,
    horizon_s,
    is_exhausted,
    is_withdrawn,
    next_wait_s,
    read_policy,
    resolve,
    subject_of,
    target_of,
    widen,
)
from dlq.types import FailureClass, Ordering

BOUNDS = PolicyBounds(attempts=100, wait_s=86_400, factor=10, overrides=3, horizon_s=604_800)
USUAL = RetryPolicy(
    max_attempts=10,
    unknown_attempts=3,
    base_s=5,
    factor=2,
    max_s=3_600,
    jitter=0.2,
    retry_after_max_s=600,
    overrides={"KeyError": FailureClass.TRANSIENT},
)


def read(**changes):
    return read_policy(USUAL.as_json() | changes, BOUNDS, subject="*", version=1)


policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    unknown_attempts=st.integers(1, 100),
    base_s=st.floats(0.1, 86_400),
    factor=st.floats(1, 10),
    max_s=st.floats(0.1, 86_400),
    jitter=st.floats(0, 0.9),
    retry_after_max_s=st.floats(0, 86_400),
)
chances = st.floats(0, 1, exclude_max=True)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=30)
topics = st.text("abcXYZ019._-", min_size=1, max_size=30)
targets = st.one_of(
    st.just(PolicyTarget()),
    st.builds(PolicyTarget, names),
    st.builds(PolicyTarget, names, topics),
    st.builds(PolicyTarget, names, topics, names),
)


# -- Waits -------------------------------------------------------------------------------------------------
def test_the_settings_policy_gives_up_42_min_35_s_after_the_first_failure():
    assert horizon_s(USUAL) == 42 * 60 + 35
    assert horizon_s(USUAL, USUAL.unknown_attempts) == 15
    assert [backoff_s(USUAL, n) for n in (1, 2, 3, 9, 10, 11)] == [5, 10, 20, 1_280, 2_560, 3_600]


@pytest.mark.parametrize(
    ("asked", "heeded", "wait"),
    [(None, 600, 4.5), (7, 600, 7), (0, 600, 0), (-3, 600, 0), (9_999, 600, 600), (7, 0, 4.5)],
)
def test_what_the_failing_side_asks_counts_as_far_as_the_policy_heeds_it(asked, heeded, wait):
    assert next_wait_s(replace(USUAL, retry_after_max_s=heeded), 1, 0.5, asked) == pytest.approx(wait)


@given(policies, st.integers(1, 10**9), chances)
def test_a_wait_is_never_longer_than_the_policy_says_and_never_overflows(policy, attempt, chance):
    wait = next_wait_s(policy, attempt, chance, None)
    assert 0 <= wait <= policy.max_s
    assert wait >= backoff_s(policy, attempt) * (1 - policy.jitter) * 0.999


@given(policies, st.lists(chances, min_size=100, max_size=100))
def test_the_horizon_is_never_passed(policy, rolls):
    waits = [next_wait_s(policy, n, rolls[n], None) for n in range(1, policy.max_attempts)]
    assert sum(waits) <= horizon_s(policy) * 1.000_001


@given(policies, st.integers(1, 300))
def test_waits_never_shrink(policy, failed):
    assert backoff_s(policy, failed + 1) >= backoff_s(policy, failed)


@pytest.mark.parametrize(
    ("found", "attempts"),
    [
        (FailureClass.TRANSIENT, 10),
        (FailureClass.UNKNOWN, 3),
        (FailureClass.PERMANENT, 1),
        (FailureClass.SCHEMA, 1),
    ],
)
def test_each_kind_of_failure_has_its_number_of_tries(found, attempts):
    assert attempts_for(USUAL, found) == attempts
    assert is_exhausted(USUAL, found, attempts)
    assert not is_exhausted(USUAL, found, attempts - 1)


# -- Targets -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("target", "subject"),
    [
        (PolicyTarget(), "*"),
        (PolicyTarget("*"), "%2A"),
        (PolicyTarget("claim-workers"), "claim-workers"),
        (PolicyTarget("a/b", "t"), "a%2Fb/t"),
        (PolicyTarget("a", "b", "c/d%"), "a/b/c%2Fd%25"),
    ],
)
def test_a_target_has_one_subject(target, subject):
    assert subject_of(target) == subject
    assert target_of(subject) == target


@given(targets, targets)
def test_two_targets_never_share_a_subject(first, second):
    assert target_of(subject_of(first)) == first
    assert (subject_of(first) == subject_of(second)) == (first == second)


@given(st.text(max_size=40))
def test_a_text_that_is_no_subject_is_refused(text):
    try:
        target = target_of(text)
    except BadRetryPolicy:
        return
    assert subject_of(target) == text


@pytest.mark.parametrize("subject", ["", "/", "a//c", "a/b/c/d", "a%", "a%2f", "a/b c", "a\n", "a/" + "t" * 250])
def test_odd_subjects_are_refused(subject):
    with pytest.raises(BadRetryPolicy):
        target_of(subject)


@pytest.mark.parametrize(
    "target", [PolicyTarget("", "t"), PolicyTarget("g", "", "e"), PolicyTarget("", "", "e"), PolicyTarget("g" * 201)]
)
def test_a_target_that_skips_a_level_is_refused(target):
    with pytest.raises(BadRetryPolicy):
        subject_of(target)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (PolicyTarget(), "everything"),
        (PolicyTarget("g"), "g"),
        (PolicyTarget("g", "t"), "t in g"),
        (PolicyTarget("g", "t", "e"), "e of t in g"),
    ],
)
def test_a_target_reads_as_words(target, words):
    assert str(target) == words


@pytest.mark.parametrize(
    ("set_for", "counts"),
    [
        ([], "none"),
        ([PolicyTarget()], PolicyTarget()),
        ([PolicyTarget(), PolicyTarget("g")], PolicyTarget("g")),
        ([PolicyTarget(), PolicyTarget("g"), PolicyTarget("g", "t")], PolicyTarget("g", "t")),
        ([PolicyTarget("g"), PolicyTarget("g", "t", "e")], PolicyTarget("g", "t", "e")),
        ([PolicyTarget("g", "t", "other"), PolicyTarget("g", "other"), PolicyTarget("other")], "none"),
    ],
)
def test_the_most_specific_policy_counts(set_for, counts):
    book = {target: replace(USUAL, subject=subject_of(target)) for target in set_for}
    found = resolve(book, PolicyTarget("g", "t", "e"), replace(USUAL, subject="none"))
    assert found.subject == (counts if counts == "none" else subject_of(counts))


@given(st.sets(targets, max_size=8), targets)
def test_no_policy_between_the_one_that_counts_and_the_target(set_for, target):
    book = {one: replace(USUAL, subject=subject_of(one)) for one in set_for}
    found = resolve(book, target, replace(USUAL, subject="none"))
    covering = [one for one in set_for if one.covers(target)]
    if not covering:
        assert found.subject == "none"
        return
    order = list(widen(target))
    assert found.subject == subject_of(min(covering, key=order.index))


# -- Documents ---------------------------------------------------------------------------------------------
def test_a_document_is_read_as_it_was_written():
    assert read_policy(USUAL.as_json(), BOUNDS, subject="*", version=0) == USUAL


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 101}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"unknown_attempts": 11}, "unknown_attempts"),
        ({"base_s": 0.001}, "base_s"),
        ({"base_s": float("nan")}, "base_s"),
        ({"base_s": float("inf")}, "base_s"),
        ({"base_s": None}, "base_s"),
        ({"base_s": 3_601}, "max_s"),
        ({"factor": 0.5}, "factor"),
        ({"factor": 11}, "factor"),
        ({"max_s": 86_401}, "max_s"),
        ({"jitter": 1}, "jitter"),
        ({"jitter": -0.1}, "jitter"),
        ({"retry_after_max_s": -1}, "retry_after_max_s"),
        ({"ordering": "drop"}, "ordering"),
        ({"ordering": None}, "ordering"),
        ({"overrides": []}, "overrides"),
        ({"overrides": {"no class": "transient"}}, "overrides"),
        ({"overrides": {"KeyError": "drop"}}, "overrides"),
        ({"overrides": {"HTTP 399": "transient"}}, "overrides"),
        ({"overrides": dict.fromkeys("abcd", "transient")}, "overrides"),
        ({"max_attempts": 100, "max_s": 86_400}, "max_attempts"),
        ({"on_exhausted": "drop"}, "document"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_field(changes, field):
    with pytest.raises(BadRetryPolicy) as refused:
        read(**changes)
    assert refused.value.field == field
    assert len(str(refused.value)) > 20


def test_statuses_and_classes_may_be_overridden():
    overrides = {"HTTP 409": "transient", "requests.exceptions.HTTPError": "unknown"}
    assert read(overrides=overrides).overrides["HTTP 409"] is FailureClass.TRANSIENT


def test_every_ordering_is_known():
    assert [read(ordering=one.value).ordering for one in Ordering] == list(Ordering)


def test_a_withdrawn_document_is_told_apart():
    assert is_withdrawn({"withdrawn": True})
    assert not is_withdrawn(USUAL.as_json())
