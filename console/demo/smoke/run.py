"""The smoke run inside its stack: publish, kill, wait, read, count. `manage.py smoke` starts the stack around it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
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
from relay.facade import get_relay_status, read_whole_topic

log = structlog.get_logger(__name__)

EVENTS = 5_000
KEYS = 200
# A relay is killed KILL_SHARE past each of these shares of what is published, a consumer at these of what is applied.
RELAY_KILLS_AT = (0.2, 0.5)
CONSUMER_KILLS_AT = (0.1, 0.4)
GATE_SHARE = 0.1
KILL_SHARE = 0.05
GATE_WITHIN_S = 120
LOOK_EVERY_S = 0.05
SETTLE_WITHIN_S = 240
# What it may take on a quiet machine of two cores; a slower run still counts, and says that it was slow.
EXPECTED_WITHIN_S = 180
# After this nothing is waited for any more: a run that did not settle prints what it counted, too.
COUNT_AFTER_S = 360
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
            found.append("not every event was applied or parked in time")
        if self.relay_kills < len(RELAY_KILLS_AT) or self.consumer_kills < len(CONSUMER_KILLS_AT):
            found.append(f"only {self.relay_kills} relays and {self.consumer_kills} consumers were killed")
        if not self.rolled_back:
            found.append("nothing was rolled back")
        return found

    def warnings(self, seconds: float) -> list[str]:
        """Say in words what does not fail the run but should be looked at."""
        if seconds <= EXPECTED_WITHIN_S:
            return []
        return [f"Slow: {seconds:.0f} s, and {EXPECTED_WITHIN_S} s are expected on two quiet cores."]

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


class SmokeError(Exception):
    """The run could not be made as planned; the text says what did not happen."""


class Chaos:
    """Kill -9 relays and consumers while they work; supervisor starts them again."""

    def __init__(self, supervisor: SupervisorClient, publishers: Publishers) -> None:
        self.relay_kills = 0
        self.consumer_kills = 0
        self._supervisor = supervisor
        self._publishers = publishers

    def run(self) -> None:
        """Drive the publishers from gate to gate; at each gate the relay whose turn it is must hold shards first.

        Raises:
            SmokeError: a relay took no shards, or the publishers stood still, for `GATE_WITHIN_S`.
        """
        for share, name in zip(RELAY_KILLS_AT, cycle(RELAYS), strict=False):
            self._pass_gate(share, name)
        self._publishers.allow(1)
        self._wait(self._publishers.is_done, "every event is published")

    def kill_consumers(self, applied_share: float) -> None:
        """Kill the consumer whose turn it is when enough is applied."""
        if self.consumer_kills < len(CONSUMER_KILLS_AT) and applied_share >= CONSUMER_KILLS_AT[self.consumer_kills]:
            self.consumer_kills += self._kill(CONSUMERS[self.consumer_kills % len(CONSUMERS)])

    def _pass_gate(self, share: float, name: str) -> None:
        self._publishers.allow(share)
        self._wait(lambda: self._publishers.has_published(share), f"{share:.0%} of the events are published")
        self._wait(lambda: self._holds_shards(name), f"{name} holds shards")
        self._publishers.allow(share + GATE_SHARE)
        self._wait(lambda: self._publishers.has_published(share + KILL_SHARE), "events flow")
        self.relay_kills += self._kill(name)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + GATE_WITHIN_S
        while not condition():
            if time.monotonic() > deadline:
                raise SmokeError(f"not within {GATE_WITHIN_S} s: {what}")
            self.kill_consumers(Effect.objects.count() / EVENTS)
            time.sleep(LOOK_EVERY_S)

    def _holds_shards(self, name: str) -> bool:
        pid = self._pid(name)
        return any(runner.pid == pid and runner.shards for runner in get_relay_status().runners)

    def _kill(self, name: str) -> bool:
        pid = self._pid(name)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        log.info("smoke.killed", program=name, published=self._publishers.committed)
        return True

    def _pid(self, name: str) -> int | None:
        """The running program's process, None while it is down."""
        states = {state.name: state for state in self._supervisor.list_states()}
        return states[name].pid if states[name].state == "RUNNING" else None


def run_smoke(supervisor: SupervisorClient, *, seed: int, began: float) -> Report:
    """Publish `EVENTS` events over `KEYS` keys while relays and consumers are killed; then count.

    Returns when every event is applied or parked, after `SETTLE_WITHIN_S` more seconds, or `COUNT_AFTER_S` seconds
    after `began` (Unix time).

    Raises:
        SmokeError: it could not be made as planned.
    """
    publishers = Publishers(total=EVENTS, keys=KEYS, seed=seed)
    chaos = Chaos(supervisor, publishers)
    publishers.start()
    try:
        chaos.run()
    finally:
        publishers.stop()
    log.info("smoke.published", events=publishers.committed, rolled_back=len(publishers.rolled_back))
    left_s = began + COUNT_AFTER_S - time.time()
    settled = _wait_until_settled(chaos, within_s=min(SETTLE_WITHIN_S, left_s))
    return Report(
        count=_count(publishers.rolled_back),
        rolled_back=len(publishers.rolled_back),
        relay_kills=chaos.relay_kills,
        consumer_kills=chaos.consumer_kills,
        settled=settled,
    )


def _wait_until_settled(chaos: Chaos, *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        applied = Effect.objects.aggregate(n=CountOf("event_id", distinct=True))["n"]
        if applied + get_dlq_status().open >= EVENTS:
            return True
        chaos.kill_consumers(applied / EVENTS)
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
