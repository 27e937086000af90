"""The customers of the returns pipeline: several writers open claims, each in a transaction that also publishes."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from random import Random
from uuid import UUID

import structlog
from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from console.demo.models import Claim, Customer, Effect
from console.demo.pace import Pace
from console.demo.rates import DemoRates, read_rates
from console.demo.story import Person, describe_claim, foreign_record, invent_person, spoil
from console.demo.topics import CLAIMS
from relay.errors import RelayError
from relay.facade import produce_foreign_record, publish

log = structlog.get_logger(__name__)


class Act(StrEnum):
    """What a writer does in one go."""

    OPEN = "opened"
    OPEN_SLOW = "opened, slow"
    OPEN_POISON = "opened, poison"
    OPEN_TWICE = "opened, published twice"
    ROLL_BACK = "rolled back"
    SEND_MALFORMED = "malformed"


class _ChangedMindError(Exception):
    """A customer closes the window before the transaction commits."""


def choose_act(random: Random, rates: DemoRates) -> Act:
    """Draw the next act by the shares; what they leave over is an ordinary claim."""
    shares = {
        Act.OPEN_POISON: rates.poison,
        Act.SEND_MALFORMED: rates.malformed,
        Act.OPEN_TWICE: rates.duplicates,
        Act.OPEN_SLOW: rates.slow,
        Act.ROLL_BACK: rates.rollbacks,
    }
    drawn = random.random()
    for act, share in shares.items():
        drawn -= share
        if drawn < 0:
            return act
    return Act.OPEN


def choose_customer(random: Random, act: Act, seed: int) -> Person:
    """Draw a customer. What no handler can work with comes from the few of broken shops.

    A parked record holds its customer's later ones back; if it came from anybody, in the end all would be held.
    """
    if act in (Act.OPEN_POISON, Act.SEND_MALFORMED):
        return invent_person(settings.DEMO_CUSTOMERS + random.randrange(settings.DEMO_BROKEN_CUSTOMERS), seed)
    return invent_person(random.randrange(settings.DEMO_CUSTOMERS), seed)


def ensure_customers(seed: int) -> None:
    """Create the invented customers that are missing, those of broken shops last. Idempotent."""
    people = [invent_person(index, seed) for index in range(settings.DEMO_CUSTOMERS + settings.DEMO_BROKEN_CUSTOMERS)]
    Customer.objects.bulk_create([_customer(person) for person in people], ignore_conflicts=True)


def perform(act: Act, random: Random, person: Person) -> UUID | None:
    """Do one act for a customer; the id of the event that was published and committed, if any.

    Raises:
        RelayError: the event or the foreign record was not taken.
    """
    if act is Act.SEND_MALFORMED:
        value, headers = foreign_record(random)
        produce_foreign_record(CLAIMS, key=person.number.encode(), value=value, headers=headers)
        return None
    try:
        event_id, payload = _open_claim(act, random, person)
    except _ChangedMindError:
        return None
    if act is Act.OPEN_TWICE:
        _publish_again(person, payload, event_id)
    return event_id


def _open_claim(act: Act, random: Random, person: Person) -> tuple[UUID, Mapping[str, object]]:
    """One transaction: the customer's row lock, the claim, its event."""
    with transaction.atomic():
        customer = Customer.objects.select_for_update().get(pk=person.number)
        Customer.objects.filter(pk=customer.pk).update(claims_opened=F("claims_opened") + 1)
        number = f"R-{customer.number.removeprefix('C-')}-{customer.claims_opened + 1}"
        payload = describe_claim(random, person, number=number, is_slow=act is Act.OPEN_SLOW)
        _store_claim(customer, payload)
        sent = spoil(random, payload) if act is Act.OPEN_POISON else payload
        event = publish(CLAIMS, key=customer.number, type="claim.opened", payload=sent)
        if act is Act.ROLL_BACK:
            raise _ChangedMindError
    return event.id, sent


def _store_claim(customer: Customer, payload: dict[str, object]) -> None:
    claim = payload["claim"]
    assert isinstance(claim, dict)  # noqa: S101 - `describe_claim` made it
    Claim.objects.create(
        number=claim["number"], customer=customer, amount_cents=claim["amount_cents"], reason=claim["reason"]
    )


