"""Which incidents should be open, by the facts."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.urls import resolve

from console.watch_rules import WatchBounds, WatchFacts, decide_incidents
from relay.types import (
    Aspect,
    CappedCount,
    GroupLag,
    IncidentKind,
    LagOverview,
    LagWord,
    PartitionLag,
    ProcessView,
    RelayStatus,
    Role,
    RunnerView,
    Severity,
    UnsentRow,
    Verdict,
)

NOW = datetime(2026, 11, 30, 12, 3, 4, tzinfo=UTC)
BOUNDS = WatchBounds(
    relay_silent_s=3, unsent_old_s=30, dead_letters_an_hour=100, crashes=3, beat_silent_s=10, sweep_silent_s=120
)


def runner(age_s=0.5):
    return RunnerView(
        name="r", kind="process", pid=1, host="h", started_at=NOW, seen_at=NOW, age_s=age_s, lease_left_s=9,
        shards=[], state="publishing", sent_total=0, unacked=0,
    )  # fmt: skip


def oldest(age_s):
    return UnsentRow(
        position=1, shard=0, event_id=UUID(int=1), topic="claim-events", type="t", key_label="key#0", created_at=NOW,
        age_s=age_s, why="the topic is held",
    )  # fmt: skip


def relay(**changes):
    status = RelayStatus(
        as_of=NOW, verdict=Verdict(aspect=Aspect.OK, word="ok"), oldest=None, waiting=[], unsent=CappedCount(value=0),
        unsent_by_topic=[], window_s=60, appended_per_s=None, sent_per_s=None, latency_p50_ms=None, latency_p99_ms=None,
        runners=[runner()], shards=[], deferred=[], holds=[], paused_by=None, paused_at=None, paused_reason="",
        circuit_open_since=None, blocked_by=None, partitions_ahead=8,
    )  # fmt: skip
    return replace(status, **changes)


def partition(word, lag, number=0, reason="no commit for 4 m 10 s, 312 waiting", **changes):
    view = PartitionLag(
        topic="claim-events", partition=number, committed=0, begin=0, end=lag, lag=lag, time_lag_s=None,
        time_lag_estimated=True, in_per_min=None, out_per_min=None, drain_s=None, drain_words="unknown", owner="cw-7f2",
        verdict=Verdict(aspect=Aspect.BAD, word=word.value, reason=reason), history=[], as_of=NOW,
    )  # fmt: skip
    return replace(view, **changes)


def group(*partitions, name="claim-workers", members=3, error=None):
    return GroupLag(
        group=name, state="Stable", protocol="classic", members=members, allowed_lag=50, total_lag=None, skew=None,
        verdict=Verdict(aspect=Aspect.BAD, word="x"), partitions=partitions, as_of=NOW, error=error,
    )  # fmt: skip


def lag(*groups, errors=()):
    return LagOverview(as_of=NOW, age_s=1.0, collector="w", pass_s=0.1, groups=groups, errors=errors)


def process(role=Role.CONSUMER, word="alive", aspect=Aspect.OK, age_s=0.5, **changes):
    view = ProcessView(
        role=role, name=role.value, pid=7, host="h", version="1", started_at=NOW, seen_at=NOW, age_s=age_s, doing="",
        facts={}, crashes=0, crashed_at=None, verdict=Verdict(aspect=aspect, word=word),
    )  # fmt: skip
    return replace(view, **changes)


BEAT = process(Role.BEAT)
HEALTHY = WatchFacts(
    relay=relay(),
    lag=lag(group(partition(LagWord.OK, 3))),
    processes=[BEAT, process()],
    parked_last_hour=0,
    crashes_rise=0,
    lag_sweep_age_s=2.0,
    valkey_answers=True,
)
K = IncidentKind

CASES = {
    "all is well": ({}, []),
    "no relay, rows wait": (
        {"relay": relay(runners=[], oldest=oldest(61), unsent=CappedCount(value=312))},
        [(K.RELAY_SILENT, "relay", Severity.BAD)],
    ),
    "the only relay has not been heard of": (
        {"relay": relay(runners=[runner(3.5)], oldest=oldest(4), unsent=CappedCount(value=1))},
        [(K.RELAY_SILENT, "relay", Severity.BAD)],
    ),
    "no relay, nothing waits": ({"relay": relay(runners=[])}, [(K.RELAY_SILENT, "relay", Severity.WARN)]),
    "a relay lives, a row waits too long": (
        {"relay": relay(oldest=oldest(30))},
        [(K.RELAY_UNSENT_OLD, "relay", Severity.BAD)],
    ),
    "a relay lives, a row waits a little": ({"relay": relay(oldest=oldest(29))}, []),
    "the cluster is down: the relay says so itself": (
        {"relay": relay(oldest=oldest(300), circuit_open_since=NOW)},
        [],
    ),
    "somebody paused the relay": (
        {"relay": relay(oldest=oldest(300), paused_by="ada")},
        [(K.RELAY_UNSENT_OLD, "relay", Severity.WARN)],
    ),
    "a stopped group": (
        {"lag": lag(group(partition(LagWord.STOPPED, 9), partition(LagWord.STOPPED, 312, 1), members=0))},
        [(K.LAG_STOPPED, "claim-workers", Severity.BAD)],
    ),
    "the worst partition speaks for its group": (
        {"lag": lag(group(partition(LagWord.FALLING_BEHIND, 900), partition(LagWord.STALLED, 60, 3)))},
        [(K.LAG_STALLED, "claim-workers", Severity.BAD)],
    ),
    "each group has its own": (
        {"lag": lag(group(partition(LagWord.REWOUND, 9)), group(partition(LagWord.FALLING_BEHIND, 99), name="mail"))},
        [(K.LAG_REWOUND, "claim-workers", Severity.WARN), (K.LAG_BEHIND, "mail", Severity.WARN)],
    ),
    "data loss of a foreign group": (
        {"lag": lag(group(partition(LagWord.DATA_LOSS, 9)))},
        [(K.DATA_LOSS, "lag: claim-workers", Severity.BAD)],
    ),
    "data loss of our own group is told by its consumers": (
        {"lag": lag(group(partition(LagWord.DATA_LOSS, 9))), "own_groups": ["claim-workers"]},
        [],
    ),
    "one group cannot be read": (
        {"lag": lag(group(error="no answer within 5 s"), group(partition(LagWord.STALLED, 9), name="mail"))},
        [(K.LAG_UNREADABLE, "claim-workers", Severity.WARN), (K.LAG_STALLED, "mail", Severity.BAD)],
    ),
    "the broker cannot be read: one incident, not one a group": (
        {"lag": lag(group(error="X is away"), group(error="X is away", name="mail"), errors=["X is away"])},
        [(K.LAG_UNREADABLE, "collector", Severity.BAD)],
    ),
    "a partition cannot be read": (
        {"lag": lag(group(partition(LagWord.UNKNOWN, None, error="the topic does not exist (any more)")))},
        [(K.LAG_UNREADABLE, "claim-workers", Severity.WARN)],
    ),
    "a partition of a group without members cannot be read": (
        {"lag": lag(group(partition(LagWord.UNKNOWN, None, error="the topic does not exist"), members=0))},
        [],
    ),
    "many dead letters": ({"parked_last_hour": 101}, [(K.DEAD_LETTERS_GROWING, "dead letters", Severity.WARN)]),
    "some dead letters": ({"parked_last_hour": 100}, []),
    "a lost process": (
        {"processes": [BEAT, process(word="lost", aspect=Aspect.BAD, age_s=9)]},
        [(K.PROCESS_LOST, "consumer", Severity.BAD)],
    ),
    "a lost demo": (
        {"processes": [BEAT, process(Role.DEMO, word="lost", aspect=Aspect.BAD, age_s=9)]},
        [(K.PROCESS_LOST, "demo", Severity.WARN)],
    ),
    "a process that ended on purpose": ({"processes": [BEAT, process(word="stopped", aspect=Aspect.IDLE)]}, []),
    "consumers keep dying": ({"crashes_rise": 3}, [(K.CONSUMER_CRASHING, "consumers", Severity.BAD)]),
    "a consumer died once": ({"crashes_rise": 1}, []),
    "no beat at all": ({"processes": []}, [(K.BEAT_SILENT, "beat", Severity.BAD)]),
    "beat stopped on purpose": (
        {"processes": [process(Role.BEAT, word="stopped", aspect=Aspect.IDLE)]},
        [(K.BEAT_SILENT, "beat", Severity.BAD)],
    ),
    "beat lives, its jobs do not run": ({"lag_sweep_age_s": 121.0}, [(K.BEAT_SILENT, "beat", Severity.BAD)]),
    "Valkey does not answer": ({"valkey_answers": False}, [(K.VALKEY_DOWN, "valkey", Severity.BAD)]),
}


@pytest.mark.parametrize("case", CASES)
def test_incidents_follow_the_facts(case):
    changes, expected = CASES[case]
    decision = decide_incidents(replace(HEALTHY, **changes), BOUNDS)
    assert [(w.kind, w.cause, w.severity) for w in decision.wanted] == expected
    assert {w.kind for w in decision.wanted} <= decision.judged


@pytest.mark.parametrize(
    ("fact", "kinds"),
    [
        ("relay", {K.RELAY_SILENT, K.RELAY_UNSENT_OLD}),
        ("lag", {K.LAG_STOPPED, K.LAG_STALLED, K.LAG_BEHIND, K.LAG_REWOUND, K.LAG_UNREADABLE, K.DATA_LOSS}),
        ("parked_last_hour", {K.DEAD_LETTERS_GROWING}),
        ("processes", {K.PROCESS_LOST, K.CONSUMER_CRASHING, K.BEAT_SILENT}),
        ("valkey_answers", {K.VALKEY_DOWN}),
    ],
)
def test_nothing_is_concluded_from_a_source_that_failed(fact, kinds):
    decision = decide_incidents(replace(HEALTHY, **{fact: None}), BOUNDS)
    assert decide_incidents(HEALTHY, BOUNDS).judged - decision.judged == kinds


def test_a_lag_incident_says_what_it_means_and_what_to_do():
    stopped = lag(group(partition(LagWord.STOPPED, 9), partition(LagWord.STOPPED, 312, 3), members=0))
    (wanted,) = decide_incidents(replace(HEALTHY, lag=stopped), BOUNDS).wanted
    assert wanted.title == "claim-events 3 is stopped for claim-workers: no commit for 4 m 10 s, 312 waiting"
    assert wanted.meaning.startswith("2 partitions are so, with 321 waiting in all. The group has no member.")
    assert wanted.link == "/lag/?group=claim-workers"
    assert wanted.action


@pytest.mark.parametrize("case", [case for case, (_, expected) in CASES.items() if expected])
def test_every_incident_links_a_page_that_exists_and_says_what_to_do(case):
    for wanted in decide_incidents(replace(HEALTHY, **CASES[case][0]), BOUNDS).wanted:
        assert resolve(wanted.link.partition("?")[0])
        assert wanted.meaning
        assert wanted.action
        assert max(len(wanted.title) / 300, len(wanted.meaning) / 600, len(wanted.action) / 600) <= 1
