"""The smoke run inside its stack: publish, kill, wait, read, count. `manage.py smoke` starts the stack around it."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from uuid import UUID

import structlog
from django.db.models import Count as CountOf

from console.demo.models import Effect, SmokeEvent
from console.demo.smoke.counting import Applied, Count, Published, Record, count_outcomes
from console.demo.smoke.names import GROUP, TOPIC
from console.demo.smoke.publishing import Publishers
from console.demo.smoke.stack import CONSUMERS, RELAYS
from console.stack.supervisor import SupervisorClient
from dlq.facade import get_dlq_status, list_dead_letters
from dlq.types import DeadLetterFilter
from relay.facade import read_whole_topic

log = structlog.get_logger(__name__)

EVENTS = 5_000
KEYS = 200
# At these shares of the run a relay (of what is published) or a consumer (of what is applied) is killed.
RELAY_KILLS_AT = (0.15, 0.35, 0.55, 0.75)
CONSUMER_KILLS_AT = (0.1, 0.4)
LOOK_EVERY_S = 0.05
SETTLE_WITHIN_S = 100
DEAD_LETTER_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run found, and what was done to it."""

    count: Count
    rolled_back: int
    relay_kills: int
    consumer_kills: int
    settled: bool

    def faults(self) -> list[str]:
        """Say in words why the run does not pass; empty = it passes."""
        found = self.count.faults(expected=EVENTS)
        if not self.settled:
            found.append(f"not every event was applied or parked within {SETTLE_WITHIN_S} s")
        if self.relay_kills < len(RELAY_KILLS_AT) or self.consumer_kills < len(CONSUMER_KILLS_AT):
            found.append(f"only {self.relay_kills} relays and {self.consumer_kills} consumers were killed")
        if not self.rolled_back:
            found.append("nothing was rolled back")
        return found

    def line(self, seconds: float) -> dict[str, object]:
        """What is printed as JSON."""
        counted = {name: value for name, value in asdict(self.count).items() if name != "delivered_twice"}
        return {
            **counted,
            "seconds": round(seconds, 1),
            "rolled_back": self.rolled_back,
            "delivered_twice": self.count.delivered_twice,
            "relay_kills": self.relay_kills,
            "consumer_kills": self.consumer_kills,
        }


class Killer:
    """Kill -9 a program when a share of the work is done; supervisor starts it again."""

    def __init__(self, supervisor: SupervisorClient, names: tuple[str, ...], shares: tuple[float, ...]) -> None:
        self.kills = 0
        self._supervisor = supervisor
        self._names = names
        self._shares = shares

    def look(self, done_share: float) -> None:
        """Kill the next one when it is its turn and it runs; the names take turns."""
        if self.kills == len(self._shares) or done_share < self._shares[self.kills]:
            return
        name = self._names[self.kills % len(self._names)]
        for state in self._supervisor.list_states():
            if state.name == name and state.state == "RUNNING" and state.pid:
                os.kill(state.pid, signal.SIGKILL)
                self.kills += 1
                log.info("smoke.killed", program=name, at_share=round(done_share, 2))


def run_smoke(supervisor: SupervisorClient, *, seed: int) -> Report:
    """Publish `EVENTS` events over `KEYS` keys while relays and consumers are killed; then count.

    Returns when every event is applied or parked, or after `SETTLE_WITHIN_S` more seconds.
    """
    publishers = Publishers(total=EVENTS, keys=KEYS, seed=seed)
    relays = Killer(supervisor, RELAYS, RELAY_KILLS_AT)
    consumers = Killer(supervisor, CONSUMERS, CONSUMER_KILLS_AT)
    publishers.start()
    while not publishers.is_done():
        relays.look(publishers.committed / EVENTS)
        consumers.look(Effect.objects.count() / EVENTS)
        time.sleep(LOOK_EVERY_S)
    log.info("smoke.published", events=publishers.committed, rolled_back=len(publishers.rolled_back))
    settled = _wait_until_settled(consumers)
    return Report(
        count=_count(publishers.rolled_back),
        rolled_back=len(publishers.rolled_back),
        relay_kills=relays.kills,
        consumer_kills=consumers.kills,
        settled=settled,
    )


def _wait_until_settled(consumers: Killer) -> bool:
    deadline = time.monotonic() + SETTLE_WITHIN_S
    while time.monotonic() < deadline:
        applied = Effect.objects.aggregate(n=CountOf("event_id", distinct=True))["n"]
        if applied + get_dlq_status().open >= EVENTS:
            return True
        consumers.look(applied / EVENTS)
        time.sleep(LOOK_EVERY_S * 4)
    return False


def _count(rolled_back: list[UUID]) -> Count:
    return count_outcomes(
        published=[
            Published(event_id=event_id, key=key, sequence=sequence)
            for event_id, key, sequence in SmokeEvent.objects.values_list("event_id", "key_id", "sequence")
        ],
        rolled_back=rolled_back,
        records=list(_read_records()),
        applied=[
            Applied(event_id=event_id, key=key, sequence=sequence or 0, place=place)
            for event_id, key, sequence, place in Effect.objects.values_list("event_id", "key", "sequence", "pk")
        ],
        parked=list(_parked_ids()),
        duplicates_skipped=get_dlq_status().duplicates_total,
    )


def _read_records() -> Iterator[Record]:
    for record in read_whole_topic(TOPIC):
        (event_id,) = [value for name, value in record.headers or () if name == "event-id"]
        yield Record(
            event_id=UUID((event_id or b"").decode()),
            key=(record.key or b"").decode(),
            partition=record.place.partition,
            offset=record.offset,
        )


def _parked_ids() -> Iterator[UUID]:
    cursor: str | None = None
    while True:
        page = list_dead_letters(DeadLetterFilter(group=GROUP, topic=TOPIC), cursor=cursor, limit=DEAD_LETTER_PAGE)
        yield from (row.event_id for row in page.rows if row.event_id is not None)
        cursor = page.next_cursor
        if cursor is None:
            return
