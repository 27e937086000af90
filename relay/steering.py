"""What people do to the relay: pause and resume a topic or a key, try again now, skip a row.

Every act is one transaction that raises the revision first (relay/revision.py) and is obeyed by running relays with
their next beat. A runner writes rows of `relay_deferred` only as it read them, so an act that comes between wins.
"""

from typing import Any

from django.conf import settings
from django.db import connection, transaction

from relay.domain.acts import require_actor, require_key, require_reason
from relay.errors import AlreadyPaused, NotPaused, NotWaiting, TooManyPauses
from relay.keys import label_key
from relay.revision import raise_revision
from relay.signals import relay_changed
from relay.topics import get_topic
from relay.types import RelayPause, SkippedRow

_PAUSES = """
SELECT topic, key, paused_by, paused_at, reason FROM relay_pause ORDER BY paused_at DESC LIMIT %s
"""
_PAUSE_OF = """
SELECT topic, key, paused_by, paused_at, reason FROM relay_pause
WHERE topic = %(topic)s AND sha256(key) IS NOT DISTINCT FROM sha256(%(key)s::bytea)
"""
_PAUSE = """
INSERT INTO relay_pause (topic, key, paused_by, reason) VALUES (%(topic)s, %(key)s::bytea, %(actor)s, %(reason)s)
ON CONFLICT DO NOTHING
"""
_RESUME = """
DELETE FROM relay_pause WHERE topic = %(topic)s AND sha256(key) IS NOT DISTINCT FROM sha256(%(key)s::bytea)
"""
_RETRY = """
WITH due AS MATERIALIZED ({rows})
UPDATE relay_deferred d SET due_at = clock_timestamp(), failed = false, revision = %(revision)s,
    attempts = CASE WHEN d.failed THEN 0 ELSE d.attempts END
FROM due WHERE d.shard = due.shard AND d.position = due.position
"""
_RETRY_KEY = _RETRY.replace(
    "{rows}",
    """
    SELECT shard, position FROM relay_deferred
    WHERE topic = %(topic)s AND sha256(key) = sha256(%(key)s::bytea) ORDER BY position LIMIT 1
""",
)
_RETRY_KEYLESS = _RETRY.replace(
    "{rows}",
    """
    SELECT shard, position FROM relay_deferred
    WHERE topic = %(topic)s AND sha256(key) IS NULL ORDER BY position LIMIT %(most)s FOR UPDATE SKIP LOCKED
""",
)
# What waits after a failure is the head of its key; the rows behind it have neither attempts nor a time. A row that a
# runner writes at this moment is passed over: many rows in another order than a runner's could end in a deadlock.
_RETRY_TOPIC = _RETRY.replace(
    "{rows}",
    """
    SELECT shard, position FROM relay_deferred d
    WHERE topic = %(topic)s AND (failed OR due_at > clock_timestamp()) AND NOT EXISTS (
        SELECT 1 FROM relay_pause p WHERE p.topic = d.topic AND sha256(p.key) = sha256(d.key))
    ORDER BY position LIMIT %(most)s FOR UPDATE SKIP LOCKED
""",
)
_SKIP = """
WITH given_up AS (
    DELETE FROM relay_deferred WHERE position = %(position)s RETURNING *
)
INSERT INTO relay_skipped AS s (position, shard, topic, key, event_id, type, attempts, error, skipped_by, reason,
    revision)
SELECT g.position, g.shard, g.topic, g.key, g.event_id, o.type, g.attempts, g.error, %(actor)s, %(reason)s,
       %(revision)s
FROM given_up g JOIN relay_outbox o ON o.shard = g.shard AND o.position = g.position
RETURNING *
"""
_SKIPPED = "SELECT * FROM relay_skipped ORDER BY skipped_at DESC, position DESC LIMIT %s"
_IS_HELD = """
SELECT 1 FROM relay_deferred d JOIN relay_hold h ON h.shard = d.shard AND h.topic = d.topic
WHERE d.position = %s AND h.hw < d.position
"""


