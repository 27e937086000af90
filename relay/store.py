"""The runner's statements: leases, rounds, and the one transaction that moves checkpoints.

A runner has a connection of its own, outside Django's, in autocommit; it works behind a transaction pooler (no
session state: what a statement needs is set with SET LOCAL).
"""

import json
import os
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import structlog
from django.db import connection as django_connection

from relay.bell import Bell, open_bell
from relay.domain.ownership import Peer
from relay.domain.places import Place, Snapshot
from relay.parking import park

log = structlog.get_logger(__name__)

CLAIM_LOCK = "SELECT pg_advisory_xact_lock(hashtext('relay.claim'))"

_REGISTER = """
INSERT INTO relay_runner (id, name, kind, pid, host, expires_at)
VALUES (%(id)s, %(name)s, %(kind)s, %(pid)s, %(host)s, clock_timestamp() + make_interval(secs => %(lease_s)s))
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, seen_at = clock_timestamp()
"""
_BEAT = """
UPDATE relay_runner SET seen_at = clock_timestamp(), state = %(state)s, leaving = %(leaving)s,
    sent_total = %(sent_total)s, unacked = %(unacked)s, doorbell = %(doorbell)s,
    expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s),
    circuit_open_since = CASE WHEN %(circuit_s)s::float IS NOT NULL
        THEN coalesce(circuit_open_since, clock_timestamp() - make_interval(secs => %(circuit_s)s::float)) END
WHERE id = %(id)s RETURNING extract(epoch FROM clock_timestamp())::float
"""
_PEERS = "SELECT id, leaving FROM relay_runner WHERE expires_at > clock_timestamp()"
_FREE = """
SELECT shard FROM relay_checkpoint c
WHERE holder IS NULL OR NOT EXISTS (
    SELECT 1 FROM relay_runner r WHERE r.id = c.holder AND r.expires_at > clock_timestamp())
ORDER BY shard LIMIT %s
"""
_CLAIM = """
UPDATE relay_checkpoint SET holder = %s, epoch = epoch + 1 WHERE shard = ANY(%s)
RETURNING shard, epoch, hw, snapshot::text, late_floor, late_cursor, late_snapshot::text,
    system_identifier <> (SELECT system_identifier FROM pg_control_system())
    OR pg_snapshot_xmax(coalesce(late_snapshot, snapshot)) > pg_snapshot_xmax(pg_current_snapshot())
"""
# After a restore old rows keep ids above the server's next one. What the old snapshot had not seen is set aside, to be
# published in order of its keys; everything else that looks unseen now was published: late rows lie above it.
_RESTORED_LATE = """
WITH place AS MATERIALIZED (
    SELECT shard, NULL::text AS topic, hw, snapshot, late_floor, late_cursor, late_snapshot
    FROM relay_checkpoint WHERE shard = ANY(%(shards)s)
    UNION ALL
    SELECT h.shard, h.topic, h.hw, h.snapshot, c.late_floor, h.late_cursor, h.late_snapshot
    FROM relay_hold h JOIN relay_checkpoint c ON c.shard = h.shard WHERE h.shard = ANY(%(shards)s)
), bound AS MATERIALIZED (
    SELECT min(pg_snapshot_xmax(snapshot)) AS min_xmax, max(hw) AS max_hw,
           ARRAY(SELECT DISTINCT pg_snapshot_xip(snapshot) FROM place) AS xips FROM place
), candidate AS MATERIALIZED (
    SELECT o.xid, o.shard, o.position FROM bound b CROSS JOIN LATERAL (
        SELECT xid, shard, position FROM relay_outbox r WHERE r.xid >= b.min_xmax AND r.position <= b.max_hw
        UNION ALL
        SELECT xid, shard, position FROM relay_outbox r
        WHERE r.xid = ANY(b.xips) AND r.xid < b.min_xmax AND r.position <= b.max_hw) o
)
INSERT INTO relay_deferred (shard, position, topic, key, event_id, due_at)
SELECT o.shard, o.position, o.topic, o.key, o.id, clock_timestamp()
FROM candidate k JOIN place p ON p.shard = k.shard AND k.position > p.late_floor AND k.position <= p.hw
    AND NOT pg_visible_in_snapshot(k.xid, p.snapshot)
    AND (k.position > p.late_cursor OR p.late_snapshot IS NULL OR NOT pg_visible_in_snapshot(k.xid, p.late_snapshot))
CROSS JOIN LATERAL (SELECT * FROM relay_outbox r WHERE r.shard = k.shard AND r.position = k.position OFFSET 0) o
WHERE p.topic = o.topic
   OR (p.topic IS NULL AND NOT EXISTS (SELECT 1 FROM relay_hold h WHERE h.shard = o.shard AND h.topic = o.topic))
ON CONFLICT DO NOTHING
"""
_RESTORED_FLOOR = """
SELECT coalesce(max(position), 0) FROM (
    SELECT position FROM relay_outbox WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
    UNION ALL
    SELECT position FROM relay_outbox WHERE xid = ANY(ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot())))) old
"""
_RESTORED_HOLDS = """
UPDATE relay_hold SET snapshot = pg_current_snapshot(), late_cursor = 0, late_snapshot = NULL WHERE shard = ANY(%s)
"""
_RESTORED_PLACES = """
UPDATE relay_checkpoint SET snapshot = pg_current_snapshot(), late_cursor = 0, late_snapshot = NULL,
    late_floor = greatest(late_floor, %s),
    system_identifier = (SELECT system_identifier FROM pg_control_system())
WHERE shard = ANY(%s) AND holder = %s
RETURNING shard, epoch, hw, snapshot::text, late_floor, late_cursor, late_snapshot::text
"""
_RESTORED_SEQUENCE = """
SELECT setval('relay_outbox_position', m.position)
FROM (SELECT greatest(max(hw), %s) AS position FROM relay_checkpoint) m, relay_outbox_position s
WHERE m.position > s.last_value
"""
_DEFERRED = """
SELECT shard, position, topic, key, event_id, attempts, failed, order_broken, error,
       extract(epoch FROM due_at - clock_timestamp())::float, revision
FROM relay_deferred WHERE shard = ANY(%s) ORDER BY position
"""
_AMENDED = """
SELECT shard, position, topic, key, event_id, attempts, failed, order_broken, error,
       extract(epoch FROM due_at - clock_timestamp())::float, revision
FROM relay_deferred WHERE revision > greatest(0, %s) AND shard = ANY(%s) ORDER BY position
"""
_SKIPPED = "SELECT shard, position, topic, key FROM relay_skipped WHERE revision > %s AND shard = ANY(%s)"
_PAUSES = "SELECT topic, key, paused_by, reason FROM relay_pause"
_POLICIES = """
SELECT DISTINCT ON (subject) subject, document::text FROM relay_policy WHERE scope = 'relay_topic'
ORDER BY subject, version DESC
"""
_REVISION = "SELECT revision FROM relay_revision"
_HOLDS = """
SELECT h.shard, h.topic, h.hw, h.snapshot::text, c.late_floor, h.late_cursor, h.late_snapshot::text, h.reason
FROM relay_hold h JOIN relay_checkpoint c ON c.shard = h.shard WHERE h.shard = ANY(%s)
"""
_RELEASE = "UPDATE relay_checkpoint SET holder = NULL WHERE shard = ANY(%s) AND holder = %s"
_CONTROL = "SELECT (SELECT paused_by FROM relay_control WHERE scope = 'all'), revision FROM relay_revision"

