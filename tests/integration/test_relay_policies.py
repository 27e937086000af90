"""Policies of the relay: versions, and what the relay does with a row that used its attempts up."""

import pytest

from relay.errors import BadPolicy, BadReason, StalePolicy, UnknownTopic
from relay.facade import (
    get_relay_policy,
    list_policy_versions,
    list_relay_policies,
    save_policy,
    set_ingress_hold,
    set_relay_policy,
)
from relay.types import OnFailed, PolicyScope
from tests.relay_helpers import make_topic

pytestmark = pytest.mark.django_db(transaction=True)


def set_policy(topic, **changes):
    wanted = {
        "on_failed": "block",
        "max_attempts": 3,
        "first_retry_s": 1,
        "expected_version": 0,
        "actor": "ann",
        "reason": "tests",
    }
    return set_relay_policy(topic, **(wanted | changes))


def test_a_topic_without_a_policy_has_the_settings_values_as_version_0(settings):
    policy = get_relay_policy(make_topic(create=False))
    assert (policy.version, policy.on_failed, policy.max_attempts) == (0, OnFailed.BLOCK, settings.RELAY_RETRY_ATTEMPTS)
    assert policy.set_by is None


def test_every_change_of_a_policy_is_a_version_with_who_and_why():
    topic = make_topic(create=False)
    first = set_policy(topic, max_attempts=2, reason="try less")
    second = set_ingress_hold(topic, max_age_s=60, max_rows=None, expected_version=1, actor="bob", reason="protect")
    assert (first.version, second.version, second.max_attempts, second.ingress_max_age_s) == (1, 2, 2, 60)
    versions = list_policy_versions(PolicyScope.RELAY_TOPIC, topic)
    assert [(v.version, v.actor, v.reason) for v in versions] == [(2, "bob", "protect"), (1, "ann", "try less")]
    assert versions[1].document["ingress_max_age_s"] is None
    third = set_policy(topic, max_attempts=4, expected_version=2)
    assert third.ingress_max_age_s == 60
    assert third in list_relay_policies()


def test_a_change_made_from_an_old_version_is_refused_and_changes_nothing():
    topic = make_topic(create=False)
    set_policy(topic, max_attempts=2)
    for expected in (0, 2, 5):
        with pytest.raises(StalePolicy, match="somebody changed it"):
            set_policy(topic, max_attempts=7, expected_version=expected)
    assert get_relay_policy(topic).max_attempts == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"on_failed": "drop"},
        {"max_attempts": 0},
        {"max_attempts": 10_000},
        {"max_attempts": True},
        {"max_attempts": "3"},
        {"first_retry_s": 0},
        {"first_retry_s": -1},
        {"first_retry_s": float("nan")},
        {"first_retry_s": float("inf")},
        {"first_retry_s": 10**9},
        {"expected_version": -1},
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_words(bad):
    topic = make_topic(create=False)
    with pytest.raises(BadPolicy, match=next(iter(bad))):
        set_policy(topic, **bad)
    assert get_relay_policy(topic).version == 0


@pytest.mark.parametrize("limits", [{"max_age_s": 0, "max_rows": None}, {"max_age_s": None, "max_rows": 10**9}])
def test_an_ingress_limit_that_cannot_be_measured_is_refused(limits):
    with pytest.raises(BadPolicy, match="max_"):
        set_ingress_hold(make_topic(create=False), **limits, expected_version=0, actor="ann", reason="x")


@pytest.mark.parametrize("words", [{"actor": " "}, {"reason": ""}, {"reason": "x" * 501}, {"reason": "a\x00b"}])
def test_nobody_changes_a_policy_without_a_name_and_a_reason(words):
    topic = make_topic(create=False)
    with pytest.raises(BadReason):
        set_policy(topic, **words)
    assert get_relay_policy(topic).version == 0


def test_an_unknown_topic_has_no_policy():
    with pytest.raises(UnknownTopic):
        get_relay_policy("nobody-declared-this")


def test_other_scopes_keep_their_policies_in_the_same_table():
    subject = f"{make_topic(create=False)}/group"
    saved = save_policy(
        PolicyScope.CONSUMER, subject, document={"attempts": 3}, expected_version=0, actor="ann", reason="x"
    )
    assert list_policy_versions(PolicyScope.CONSUMER, subject) == [saved]
    assert list_policy_versions(PolicyScope.SAGA_STEP, subject) == []