# -- Pauses ------------------------------------------------------------------------------------------------
@transaction.atomic
def pause_topic(topic: str, *, actor: str, reason: str) -> None:
    """Stop publishing one topic on every runner within a second; its rows wait in order, other topics go on.

    Raises:
        UnknownTopic, AlreadyPaused, TooManyPauses, BadReason: nothing was changed.
    """
    _pause(get_topic(topic).name, None, actor, reason)


@transaction.atomic
def resume_topic(topic: str, *, actor: str) -> None:
    """Publish the topic again, in order from where it was paused.

    Raises:
        UnknownTopic: it is neither paused nor declared. NotPaused, BadReason: nothing was changed.
    """
    require_actor(actor)
    if not _resume(topic, None):
        raise NotPaused(f"The topic {get_topic(topic).name} is not paused.")


@transaction.atomic
def pause_key(topic: str, key: bytes, *, actor: str, reason: str) -> None:
    """Stop publishing one key of a topic; its rows wait in order, also those that are yet to come.

    Raises:
        UnknownTopic, BadKey, AlreadyPaused, TooManyPauses, BadReason: nothing was changed.
    """
    spec = get_topic(topic)
    _pause(spec.name, require_key(key, spec.max_bytes), actor, reason)


@transaction.atomic
def resume_key(topic: str, key: bytes, *, actor: str) -> None:
    """Publish the key again, in order. A row of it that failed before still waits for a person.

    Raises:
        UnknownTopic: it is neither paused nor declared. NotPaused, BadReason: nothing was changed.
    """
    require_actor(actor)
    if not _resume(topic, key):
        raise NotPaused(f"This key of {get_topic(topic).name} is not paused.")


def list_pauses() -> list[RelayPause]:
    """Every paused topic and key, the newest first; at most `RELAY_PAUSES_MAX`."""
    with connection.cursor() as cursor:
        cursor.execute(_PAUSES, [settings.RELAY_PAUSES_MAX])
        return [_pause_view(row) for row in cursor.fetchall()]


def _pause(topic: str, key: bytes | None, actor: str, reason: str) -> None:
    require_actor(actor)
    require_reason(reason)
    raise_revision()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_pause")
        if cursor.fetchone()[0] >= settings.RELAY_PAUSES_MAX:
            raise TooManyPauses(
                f"{settings.RELAY_PAUSES_MAX:,} topics and keys are paused already. Resume some, or pause the topic."
            )
        cursor.execute(_PAUSE, {"topic": topic, "key": key, "actor": actor, "reason": reason})
        if not cursor.rowcount:
            raise AlreadyPaused(_already_paused_words(topic, key))
    _announce()


def _resume(topic: str, key: bytes | None) -> bool:
    raise_revision()
    with connection.cursor() as cursor:
        cursor.execute(_RESUME, {"topic": topic, "key": key})
        is_resumed = bool(cursor.rowcount)
    _announce()
    return is_resumed


def _already_paused_words(topic: str, key: bytes | None) -> str:
    what = f"The topic {topic}" if key is None else f"This key of {topic}"
    pause = _find_pause(topic, key)
    return f"{what} is paused already, by {pause.paused_by}: {pause.reason}" if pause else f"{what} is paused already."


def _find_pause(topic: str, key: bytes | None) -> RelayPause | None:
    with connection.cursor() as cursor:
        cursor.execute(_PAUSE_OF, {"topic": topic, "key": key})
        row = cursor.fetchone()
    return _pause_view(row) if row else None


def _pause_view(row: tuple[Any, ...]) -> RelayPause:
    topic, stored, paused_by, paused_at, reason = row
    key = None if stored is None else bytes(stored)
    return RelayPause(
        topic=topic,
        key=key,
        key_label=None if key is None else label_key(key),
        paused_by=paused_by,
        paused_at=paused_at,
        reason=reason,
    )


