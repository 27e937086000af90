from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.backoff import Backoff
from relay.domain.circuit import Circuit, is_stalled
from relay.domain.histogram import EDGES_MS, SIZE, bucket_of, quantile_ms
from relay.domain.outcome import Failure, GiveUp, Retry, Scope, TopicFacts, check_record, decide_retry
from relay.domain.ownership import Peer, fair_target, plan_share
from relay.domain.places import Page, Place, Snapshot, advance, share_quota, takes_fresh
from relay.domain.relay_verdict import Facts, explain_waiting, judge_relay
from relay.types import CappedCount

RELAY_BACKOFF = Backoff(base_s=5, factor=2, attempts=10)


# -- Places ------------------------------------------------------------------------------------------------
def test_a_snapshot_is_read_and_written_as_postgresql_does():
    for text in ("10:10:", "10:20:12,15"):
        assert str(Snapshot.parse(text)) == text
    snapshot = Snapshot.parse("10:20:12,15")
    assert [x for x in range(8, 22) if not snapshot.is_visible(x)] == [12, 15, 20, 21]


def read_round(place, rows, seen, *, quota, late_rows, top=0):
    """What the SQL does: late and fresh rows of one shard at snapshot `seen`; rows are (position, xid)."""
    visible = [(p, x) for p, x in rows if seen.is_visible(x)]
    late = [
        p
        for p, x in visible
        if place.late_after < p <= place.hw
        and not place.snapshot.is_visible(x)
        and (place.late_snapshot is None or place.late_snapshot.is_visible(x))
    ][:late_rows]
    page = Page(last=late[-1] if late else None, is_cut=len(late) >= late_rows)
    fresh = [p for p, _ in visible if p > place.hw][: 0 if place.is_paging else quota]
    fresh = fresh if takes_fresh(place, page) else []
    last = fresh[-1] if fresh else None
    passed = top if len(fresh) < quota else 0
    return sorted([*late, *fresh]), advance(place, late=page, last_fresh=last, snapshot=seen, top=passed)


@st.composite
def histories(draw):
    """Transactions with rows at rising positions; they commit in any order; between commits the relay reads."""
    count = draw(st.integers(1, 8))
    owners = draw(st.lists(st.integers(1, count), min_size=1, max_size=30))
    order = draw(st.permutations(range(1, count + 1)))
    others = draw(st.sets(st.integers(1, len(owners))))  # rows of other shards, which the reader may pass
    return [(position + 1, xid) for position, xid in enumerate(owners)], order, others


@settings(max_examples=300)
@given(histories(), st.integers(1, 5), st.integers(1, 4))
def test_every_row_is_read_exactly_once_in_whatever_order_transactions_commit(history, quota, late_rows):
    rows, order, others = history
    mine = [(p, x) for p, x in rows if p not in others]
    place = Place(hw=0, snapshot=Snapshot(xmin=1, xmax=1))
    published = []
    for done in range(len(order) + 1):
        running = tuple(sorted(order[done:]))
        seen = Snapshot(xmin=min(running, default=len(order) + 1), xmax=len(order) + 1, xip=running)
        reads = len(rows) * 3 + 3 if done == len(order) else 1 + done % 3
        for _ in range(reads):
            top = max((p for p, x in rows if p in others and seen.is_visible(x)), default=0)
            read, place = read_round(place, mine, seen, quota=quota, late_rows=late_rows, top=top)
            published += read
    assert sorted(published) == [p for p, _ in mine]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_rows_of_a_key_whose_writers_are_serialised_are_read_in_order(keys, data):
    # Each row is a transaction of its own; a key's next one begins after the one before committed.
    place = Place(hw=0, snapshot=Snapshot(xmin=1, xmax=1))
    rows, running, published, owner = [], {}, [], {}
    for xid, key in enumerate(keys, start=1):
        running.pop(key, None)
        rows.append((xid, xid))
        running[key], owner[xid] = xid, key
        for other in list(running):
            if other != key and data.draw(st.booleans()):
                del running[other]
        seen = Snapshot(xmin=min(running.values(), default=xid + 1), xmax=xid + 1, xip=tuple(sorted(running.values())))
        read, place = read_round(place, rows, seen, quota=3, late_rows=2)
        published += read
    end = Snapshot(xmin=len(keys) + 1, xmax=len(keys) + 1)
    for _ in range(len(keys) * 2 + 2):
        read, place = read_round(place, rows, end, quota=3, late_rows=2)
        published += read
    for key in set(keys):
        mine = [p for p in published if owner[p] == key]
        assert mine == sorted(mine)
    assert len(published) == len(keys)


