"""How the relay reads: a round on its way beside other statements, and the cheap round of what nobody could see yet."""

from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from relay import store
from relay.domain.places import Place, Snapshot
from relay.store import Changes, Reader, Store, connect
from tests.relay_helpers import open_connection, skip_to_now

pytestmark = pytest.mark.django_db(transaction=True)

INSERT = "INSERT INTO relay_outbox (topic, key, type) VALUES ('t', 'k', 't') RETURNING position"


@pytest.fixture
def held():
    """A store that holds every shard, at the present."""
    write()  # in a database where nothing was written yet, the present is the first position
    skip_to_now()
    held = Store(connect("reading"), uuid4(), settings.RELAY_LEASE_S)
    held.register("reading", "process")
    held.claim(settings.RELAY_SHARDS)
    yield held
    held.unregister()
    held.close()
    skip_to_now()


def readers():
    with connection.cursor() as cursor:
        cursor.execute("SELECT shard, hw, snapshot::text FROM relay_checkpoint ORDER BY shard")
        places = [(shard, hw, Snapshot.parse(snapshot)) for shard, hw, snapshot in cursor.fetchall()]
    snapshot = places[0][2]
    return [
        Reader(n=n, shard=s, place=Place(hw=hw, snapshot=snapshot), quota=16) for n, (s, hw, _) in enumerate(places)
    ]


def write():
    with connection.cursor() as cursor:
        cursor.execute(INSERT)
        return cursor.fetchone()[0]


def positions(rows):
    return [row[1] for row in rows]


def test_a_round_on_its_way_is_heard_before_any_other_statement(held):
    first = write()
    held.begin_round(readers(), 100)
    now, *_ = held.beat(state="idle", leaving=False, sent_total=0, unacked=0, doorbell=False, circuit_s=None)
    held.settle(Changes(stat=(1, [0])))
    later = write()
    assert now is not None
    assert positions(held.end_round().fresh) == [first]
    assert positions(held.read_round(readers(), 100).fresh) == [first, later]


def test_a_round_that_nobody_took_is_forgotten_with_the_next(held):
    held.begin_round(readers(), 100)
    position = write()
    held.begin_round(readers(), 100)
    assert positions(held.end_round().fresh) == [position]
    with pytest.raises(RuntimeError, match="no round was begun"):
        held.end_round()


def test_the_cheap_round_finds_late_and_fresh_rows(held):
    with open_connection() as slow:
        late = slow.execute(INSERT).fetchone()[0]
        skip_to_now()
        at = readers()
        fresh = write()
        slow.commit()
    read = held.read_unseen(at, 100)
    assert (positions(read.late), positions(read.fresh)) == ([late], [fresh])


def test_the_cheap_round_gives_up_at_its_limit(held):
    at = readers()
    for _ in range(3):
        write()
    assert held.read_unseen(at, 3) is None
    assert len(held.read_unseen(at, 4).fresh) == 3


@pytest.mark.parametrize("names", [[], [None, "a", ""], ['"', "\\", "a,b", "{}", 'x\\"y', "NULL", " ", "é\n"]])
def test_names_reach_the_server_as_they_are(names):
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text[]", [store._array(names)])
        assert cursor.fetchone()[0] == names


@pytest.mark.parametrize("parks", [False, True])
def test_only_a_transaction_that_parks_waits_for_the_disk(held, monkeypatch, parks):
    seen = []
    monkeypatch.setattr(
        Store, "_write", lambda self, _: seen.append(self._conn.execute("SHOW synchronous_commit").fetchone()[0]) or []
    )
    held._conn.execute("SET synchronous_commit = on")
    held.settle(Changes(park=[object()] if parks else []))
    assert seen == ["on" if parks else "off"]