# Young partitions have no statistics yet: the plans must not depend on them, and are made once.
_BEGIN_ROUND = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SNAPSHOT = """
SELECT pg_current_snapshot()::text, set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)
"""
# As the record needs them: the id as text; milliseconds by way of float, whose error half a microsecond outweighs.
_COLUMNS = """o.position, o.shard, o.id::text, o.topic, o.key, o.partition, o.type,
       CASE WHEN o.headers = '[]' THEN NULL ELSE o.headers::text END, o.payload, o.content_type,
       floor(date_part('epoch', o.created_at) * 1000 + 0.0005)::bigint"""
_READERS = """
WITH p AS MATERIALIZED (
    SELECT * FROM unnest(%(n)s::int[], %(shard)s::int[], %(hw)s::bigint[], %(snapshot)s::pg_snapshot[],
        %(late_after)s::bigint[], %(late_snapshot)s::pg_snapshot[], %(quota)s::int[], %(topic)s::text[],
        %(cap)s::bigint[])
    AS p (n, shard, hw, snapshot, late_after, late_snapshot, quota, topic, cap))
"""
# Late rows: candidates from the index (xid, shard, position) alone, newest ids only, then the exact rule per reader.
_LATE = "".join(  # noqa: FLY002 - an f-string of SQL reads like one with values in it
    [
        _READERS,
        """, candidate AS MATERIALIZED (
    SELECT xid, shard, position FROM relay_outbox
    WHERE xid >= %(min_xmax)s::xid8 AND position > %(min_after)s AND position <= %(max_hw)s
    UNION ALL
    SELECT xid, shard, position FROM relay_outbox
    WHERE xid = ANY(%(xips)s::xid8[]) AND xid < %(min_xmax)s::xid8 AND position > %(min_after)s
      AND position <= %(max_hw)s
), late AS MATERIALIZED (
    SELECT p.n, c.shard, c.position FROM candidate c JOIN p ON p.shard = c.shard
    WHERE c.position > p.late_after AND c.position <= p.hw AND NOT pg_visible_in_snapshot(c.xid, p.snapshot)
      AND (p.late_snapshot IS NULL OR pg_visible_in_snapshot(c.xid, p.late_snapshot))
      AND (p.topic IS NULL OR EXISTS (
          SELECT 1 FROM relay_outbox o WHERE o.shard = c.shard AND o.position = c.position AND o.topic = p.topic))
    ORDER BY c.position LIMIT %(late_rows)s
)
SELECT late.n, """,
        _COLUMNS,
        """
FROM late CROSS JOIN LATERAL (
    SELECT * FROM relay_outbox r WHERE r.shard = late.shard AND r.position = late.position OFFSET 0) o
ORDER BY o.position
""",
    ]
)
_FRESH = "".join(  # noqa: FLY002 - an f-string of SQL reads like one with values in it
    [
        _READERS,
        "SELECT p.n, ",
        _COLUMNS,
        """
FROM p CROSS JOIN LATERAL (
    SELECT * FROM relay_outbox r
    WHERE r.shard = p.shard AND r.position > p.hw AND (p.cap IS NULL OR r.position <= p.cap)
      AND (p.topic IS NULL OR r.topic = p.topic)
    ORDER BY r.position LIMIT p.quota) o
""",
    ]
)
# What nobody who stood at this snapshot could see, of shards that had read everything else: an index range, not a look
# into each shard and partition.
_UNSEEN = "".join(  # noqa: FLY002 - an f-string of SQL reads like one with values in it
    [
        "SELECT ",
        _COLUMNS,
        """
FROM (
    SELECT * FROM relay_outbox
    WHERE xid >= %(xmax)s::xid8 AND position > %(above)s AND shard = ANY(%(shards)s::int[])
    UNION ALL
    SELECT * FROM relay_outbox
    WHERE xid = ANY(%(xips)s::xid8[]) AND xid < %(xmax)s::xid8 AND position > %(above)s
      AND shard = ANY(%(shards)s::int[])
    LIMIT %(rows)s
) o""",
    ]
)
_ROWS = "".join(  # noqa: FLY002 - an f-string of SQL reads like one with values in it
    [
        "SELECT 0, ",
        _COLUMNS,
        """ FROM unnest(%s::int[], %s::bigint[]) AS w (shard, position)
    CROSS JOIN LATERAL (
        SELECT * FROM relay_outbox r WHERE r.shard = w.shard AND r.position = w.position OFFSET 0) o
    ORDER BY o.position""",
    ]
)