def test_quotas_give_a_busy_shard_the_round_and_never_forget_a_quiet_one():
    places = {shard: Place(hw=0, snapshot=Snapshot(xmin=1, xmax=1)) for shard in range(4)}
    assert share_quota(places, frozenset(), rows=1_000, least=16) == dict.fromkeys(range(4), 250)
    assert share_quota(places, frozenset({2}), rows=1_000, least=16) == {0: 16, 1: 16, 2: 1_000, 3: 16}
    paging = Place(hw=0, snapshot=places[0].snapshot, late_snapshot=places[0].snapshot)
    assert share_quota({**places, 1: paging}, frozenset({1}), rows=30, least=1)[1] == 0


# -- Ownership ---------------------------------------------------------------------------------------------
peers = st.lists(st.builds(Peer, id=st.uuids(), leaving=st.booleans()), max_size=6, unique_by=lambda p: p.id)


@given(peers, st.integers(1, 64))
def test_fair_targets_add_up_to_all_shards_and_differ_by_one_at_most(live, shards):
    staying = [p for p in live if not p.leaving] or live
    targets = [fair_target(p.id, live, shards) for p in staying]
    assert sum(targets) == (shards if staying else 0)
    assert not targets or max(targets) - min(targets) <= 1


@given(peers, st.integers(1, 16), st.randoms())
def test_repeated_shares_settle_with_every_shard_held_once(live, shards, random):
    held = {p.id: [] for p in live}
    for shard in range(shards):
        if live and random.random() < 0.7:
            held[random.choice(live).id].append(shard)
    for _ in range(3):
        for peer in live:
            held[peer.id] = sorted(set(held[peer.id]) - set(plan_share(peer.id, live, held[peer.id], shards).give))
        for peer in live:
            taken = {s for mine in held.values() for s in mine}
            free = [s for s in range(shards) if s not in taken]
            held[peer.id] += free[: plan_share(peer.id, live, held[peer.id], shards).take]
    if live:
        assert sorted(s for mine in held.values() for s in mine) == list(range(shards))
    if any(not p.leaving for p in live):
        assert all(not held[p.id] for p in live if p.leaving)


def test_a_leaving_runner_without_a_successor_keeps_its_shards_and_takes_free_ones():
    me = UUID(int=1)
    share = plan_share(me, [Peer(id=me, leaving=True)], [1, 2], 64)
    assert (share.take, share.give) == (62, ())


# -- Outcomes ----------------------------------------------------------------------------------------------
def test_the_waits_are_those_of_the_worked_numbers():
    waits = RELAY_BACKOFF.waits_s()
    assert (len(waits), waits[0], waits[-1], sum(waits)) == (9, 5, 1280, 2555)


ROW = Failure(scope=Scope.ROW, code="x", text="x")


@pytest.mark.parametrize(
    ("failure", "before", "expected"),
    [
        (ROW, 0, Retry(attempts=1, delay_s=5)),
        (ROW, 8, Retry(attempts=9, delay_s=1280)),
        (ROW, 9, GiveUp(attempts=10)),
        (Failure(scope=Scope.ROW, code="x", text="x", permanent=True), 0, GiveUp(attempts=1)),
    ],
)
def test_a_failed_row_is_tried_again_or_given_up(failure, before, expected):
    assert decide_retry(failure, before, RELAY_BACKOFF) == expected


def test_failures_are_told_apart_before_producing():
    facts = TopicFacts(name="t", partitions=3, max_message_bytes=100)
    assert check_record(facts, wire_bytes=100, partition=2) is None
    assert check_record(facts, wire_bytes=101, partition=None).code == "too_large"
    assert check_record(facts, wire_bytes=1, partition=3).code == "no_such_partition"
    gone = Failure(scope=Scope.TOPIC, code="gone", text="gone")
    assert check_record(TopicFacts(name="t", failure=gone), wire_bytes=1, partition=None) is gone


