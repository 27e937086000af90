"""The consumer's bookkeeping in a thread of its own, so that the thread that polls never waits for the database.

Errands are tried again with a pause while the database or the broker is away; none is lost while the process lives,
and each may run twice.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from queue import Empty, SimpleQueue

import structlog
from django.conf import settings
from django.db import connection

from dlq import losses, services
from dlq.copying import CopyTopics
from dlq.domain.start import Anew, Chosen, Decision, Lost, decide_start, describe_loss, describe_start
from dlq.signals import applied_changed, dead_letters_changed
from dlq.switch import get_switch
from dlq.types import LossChoice
from relay.facade import close_incident, open_incident, run_if_due
from relay.types import CommitPoint, ConsumerPort, IncidentKind, OffsetMissing, PartitionRef

log = structlog.get_logger(__name__)

_PAUSE_S = 1.0
_WAKE_S = 0.2


class Hints:
    """Marks from the workers that something changed; announced at most once per `HINT_EVERY_MS`."""

    def __init__(self) -> None:
        self.applied = threading.Event()
        self.parked = threading.Event()
        self._next_at = 0.0

    def announce(self) -> None:
        """Send what is due, always after a commit."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + settings.HINT_EVERY_MS / 1000
        for mark, signal in ((self.applied, applied_changed), (self.parked, dead_letters_changed)):
            if mark.is_set():
                mark.clear()
                signal.send_robust(sender=Hints)