# A place that a crash of the server takes back is a place from which rows go out again, in order (docs/adr/0110).
_NO_WAIT = "SET LOCAL synchronous_commit = off"
_MOVE = """
UPDATE relay_checkpoint c SET hw = v.hw, snapshot = v.snapshot, late_cursor = v.late_cursor,
    late_snapshot = v.late_snapshot,
    moved_at = CASE WHEN c.hw = v.hw THEN c.moved_at ELSE clock_timestamp() END
FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::pg_snapshot[], %s::bigint[], %s::pg_snapshot[])
     AS v (shard, epoch, hw, snapshot, late_cursor, late_snapshot)
WHERE c.shard = v.shard AND c.epoch = v.epoch AND c.holder = %s RETURNING c.shard
"""
_RANGES = """
INSERT INTO relay_range (topic, partition, from_position, to_position, from_offset, to_offset, sent,
    first_acked_at, last_acked_at)
SELECT topic, partition, from_position, to_position, from_offset, to_offset, sent,
       to_timestamp(first_acked), to_timestamp(last_acked)
FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::float[],
            %s::float[])
     AS r (topic, partition, from_position, to_position, from_offset, to_offset, sent, first_acked, last_acked)
"""
_DEFER = """
INSERT INTO relay_deferred (shard, position, topic, key, event_id, attempts, due_at, failed, order_broken, error)
SELECT shard, position, topic, key, event_id, attempts, clock_timestamp() + make_interval(secs => due_s), failed,
       order_broken, error
FROM unnest(%s::int[], %s::bigint[], %s::text[], %s::bytea[], %s::uuid[], %s::int[], %s::float[], %s::bool[],
            %s::bool[], %s::text[])
     AS v (shard, position, topic, key, event_id, attempts, due_s, failed, order_broken, error)
ON CONFLICT (shard, position) DO NOTHING
"""
# A person who retried or skipped the row meanwhile wins: then it has another revision, or is gone.
_AMEND = """
UPDATE relay_deferred d SET attempts = v.attempts, due_at = clock_timestamp() + make_interval(secs => v.due_s),
    failed = v.failed, order_broken = v.order_broken OR d.order_broken, error = v.error
FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::float[], %s::bool[], %s::bool[], %s::text[])
     AS v (shard, position, revision, attempts, due_s, failed, order_broken, error)
WHERE d.shard = v.shard AND d.position = v.position AND d.revision = v.revision
"""
_TAKE_OUT = "DELETE FROM relay_deferred WHERE shard = %s AND position = %s AND revision = %s"
_UNDEFER = """
DELETE FROM relay_deferred d USING unnest(%s::int[], %s::bigint[]) AS v (shard, position)
WHERE d.shard = v.shard AND d.position = v.position
"""
_SENT_ANYWAY = """
UPDATE relay_skipped s SET sent_anyway = true FROM unnest(%s::int[], %s::bigint[]) AS v (shard, position)
WHERE s.position = v.position AND s.shard = v.shard
"""
_HOLD = """
INSERT INTO relay_hold (shard, topic, hw, snapshot, late_cursor, late_snapshot, reason)
SELECT * FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::pg_snapshot[], %s::bigint[], %s::pg_snapshot[],
                     %s::text[])
ON CONFLICT (shard, topic) DO UPDATE SET hw = excluded.hw, snapshot = excluded.snapshot,
    late_cursor = excluded.late_cursor, late_snapshot = excluded.late_snapshot, reason = excluded.reason
"""
_UNHOLD = """
DELETE FROM relay_hold h USING unnest(%s::int[], %s::text[]) AS v (shard, topic)
WHERE h.shard = v.shard AND h.topic = v.topic
"""
_STAT = "INSERT INTO relay_stat (runner, sent, buckets) VALUES (%s, %s, %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A shard that this runner holds now, and where to go on.

    `is_restored`: its place is of another server, or of this one before a restore; see `Store.rebase()`.
    """

    shard: int
    epoch: int
    place: Place
    is_restored: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Deferral:
    """A row set aside; the head of its key (the lowest position) has the due time and the attempts.

    `revision`: the last act of a person on it that this runner knows. `parking`: it becomes a dead letter with the next
    settling. `skipped`: a person gave it up while it was in the air. `facts_from`: older facts of its topic count not.
    """

    shard: int
    position: int
    topic: str
    key: bytes | None
    event_id: UUID
    attempts: int = 0
    due_s: float | None = None
    failed: bool = False
    order_broken: bool = False
    error: str = ""
    due_mono: float = 0.0
    stored: bool = False
    in_flight: bool = False
    revision: int = 0
    permanent: bool = False
    parking: bool = False
    skipped: bool = False
    facts_from: float = 0.0

    def is_due(self, now: float) -> bool:
        """Tell whether it may be tried: it is in the database, nobody gave it up, and its time has come."""
        return self.stored and not self.failed and not self.parking and self.due_mono <= now


@dataclass(slots=True, kw_only=True)
class Hold:
    """A topic that waits on one shard. `place` is where its reader is, `final` what may be stored."""

    shard: int
    topic: str
    place: Place
    final: Place
    reason: str
    resuming: bool = False
    caught_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads in a round: a shard's own reader, or the reader of a held topic up to `cap`."""

    n: int
    shard: int
    place: Place
    quota: int
    topic: str | None = None
    cap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRead:
    """What one REPEATABLE READ read returned; rows are (reader number, columns...)."""

    snapshot: Snapshot
    late: Sequence[tuple[Any, ...]]
    fresh: Sequence[tuple[Any, ...]]