# -- Circuit -----------------------------------------------------------------------------------------------
def test_the_circuit_keeps_its_beginning_and_probes_with_growing_waits():
    circuit = Circuit().opened(100.0, "down").opened(105.0, "other")
    assert (circuit.open_since, circuit.reason, circuit.may_probe(100.4), circuit.may_probe(100.5)) == (
        100.0, "down", False, True,
    )  # fmt: skip
    again = circuit.after_probe(100.5, answered=False)
    assert (again.open_since, again.probe_at) == (100.0, 101.5)
    assert not again.after_probe(102.0, answered=True).is_open


@pytest.mark.parametrize(
    ("age", "down", "expected"), [(None, True, False), (9, False, False), (11, False, True), (3, True, True)]
)
def test_a_stall_is_judged_by_the_oldest_unacknowledged_row(age, down, expected):
    assert is_stalled(age, stall_s=10, brokers_down=down, down_s=2) is expected


# -- Latencies ---------------------------------------------------------------------------------------------
@given(st.lists(st.floats(0, 3_000_000), min_size=1), st.sampled_from([0.5, 0.99]))
def test_a_quantile_is_never_below_the_true_one_and_at_most_a_bucket_above(latencies, q):
    buckets = [0] * SIZE
    for latency in latencies:
        buckets[bucket_of(latency)] += 1
    true = sorted(latencies)[max(0, -(-len(latencies) * q // 1).__int__() - 1)]
    assert true <= quantile_ms(buckets, q)
    assert quantile_ms(buckets, q) == EDGES_MS[bucket_of(true)]


def test_nothing_counted_has_no_quantile():
    assert quantile_ms([0] * SIZE, 0.5) is None


# -- Words -------------------------------------------------------------------------------------------------
def facts(**changes):
    base = {
        "unsent": CappedCount(value=120), "oldest_age_s": 3.0, "alive": 1, "silent_s": 0.0, "paused_by": None,
        "circuit_open_since": None, "failed_keys": 0, "held_topics": 0, "moving": True,
    }  # fmt: skip
    return Facts(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "moving: 120 rows wait"),
        ({"unsent": CappedCount(value=0)}, "caught up"),
        ({"alive": 0, "silent_s": 4.2}, "silent: no relay for 4 s, 120 rows wait"),
        ({"alive": 0, "silent_s": 1.0, "unsent": CappedCount(value=1)}, "handing over: 1 row waits"),
        ({"alive": 0, "silent_s": None}, "silent: no relay has ever run, 120 rows wait"),
        ({"paused_by": "ann", "unsent": CappedCount(value=0)}, "paused: by ann, nothing waits"),
        (
            {
                "circuit_open_since": datetime(2026, 1, 1, 10, 42, tzinfo=UTC),
                "unsent": CappedCount(value=10_000, capped=True),
            },
            "circuit open: Kafka not reachable since 10:42:00 UTC, at least 10,000 rows wait",
        ),
        ({"failed_keys": 1, "held_topics": 2}, "blocked: 1 key behind a failed row, 2 topics held; the rest goes on"),
        ({"moving": False, "oldest_age_s": 60.0}, "stuck: nothing is sent, 120 rows wait"),
    ],
)
def test_the_verdict_is_said_in_words(changes, words):
    verdict = judge_relay(facts(**changes), silent_after_s=3, old_after_s=10)
    assert ": ".join(filter(None, [verdict.word, verdict.reason])) == words


@pytest.mark.parametrize(
    ("changes", "own", "why"),
    [
        ({}, {}, "on its way"),
        ({}, {"kind": "late"}, "committed late, read in the next round"),
        ({}, {"shard_is_held": False}, "waiting for a relay to take its shard"),
        ({"alive": 0}, {}, "waiting for a relay: none is alive"),
        ({"paused_by": "ann"}, {}, "paused by ann"),
        ({}, {"hold_reason": "gone"}, "topic held: gone"),
        ({}, {"deferred": (True, True, "too large")}, "failed, a person must act: too large"),
        ({}, {"deferred": (True, False, "x")}, "will be tried again: x"),
        ({}, {"deferred": (False, False, "")}, "behind a failed row of its key"),
    ],
)
def test_each_waiting_row_says_why(changes, own, why):
    args = {"kind": "fresh", "shard_is_held": True, "hold_reason": None, "deferred": None, **own}
    assert explain_waiting(facts=facts(**changes), **args) == why