# -- Rows that wait ----------------------------------------------------------------------------------------
@transaction.atomic
def retry_now(topic: str, key: bytes | None, *, actor: str) -> int:
    """Try the first waiting row of a key now, a failed one with all its attempts again; how many rows were made due.

    The rows behind it follow in order as soon as it is sent. Rows without a key (None) wait alone: all of the topic's
    are made due, at most `RELAY_RETRY_TOPIC_ROWS`.

    Raises:
        NotWaiting: nothing of the key waits after a failure, or the key is paused. BadReason: nobody is named.
    """
    require_actor(actor)
    revision = raise_revision()
    pause = None if key is None else _find_pause(topic, key)
    if pause is not None:
        raise NotWaiting(f"This key of {topic} is paused by {pause.paused_by}: resume it instead.")
    statement = _RETRY_KEYLESS if key is None else _RETRY_KEY
    most = settings.RELAY_RETRY_TOPIC_ROWS
    with connection.cursor() as cursor:
        cursor.execute(statement, {"topic": topic, "key": key, "revision": revision, "most": most})
        due = int(cursor.rowcount)
    if not due:
        raise NotWaiting(f"Nothing of this key of {topic} waits after a failure: it was sent or skipped meanwhile.")
    _announce()
    return due


@transaction.atomic
def retry_topic_now(topic: str, *, actor: str) -> int:
    """Try what waits after a failure on a topic now, key by key; how many rows were made due, 0 = nothing waits.

    At most `RELAY_RETRY_TOPIC_ROWS` at a time, the oldest first; call it again for the rest. Paused keys stay paused.

    Raises:
        BadReason: nobody is named.
    """
    require_actor(actor)
    params: dict[str, Any] = {"topic": topic, "revision": raise_revision(), "most": settings.RELAY_RETRY_TOPIC_ROWS}
    with connection.cursor() as cursor:
        cursor.execute(_RETRY_TOPIC, params)
        due = int(cursor.rowcount)
    _announce()
    return due


@transaction.atomic
def skip_row(position: int, *, actor: str, reason: str) -> SkippedRow:
    """Give up one row that was set aside: it is never published, and the rows behind it go on in order.

    Recorded in `relay_skipped` in the same transaction. A row that is being tried at this moment may still arrive;
    the record then says so (`sent_anyway`).

    Raises:
        NotWaiting: the row was not set aside, or its topic is held there. BadReason: nothing was changed.
    """
    require_actor(actor)
    require_reason(reason)
    params: dict[str, Any] = {"position": position, "actor": actor, "reason": reason, "revision": raise_revision()}
    with connection.cursor() as cursor:
        cursor.execute(_IS_HELD, [position])
        if cursor.fetchone() is not None:  # the hold's reader would meet the row again
            raise NotWaiting(
                f"The topic of row {position} is held, so nothing of it is tried. Skip it once it resumes."
            )
        cursor.execute(_SKIP, params)
        row = cursor.fetchone()
    if row is None:
        raise NotWaiting(
            f"Row {position} is not set aside: it was sent or skipped meanwhile, or it waits for another reason. Only "
            "a row that is deferred or failed can be skipped."
        )
    _announce()
    return _skipped_view(row)


def list_skipped(limit: int) -> list[SkippedRow]:
    """The rows that people gave up last, newest first."""
    with connection.cursor() as cursor:
        cursor.execute(_SKIPPED, [limit])
        return [_skipped_view(row) for row in cursor.fetchall()]


def _skipped_view(row: tuple[Any, ...]) -> SkippedRow:
    position, _, topic, key, event_id, event_type, attempts, error, by, reason, at, _, sent_anyway = row
    return SkippedRow(
        position=position,
        event_id=event_id,
        topic=topic,
        key_label=label_key(None if key is None else bytes(key)),
        type=event_type,
        attempts=attempts,
        error=error,
        skipped_by=by,
        skipped_at=at,
        reason=reason,
        sent_anyway=sent_anyway,
    )


def _announce() -> None:
    transaction.on_commit(lambda: relay_changed.send(sender=None), robust=True)