@dataclass(slots=True, kw_only=True)
class Changes:
    """What one settling transaction writes. `moves` are (shard, epoch, place); `park` are given up for good."""

    moves: list[tuple[int, int, Place]] = field(default_factory=list)
    ranges: list[tuple[str, int, int, int, int, int, int, float, float]] = field(default_factory=list)
    defer: list[Deferral] = field(default_factory=list)
    park: list[Deferral] = field(default_factory=list)
    undefer: list[tuple[int, int]] = field(default_factory=list)
    hold: list[Hold] = field(default_factory=list)
    unhold: list[tuple[int, str]] = field(default_factory=list)
    stat: tuple[int, list[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What people want now (pauses, policy documents by topic), and what they did to rows since a revision.

    `paused_topics` are topic -> who and why. `skipped` are (shard, position, topic, key).
    """

    revision: int
    paused_topics: Mapping[str, str]
    paused_keys: Collection[tuple[str, bytes]]
    policies: Mapping[str, Mapping[str, object]]
    amended: Sequence[Deferral] = ()
    skipped: Sequence[tuple[int, int, str, bytes | None]] = ()


class ShardsLostError(Exception):
    """Another runner has these shards: nothing of the transaction was written."""

    def __init__(self, shards: Iterable[int]) -> None:
        self.shards = frozenset(shards)
        super().__init__(f"shards {sorted(self.shards)} belong to another runner")


def connect(application_name: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection of the runner's own to Django's default database, in autocommit."""
    params = dict(django_connection.get_connection_params())
    for own in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(own, None)
    params["application_name"] = application_name[:60]
    return psycopg.connect(**params, autocommit=True)


class Store:
    """The statements of one runner on its connection. Every method raises psycopg.Error when the database is away."""

    def __init__(self, conn: psycopg.Connection[tuple[Any, ...]], runner: UUID, lease_s: float) -> None:
        self._conn = conn
        self._runner = runner
        self._lease_s = lease_s
        self._round: _RoundOnItsWay | None = None
        self._read: RoundRead | None = None

    def open_bell(self, name: str) -> Bell:
        """Open the doorbell beside this connection; see `relay.bell.open_bell()`."""
        return open_bell(name, self._conn)

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()

    def register(self, name: str, kind: str, *, replaces: Sequence[UUID] = ()) -> None:
        """Write the runner's row: its lease begins, and those of its former ids end."""
        row = {
            "id": self._runner,
            "name": name,
            "kind": kind,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "lease_s": self._lease_s,
        }
        with self._db.transaction():
            self._db.execute("DELETE FROM relay_runner WHERE id = ANY(%s)", [list(replaces)])
            self._db.execute(_REGISTER, row)

    def beat(
        self, *, state: str, leaving: bool, sent_total: int, unacked: int, doorbell: bool, circuit_s: float | None
    ) -> tuple[float | None, list[Peer], str | None, int]:
        """Extend the lease; return (database time or None when the row is gone, live runners, who paused, revision)."""
        with self._db.pipeline():
            beat = self._db.execute(
                _BEAT,
                {
                    "id": self._runner,
                    "lease_s": self._lease_s,
                    "state": state,
                    "leaving": leaving,
                    "sent_total": sent_total,
                    "unacked": unacked,
                    "doorbell": doorbell,
                    "circuit_s": circuit_s,
                },
            )
            peers = self._db.execute(_PEERS)
            control = self._db.execute(_CONTROL)
        now = beat.fetchone()
        paused_by, revision = control.fetchone() or (None, 0)
        return (
            now[0] if now else None,
            [Peer(id=i, leaving=leaving) for i, leaving in peers.fetchall()],
            paused_by,
            revision,
        )

    def load_orders(self, since: int, shards: Sequence[int]) -> Orders:
        """Read what people want now, and what they did since revision `since` to rows of the shards."""
        with self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            at = self._db.execute(_REVISION).fetchone()
            pauses = self._db.execute(_PAUSES).fetchall()
            policies = self._db.execute(_POLICIES).fetchall()
            amended = self._db.execute(_AMENDED, [since, list(shards)]).fetchall()
            skipped = self._db.execute(_SKIPPED, [since, list(shards)]).fetchall()
        return Orders(
            revision=at[0] if at else 0,
            paused_topics={topic: f"by {by}: {reason}" for topic, key, by, reason in pauses if key is None},
            paused_keys={(topic, key) for topic, key, *_ in pauses if key is not None},
            policies={topic: json.loads(document) for topic, document in policies},
            amended=[_deferral(row) for row in amended],
            skipped=[(shard, position, topic, key) for shard, position, topic, key in skipped],
        )

    def claim(self, limit: int) -> list[Claimed]:
        """Take up to `limit` shards that nobody alive holds; the epoch of each goes up by one."""
        with self._db.transaction():
            self._db.execute(CLAIM_LOCK)
            free = [shard for (shard,) in self._db.execute(_FREE, [limit]).fetchall()]
            rows = self._db.execute(_CLAIM, [self._runner, free]).fetchall() if free else []
        return [_claimed(row, is_restored=row[-1]) for row in sorted(rows)]

    def rebase(self, shards: Sequence[int]) -> tuple[list[Claimed], int]:
        """Carry places of a restored database over to this server's ids; how many unpublished rows were set aside.

        One transaction: rows that the old snapshots had not seen go to `relay_deferred`, due now; `late_floor` passes
        every row whose id this server has not given out; the present snapshot is stored. Crash-safe: until it commits,
        the next holder finds the shards restored as well.

        Raises:
            ShardsLostError: another runner took shards; nothing was written.
        """
        wanted = list(shards)
        with self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self._db.execute("SET LOCAL enable_seqscan = off")
            self._db.execute("SET LOCAL enable_bitmapscan = off")
            floor = self._db.execute(_RESTORED_FLOOR).fetchone()
            late = self._db.execute(_RESTORED_LATE, {"shards": wanted}).rowcount
            self._db.execute(_RESTORED_HOLDS, [wanted])
            self._db.execute(_RESTORED_SEQUENCE, floor)
            rows = self._db.execute(_RESTORED_PLACES, [*(floor or ()), wanted, self._runner]).fetchall()
            if lost := set(wanted) - {row[0] for row in rows}:
                raise ShardsLostError(lost)
        return [_claimed(row) for row in sorted(rows)], late

    def load_deferred(self, shards: Sequence[int]) -> list[Deferral]:
        """Every deferred row of the shards, by position; `due_s` is from now."""
        return [_deferral(row) for row in self._db.execute(_DEFERRED, [list(shards)]).fetchall()]

    def load_holds(self, shards: Sequence[int]) -> list[Hold]:
        """Every hold of the shards."""
        return [
            Hold(
                shard=shard,
                topic=topic,
                place=(place := _place(hw, snapshot, floor, cursor, late_snapshot)),
                final=place,
                reason=reason,
            )
            for shard, topic, hw, snapshot, floor, cursor, late_snapshot, reason in self._db.execute(
                _HOLDS, [list(shards)]
            ).fetchall()
        ]

    def release(self, shards: Sequence[int]) -> None:
        """Give shards up; those that another runner took meanwhile are left alone."""
        self._db.execute(_RELEASE, [list(shards), self._runner])

    def unregister(self) -> None:
        """Remove the runner's row: its lease ends now."""
        self._db.execute("DELETE FROM relay_runner WHERE id = %s", [self._runner])

    def read_round(self, readers: Sequence[Reader], late_rows: int) -> RoundRead:
        """Read late and fresh rows of all readers in one REPEATABLE READ transaction (one round trip)."""
        self.begin_round(readers, late_rows)
        return self.end_round()

    def begin_round(self, readers: Sequence[Reader], late_rows: int) -> None:
        """Send a round's statements and come back; the server works meanwhile. `end_round()` waits for the rows."""
        params = _literals(_reader_params(readers, late_rows))
        conn = self._db
        open_round = ExitStack()
        open_round.enter_context(conn.pipeline())
        self._round = _RoundOnItsWay(
            pipeline=open_round,
            begun=conn.execute(_BEGIN_ROUND),
            snapshot=conn.execute(_SNAPSHOT),
            late=_binary(conn, _LATE, params),
            fresh=_binary(conn, _FRESH, params),
            ended=conn.execute("COMMIT"),
        )

    def end_round(self) -> RoundRead:
        """Return what the round that was begun has read."""
        self._hear_round()
        read, self._read = self._read, None
        if read is None:
            raise RuntimeError("no round was begun")
        return read

    def read_unseen(self, readers: Sequence[Reader], most_rows: int) -> RoundRead | None:
        """Read a round of readers that stand at one snapshot and had read all that it saw; the cheap one.

        None = there are `most_rows` or more: read them by `read_round()`.
        """
        with self._db.pipeline():
            self._conn.execute(_BEGIN_ROUND)
            snapshot = self._conn.execute(_SNAPSHOT)
            rows = _binary(self._conn, _UNSEEN, _unseen_params(readers, most_rows))
            self._conn.execute("COMMIT")
        found = rows.fetchall()
        return None if len(found) >= most_rows else sort_unseen(readers, _snapshot(snapshot), found)

    def fetch_rows(self, wanted: Sequence[tuple[int, int]]) -> list[tuple[Any, ...]]:
        """Read rows by (shard, position)."""
        return _binary(self._db, _ROWS, [[s for s, _ in wanted], [p for _, p in wanted]]).fetchall()

    def settle(self, changes: Changes) -> list[Deferral]:
        """Write everything that became final, in one transaction, fenced by holder and epoch; which rows were parked.

        A row that was to be parked and is not among them was taken by a person meanwhile, or stays as failed.

        Raises:
            ShardsLostError: another runner took shards; nothing was written.
        """
        conn = self._db
        if changes.park:
            with conn.transaction():
                return self._write(changes)
        with conn.pipeline(), conn.transaction():
            conn.execute(_NO_WAIT)
            return self._write(changes)

    def _write(self, changes: Changes) -> list[Deferral]:
        self._move(changes.moves)
        if changes.ranges:
            self._conn.execute(_RANGES, _columns(changes.ranges))
        if changes.undefer:
            self._conn.execute(_UNDEFER, _columns(changes.undefer))
            self._conn.execute(_SENT_ANYWAY, _columns(changes.undefer))
        # By topic: two runners count what they park in the same rows, and must take them in the same order.
        parked = [d for d in sorted(changes.park, key=_park_order) if self._park(d)]
        self._defer([*changes.defer, *(d for d in changes.park if d.failed)])
        if changes.unhold:
            self._conn.execute(_UNHOLD, _columns(changes.unhold))
        if changes.hold:
            self._conn.execute(_HOLD, _columns([_hold_row(h) for h in changes.hold]))
        if changes.stat:
            self._conn.execute(_STAT, [self._runner, *changes.stat])
        return parked

    def _defer(self, deferred: Sequence[Deferral]) -> None:
        new = [_deferral_row(d) for d in deferred if not d.stored]
        known = [_amended_row(d) for d in deferred if d.stored]
        if new:
            self._db.execute(_DEFER, _columns(new))
        if known:
            self._db.execute(_AMEND, _columns(known))

    def _park(self, deferral: Deferral) -> bool:
        """Make a dead letter of a row; when that cannot be, it is left as failed."""
        try:
            with self._db.transaction():
                if deferral.stored and not self._db.execute(_TAKE_OUT, _taken(deferral)).rowcount:
                    return False  # a person retried or skipped it meanwhile
                rows = self.fetch_rows([(deferral.shard, deferral.position)])
                park(psycopg.ClientCursor(self._db), deferral, rows[0][1:])
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception as error:  # whatever another app's code raises must not stop the relay
            log.exception("relay.not_parked", topic=deferral.topic, position=deferral.position)
            deferral.failed, deferral.parking = True, False
            deferral.error = f"could not be parked ({type(error).__name__}); {deferral.error}"
            return False
        return True

    def _move(self, moves: Sequence[tuple[int, int, Place]]) -> None:
        if not moves:
            return
        rows = [
            (shard, epoch, p.hw, str(p.snapshot), p.late_cursor, str(p.late_snapshot) if p.late_snapshot else None)
            for shard, epoch, p in sorted(moves, key=lambda move: move[0])
        ]
        moved = {s for (s,) in self._db.execute(_MOVE, [*_columns(rows), self._runner]).fetchall()}
        if lost := {shard for shard, *_ in rows} - moved:
            raise ShardsLostError(lost)

    @property
    def _db(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The connection, once a round that is on its way has been heard to its end."""
        if self._round is not None:
            self._hear_round()
        return self._conn

    def _hear_round(self) -> None:
        on_its_way, self._round = self._round, None
        if on_its_way is not None:
            self._read = on_its_way.hear()


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundOnItsWay:
    """A round whose statements were sent; `pipeline` is open until it was heard."""

    pipeline: ExitStack
    begun: psycopg.Cursor[tuple[Any, ...]]
    snapshot: psycopg.Cursor[tuple[Any, ...]]
    late: psycopg.Cursor[tuple[Any, ...]]
    fresh: psycopg.Cursor[tuple[Any, ...]]
    ended: psycopg.Cursor[tuple[Any, ...]]

    def hear(self) -> RoundRead:
        """Wait for the rows."""
        self.pipeline.close()
        return RoundRead(snapshot=_snapshot(self.snapshot), late=self.late.fetchall(), fresh=self.fresh.fetchall())


def _binary(conn: psycopg.Connection[tuple[Any, ...]], query: str, params: Any) -> psycopg.Cursor[tuple[Any, ...]]:
    cursor = conn.cursor(binary=True)
    cursor.execute(query.encode(), params)
    return cursor


def _snapshot(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Snapshot:
    row = cursor.fetchone()
    return Snapshot.parse(row[0] if row else "")


def sort_unseen(readers: Sequence[Reader], snapshot: Snapshot, found: Iterable[tuple[Any, ...]]) -> RoundRead:
    """Tell late rows from fresh ones, by position; columns as `read_round()` has them."""
    of_shard = {r.shard: r for r in readers}
    late, fresh = [], []
    for columns in sorted(found):
        reader = of_shard[columns[1]]
        position, place = columns[0], reader.place
        if position > place.hw:
            fresh.append((reader.n, *columns))
        elif position > place.late_floor:
            late.append((reader.n, *columns))
    return RoundRead(snapshot=snapshot, late=late, fresh=fresh)


def _claimed(row: Sequence[Any], *, is_restored: bool = False) -> Claimed:
    shard, epoch, hw, snapshot, floor, cursor, late_snapshot = row[:7]
    return Claimed(
        shard=shard,
        epoch=epoch,
        place=_place(hw, snapshot, floor, cursor, late_snapshot),
        is_restored=is_restored,
    )


def _place(hw: int, snapshot: str, floor: int, cursor: int, late_snapshot: str | None) -> Place:
    return Place(
        hw=hw,
        snapshot=Snapshot.parse(snapshot),
        late_floor=floor,
        late_cursor=cursor,
        late_snapshot=Snapshot.parse(late_snapshot) if late_snapshot else None,
    )


def _reader_params(readers: Sequence[Reader], late_rows: int) -> dict[str, Any]:
    places = [r.place for r in readers]
    min_xmax = min(p.snapshot.xmax for p in places)
    return {
        "n": [r.n for r in readers],
        "shard": [r.shard for r in readers],
        "hw": [p.hw for p in places],
        "snapshot": [str(p.snapshot) for p in places],
        "late_after": [p.late_after for p in places],
        "late_snapshot": [str(p.late_snapshot) if p.late_snapshot else None for p in places],
        "quota": [r.quota for r in readers],
        "topic": [r.topic for r in readers],
        "cap": [r.cap for r in readers],
        "min_xmax": str(min_xmax),
        "xips": [str(x) for x in sorted({x for p in places for x in p.snapshot.xip if x < min_xmax})],
        "min_after": min(p.late_after for p in places),
        "max_hw": max(p.hw for p in places),
        "late_rows": late_rows,
    }


def _unseen_params(readers: Sequence[Reader], most_rows: int) -> dict[str, Any]:
    snapshot = readers[0].place.snapshot
    return _literals(
        {
            "shards": [r.shard for r in readers],
            "xmax": str(snapshot.xmax),
            "xips": [str(x) for x in snapshot.xip],
            "above": min(min(r.place.hw, r.place.late_floor) for r in readers),
            "rows": most_rows,
        }
    )


def _literals(params: Mapping[str, Any]) -> dict[str, Any]:
    """Write lists as array literals: the driver needs longer for 64 readers than the server for the rows."""
    return {name: _array(value) if isinstance(value, list) else value for name, value in params.items()}


def _array(values: Iterable[object]) -> str:
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _deferral_row(d: Deferral) -> tuple[Any, ...]:
    return (
        d.shard, d.position, d.topic, d.key, d.event_id, d.attempts, d.due_s, d.failed, d.order_broken, d.error[:500],
    )  # fmt: skip


def _park_order(d: Deferral) -> tuple[str, int]:
    return d.topic, d.position


def _amended_row(d: Deferral) -> tuple[Any, ...]:
    return d.shard, d.position, d.revision, d.attempts, d.due_s, d.failed, d.order_broken, d.error[:500]


def _taken(d: Deferral) -> tuple[int, int, int]:
    return d.shard, d.position, d.revision


def _deferral(row: Sequence[Any]) -> Deferral:
    shard, position, topic, key, event_id, attempts, failed, order_broken, error, due_s, revision = row
    return Deferral(
        shard=shard,
        position=position,
        topic=topic,
        key=key,
        event_id=event_id,
        attempts=attempts,
        failed=failed,
        order_broken=order_broken,
        error=error,
        due_s=due_s,
        stored=True,
        revision=revision,
    )


def _hold_row(h: Hold) -> tuple[Any, ...]:
    late = str(h.final.late_snapshot) if h.final.late_snapshot else None
    return h.shard, h.topic, h.final.hw, str(h.final.snapshot), h.final.late_cursor, late, h.reason[:500]