class Clerk(threading.Thread):
    """Decides where partitions start, remembers positions, opens and closes data-loss incidents, sends hints."""

    def __init__(self, group: str, name: str, consumer: ConsumerPort) -> None:
        super().__init__(name="clerk", daemon=True)
        self.hints = Hints()
        # Why the group is to rest ("" = it is not), and that this was looked at once.
        self.stopped_words = ""
        self.looked = threading.Event()
        self._next_look_at = 0.0
        self.decisions: SimpleQueue[tuple[OffsetMissing, Decision | Anew | Chosen]] = SimpleQueue()
        self._group = group
        self._process = name
        self._consumer = consumer
        self._errands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._positions: dict[PartitionRef, int] = {}
        self._stopped: set[PartitionRef] = set()
        self._put_right: set[PartitionRef] = set()
        # The topics that are read, by the broker's id of each; "" = not asked since the assignment.
        self._ours: set[PartitionRef] = set()
        self._topic_ids: dict[str, str] = {}
        self._anew: set[PartitionRef] = set()
        self._next_check_at = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._next_sweep_at = 0.0
        self._copies = CopyTopics(group)

    # -- Asked by the owner --
    def decide(self, missing: OffsetMissing) -> None:
        """Find out where the partition starts; the answer comes in `decisions`."""
        self._errands.put(lambda: self._decide(missing))

    def note_committed(self, points: Mapping[PartitionRef, CommitPoint]) -> None:
        """Remember positions that Kafka took; only the last of each partition is written."""
        with self._lock:
            taken = {place: point.offset for place, point in points.items() if place not in self._anew}
            self._positions.update(taken)

    def note_assigned(self, places: Collection[PartitionRef]) -> None:
        """A new assignment: a partition that moves on in it has been put right."""
        with self._lock:
            self._stopped.difference_update(places)
            self._ours.update(places)
            self._topic_ids.update({place.topic: "" for place in places})

    def note_let_go(self, places: Collection[PartitionRef]) -> None:
        """They are no longer ours."""
        with self._lock:
            self._ours.difference_update(places)
            self._anew.difference_update(places)

    def note_begun_anew(self, place: PartitionRef) -> None:
        """The owner reads it from the beginning now: what is committed from here on is of the new topic."""
        with self._lock:
            self._anew.discard(place)
            self._stopped.discard(place)

    def end(self, timeout_s: float) -> None:
        """Finish what can be finished at once, then end."""
        self._ended.set()
        self.join(timeout_s)

    # -- The thread --
    def run(self) -> None:
        """Do errands until ended."""
        try:
            while not self._ended.is_set():
                self._turn()
            self._try(self._write_positions)
            self.hints.announce()
        finally:
            connection.close()

    def _turn(self) -> None:
        try:
            errand = self._errands.get(timeout=_WAKE_S)
        except Empty:
            errand = None
        if errand is not None and not self._try(errand):
            self._errands.put(errand)
        self._try(self._look_at_orders)
        if self._try(self._check_topics):
            self._try(self._write_positions)
        self._try(self._copies.look_if_due)
        self._try(self._sweep)
        self.hints.announce()

    def _try(self, errand: Callable[[], None]) -> bool:
        try:
            errand()
        except Exception as error:  # noqa: BLE001 - the loop's edge: logged, and tried again
            log.warning("clerk.errand_failed", group=self._group, error=type(error).__name__)
            connection.close()
            self._ended.wait(_PAUSE_S)
            return False
        return True

    def _look_at_orders(self) -> None:
        """What people want of this group: that it rests, or where it goes on after a loss."""
        if time.monotonic() < self._next_look_at:
            return
        switch = get_switch(self._group)
        self.stopped_words = f"stopped by {switch.set_by}: {switch.reason}" if switch and switch.stopped else ""
        self.looked.set()
        with self._lock:
            stopped = set(self._stopped)
        for place, wanted in (losses.wanted_starts(self._group) if stopped else {}).items():
            if place in stopped:
                self._go_on(place, wanted)
        self._next_look_at = time.monotonic() + settings.CONSUMER_ORDERS_EVERY_S

    def _go_on(self, place: PartitionRef, wanted: losses.WantedStart) -> None:
        offset = self._consumer.end_offset(place)
        if wanted.choice is not LossChoice.END:
            first = self._consumer.first_offset(place)
            if wanted.offset is not None and wanted.offset < first:
                losses.withdraw_choice(self._group, place, first)
                return
            offset = first if wanted.offset is None else min(wanted.offset, offset)
        log.info("consumer.goes_on_after_loss", group=self._group, partition=str(place), choice=wanted.choice.value)
        with self._lock:
            self._stopped.discard(place)
        self.decisions.put((OffsetMissing(place=place, offset=None), Chosen(offset=offset)))

    def _decide(self, missing: OffsetMissing) -> None:
        place = missing.place
        topic_id = self._consumer.topic_id(place.topic)
        decision = decide_start(
            committed=missing.offset,
            remembered=services.remembered_position(self._group, place, topic_id),
            first=self._consumer.first_offset(place),
        )
        log.info("consumer.start", group=self._group, partition=str(place), decided=describe_start(decision))
        if isinstance(decision, Lost):
            self._report_loss(place, topic_id, decision)
        self.decisions.put((missing, decision))
        if isinstance(decision, Lost):
            with self._lock:  # after the decision: a choice is looked up only once the owner knows of the stop
                self._stopped.add(place)

    def _report_loss(self, place: PartitionRef, topic_id: str | None, lost: Lost) -> None:
        with self._lock:
            self._put_right.discard(place)
        loss_id = losses.report_loss(self._group, place, topic_id, lost)
        open_incident(
            IncidentKind.DATA_LOSS,
            self._cause(place),
            title=f"{self._group} stopped on {place}: {describe_loss(lost)}",
            meaning="Kafka no longer has the records that this group was to read next. The partition is stopped so"
            " that nothing is skipped unseen; the group's other partitions go on.",
            action=f"Open it, see what is lost and what is kept, and choose where {self._group} goes on.",
            link=f"/lag/data-loss/{loss_id}/",
        )

    def _check_topics(self) -> None:
        """Notice a topic that was made anew: the client would go on at the old offset, past records never read."""
        with self._lock:
            topics = {place.topic for place in self._ours}
            unasked = {topic for topic in topics if self._topic_ids.get(topic) == ""}
        is_due = time.monotonic() >= self._next_check_at
        if is_due:
            self._next_check_at = time.monotonic() + settings.CONSUMER_TOPIC_CHECK_EVERY_S
        for topic in topics if is_due else unasked:
            self._check_topic(topic)

    def _check_topic(self, topic: str) -> None:
        topic_id = self._consumer.ask_topic_id(topic)
        if topic_id is None:  # gone for now, or a broker that knows no ids
            with self._lock:
                if self._topic_ids.get(topic) == "":
                    del self._topic_ids[topic]
            return
        remembered = services.remembered_topic_ids(self._group, topic)
        with self._lock:
            read = self._topic_ids.get(topic)
            self._topic_ids[topic] = topic_id
            ours = [place for place in self._ours if place.topic == topic and place not in self._anew]
            anew = [place for place in ours if (read or remembered.get(place.partition) or topic_id) != topic_id]
            self._anew.update(anew)
            for place in anew:
                self._positions.pop(place, None)
        for place in anew:
            log.warning("consumer.topic_made_anew", group=self._group, partition=str(place))
            self.decisions.put((OffsetMissing(place=place, offset=None), Anew()))

    def _write_positions(self) -> None:
        with self._lock:
            positions = dict(self._positions)
        for place, offset in positions.items():
            services.remember_position(self._group, place, self._consumer.topic_id(place.topic), offset)
            self._close_loss(place, offset)
            with self._lock:
                if self._positions.get(place) == offset:
                    del self._positions[place]

    def _close_loss(self, place: PartitionRef, offset: int) -> None:
        """Close the partition's incident at its first step after an assignment that did not stop it."""
        with self._lock:
            if place in self._stopped or place in self._put_right:
                return
        losses.settle_loss(self._group, place, offset)
        close_incident(IncidentKind.DATA_LOSS, self._cause(place))
        self._put_right.add(place)

    def _sweep(self) -> None:
        if time.monotonic() < self._next_sweep_at:
            return
        self._next_sweep_at = time.monotonic() + settings.DLQ_BUCKET_SWEEP_EVERY_S
        run_if_due(
            "dlq.forget_buckets",
            every_s=settings.DLQ_BUCKET_SWEEP_EVERY_S,
            runner=self._process,
            job=services.forget_old_buckets,
        )

    def _cause(self, place: PartitionRef) -> str:
        return f"{self._group}/{place}"
