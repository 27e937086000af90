"""One run of the checker: write while relays are killed, wait until drained, read the topic from its begin, judge."""

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from django.db import Error as DatabaseError
from django.db import connection

from relay.check.judge import Record, Verdict, judge
from relay.check.relays import Relays
from relay.check.worktable import WorkTable, last_position, read_row, who_paused
from relay.check.writers import HEADER, Writers
from relay.errors import RelayError
from relay.kafka.raw import read_whole_topic
from relay.kafka.topics import create_missing_topics, delete_topic, is_topic
from relay.topics import declare_topic
from relay.types import ConsumerRecord, TopicSpec

LOOK_EVERY_S = 0.1
TELL_EVERY_S = 5.0
PARTITIONS = 6

Tell = Callable[[str], None]


class CheckNotPossible(RelayError):
    """The check cannot begin as asked; the text says what to change. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. `relays` 0 = the installation's own relays do the work."""

    topic: str | None
    rows: int
    keys: int
    writers: int
    relays: int
    kills: int
    seed: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run counted; `faults` empty = every promise was kept."""

    plan: Plan
    topic: str
    verdict: Verdict
    kills: int
    rolled_back: int
    savepoints_rolled_back: int
    writer_errors: int
    writing_s: float
    total_s: float
    faults: list[str]

    def as_dict(self) -> dict[str, object]:
        """The report as one flat object."""
        return {
            "ok": not self.faults,
            "faults": self.faults,
            **asdict(self.verdict),
            "rolled_back_transactions": self.rolled_back,
            "rolled_back_savepoints": self.savepoints_rolled_back,
            "writer_errors": self.writer_errors,
            **asdict(self.plan),
            "topic": self.topic,
            "kills": self.kills,
            "writing_s": round(self.writing_s, 1),
            "total_s": round(self.total_s, 1),
        }


def run_check(plan: Plan, tell: Tell) -> Report:
    """Run the check; blocks for up to `plan.timeout_s` and the time to read the topic.

    Cleans up after itself: the work schema, the runners' and processes' rows of killed relays and, when all is well,
    the topic it made. The rows that it published stay in the outbox until its retention is over: the log is
    append-only.

    Raises:
        CheckNotPossible: the relay is paused, or the topic does not exist.
        RelayError: the topic cannot be made or read.
    """
    if paused_by := who_paused():
        raise CheckNotPossible(f"The relay is paused by {paused_by}, so nothing would be published. Resume it first.")
    table = WorkTable(run=uuid4().hex[:8], topic=_topic(plan), first=last_position())
    folder = Path(tempfile.mkdtemp(prefix="check-relay-"))
    tell(f"run {table.run}: topic {table.topic}, work schema {table.schema}, relay logs in {folder}")
    try:
        table.create(plan.keys)
        report = _Run(plan, table, folder, tell).run()
    finally:
        _clean(table)
    if not report.faults:
        shutil.rmtree(folder)
        if plan.topic is None:
            delete_topic(table.topic)
    return report


def _topic(plan: Plan) -> str:
    """The topic that is published to; one of its own is made when none is named."""
    name = plan.topic or f"signalbox-check-{uuid4().hex[:8]}"
    if plan.topic is not None and not is_topic(name):
        raise CheckNotPossible(
            f"The topic {name!r} does not exist on the broker. Create it, or leave --topic out: the check makes one."
        )
    spec = declare_topic(TopicSpec(name=name, partitions=PARTITIONS))
    if plan.topic is None:
        create_missing_topics([spec])
    return name


class _Run:
    def __init__(self, plan: Plan, table: WorkTable, folder: Path, tell: Tell) -> None:
        self._plan = plan
        self._table = table
        self._tell = tell
        self._rng = random.Random(plan.seed)  # noqa: S311 - a schedule, no secret
        self._began = time.monotonic()
        self._relays = Relays(table.run, plan.relays, folder)
        self._writers = Writers(table, rows=plan.rows, keys=plan.keys, writers=plan.writers, seed=plan.seed)
        self._next_kill = 0.0
        self._plan_kill()
        self._writing_s = 0.0

    def run(self) -> Report:
        try:
            self._writers.start()
            is_drained = self._watch()
        finally:
            self._writers.stop()
            self._relays.stop()
        self._tell("reading the topic from its begin")
        verdict = judge(self._table.read_written(), self._table.read_rows(), _read_records(self._table))
        return self._report(verdict, is_drained=is_drained)

    def _watch(self) -> bool:
        """Kill, tell and wait until everything is written, killed and drained; False = the time is over."""
        deadline = self._began + self._plan.timeout_s
        tell_at = self._began
        acknowledged = 0
        while time.monotonic() < deadline:
            self._relays.look()
            try:
                acknowledged = self._table.count_acknowledged()
                self._kill_if_due(acknowledged)
                if self._is_over():
                    return True
            except DatabaseError as error:  # it may restart meanwhile: relays and writers reconnect, too
                self._tell(f"the database is away: {type(error).__name__}")
                connection.close()
            if time.monotonic() >= tell_at:
                self._tell_progress(acknowledged)
                tell_at += TELL_EVERY_S
            time.sleep(LOOK_EVERY_S)
        return False

    def _is_over(self) -> bool:
        if self._writers.is_done and not self._writing_s:
            self._writing_s = time.monotonic() - self._began
        return self._writers.is_done and self._relays.kills >= self._plan.kills and self._table.is_drained()

    def _kill_if_due(self, acknowledged: int) -> None:
        """Kill by what Kafka acknowledged, so that kills fall into the publishing and not beside it."""
        if self._relays.kills < self._plan.kills and acknowledged >= self._next_kill:
            self._relays.kill_one(self._rng)
            self._plan_kill()

    def _plan_kill(self) -> None:
        """Plan the next kill at random within its even share of the run; writers stay at most two shares ahead."""
        share = self._plan.rows / (self._plan.kills + 1)
        self._next_kill = share * (self._relays.kills + self._rng.random())
        self._writers.budget.allow(share * (self._relays.kills + 2))

    def _tell_progress(self, acknowledged: int) -> None:
        budget = self._writers.budget
        self._tell(
            f"{time.monotonic() - self._began:5.0f} s: written {budget.written:,} of {self._plan.rows:,}, "
            f"acknowledged {acknowledged:,} with repeats, kills {self._relays.kills} of {self._plan.kills}"
            + (f"; writer errors {budget.errors}, the last: {budget.last_error}" if budget.errors else "")
        )

    def _report(self, verdict: Verdict, *, is_drained: bool) -> Report:
        faults = verdict.faults()
        if not is_drained:
            faults.insert(0, f"not drained within {self._plan.timeout_s:.0f} s: see the Relay page for what waits")
        budget = self._writers.budget
        return Report(
            plan=self._plan,
            topic=self._table.topic,
            verdict=verdict,
            kills=self._relays.kills,
            rolled_back=budget.rolled_back,
            savepoints_rolled_back=budget.undone,
            writer_errors=budget.errors,
            writing_s=self._writing_s,
            total_s=time.monotonic() - self._began,
            faults=faults,
        )


def _read_records(table: WorkTable) -> Iterator[Record]:
    """The records of this run; others in the topic are none of its business."""
    for record in read_whole_topic(table.topic):
        headers = dict(record.headers or ())
        if headers.get(HEADER) == table.run.encode():
            yield _record(table, record, headers.get("event-id"))


def _record(table: WorkTable, record: ConsumerRecord, event_id: bytes | None) -> Record:
    return Record(
        partition=record.place.partition,
        offset=record.offset,
        event_id=(event_id or b"").decode(errors="replace"),
        row=read_row(table.run, record.key, record.value),
    )


def _clean(table: WorkTable) -> None:
    """Remove the schema, and the rows that killed relays could not remove themselves."""
    table.drop()
    with connection.cursor() as cursor:
        for name in ("relay_runner", "relay_process"):
            cursor.execute(f"DELETE FROM {name} WHERE name LIKE %s", [f"check-{table.run}-%"])  # noqa: S608