def _publish_again(person: Person, payload: Mapping[str, object], event_id: UUID) -> None:
    """Publish the same event id a second time, as a caller does that did not hear the first answer."""
    with transaction.atomic():
        publish(CLAIMS, key=person.number, type="claim.opened", payload=payload, event_id=event_id)


class Traffic:
    """The traffic process: `run()` until `stop()`. Rates are read again every second.

    A writer that loses the database waits and goes on; what it was writing was rolled back, so nothing is half done.
    """

    def __init__(self) -> None:
        self.rates = read_rates()
        self.done: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Let each writer finish its transaction, then end."""
        self._stopping.set()

    def describe(self) -> tuple[str, dict[str, str]]:
        """What the heartbeat says: (doing, facts)."""
        with self._lock:
            facts = {name: str(times) for name, times in sorted(self.done.items())}
        return f"{self.rates.rate:g} claims/s, {self.rates.poison:.1%} poison", facts

    def run(self) -> None:
        """Write until stopped."""
        ensure_customers(self.rates.seed)
        writers = [
            threading.Thread(target=self._write, args=[index], name=f"writer-{index}")
            for index in range(settings.DEMO_WRITERS)
        ]
        for writer in writers:
            writer.start()
        self._keep_house()
        for writer in writers:
            writer.join()

    def _keep_house(self) -> None:
        purge_at = time.monotonic()
        while not self._stopping.wait(settings.DEMO_RATES_EVERY_S):
            try:
                self._follow_rates()
                if time.monotonic() >= purge_at:
                    purge_old_rows()
                    purge_at = time.monotonic() + settings.DEMO_PURGE_EVERY_S
            except Error:
                log.warning("demo.database_away", exc_info=True)
                connection.close()

    def _follow_rates(self) -> None:
        rates = read_rates()
        if rates.seed != self.rates.seed:
            ensure_customers(rates.seed)
        if rates != self.rates:
            log.info("demo.rates_changed", rates=str(rates))
        self.rates = rates

    def _write(self, index: int) -> None:
        random = Random(f"writer/{self.rates.seed}/{index}")  # noqa: S311 - invention, no secret
        pace = Pace(time.monotonic(), catch_up_s=settings.DEMO_CATCH_UP_MAX_S)
        while not self._stopping.wait(pace.wait_s(time.monotonic(), self._share_per_s())):
            if pace.take(time.monotonic(), self._share_per_s()):
                self._act(random)
        connection.close()

    def _share_per_s(self) -> float:
        return self.rates.rate / settings.DEMO_WRITERS

    def _act(self, random: Random) -> None:
        rates = self.rates
        act = choose_act(random, rates)
        person = choose_customer(random, act, rates.seed)
        try:
            perform(act, random, person)
        except RelayError as error:
            log.warning("demo.not_published", act=act, error=type(error).__name__)
            self._count("not published")
            return
        except Error as error:
            log.warning("demo.database_away", act=act, error=type(error).__name__)
            self._count("database away")
            connection.close()
            self._stopping.wait(settings.DEMO_RECONNECT_AFTER_S)
            return
        self._count(act)

    def _count(self, what: str) -> None:
        with self._lock:
            self.done[str(what)] += 1


def purge_old_rows() -> int:
    """Delete claims (with what hangs on them) and effects past `DEMO_RETENTION`, a batch at most; how many rows."""
    old = Now() - settings.DEMO_RETENTION
    claims = Claim.objects.filter(opened_at__lt=old).values("pk")[: settings.DEMO_PURGE_BATCH_ROWS]
    effects = Effect.objects.filter(at__lt=old).values("pk")[: settings.DEMO_PURGE_BATCH_ROWS]
    gone = Claim.objects.filter(pk__in=claims).delete()[0]
    return gone + Effect.objects.filter(pk__in=effects).delete()[0]


def _customer(person: Person) -> Customer:
    return Customer(
        number=person.number,
        name=person.name,
        email=person.email,
        phone=person.phone,
        street=person.street,
        town=person.town,
        postcode=person.postcode,
        card=person.card,
    )
