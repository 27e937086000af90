"""The returns story: invented customers, claims and what a triage model answers. Pure: random values come from outside.

Names are made up, addresses end in example.org, phone numbers lie in the ranges kept for fiction, card numbers are
the card networks' published test numbers, IP addresses are kept for documentation. They look like personal data
so that redaction has something to find.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

FIRST_NAMES = ("Anouk", "Bela", "Carys", "Dario", "Edda", "Fenn", "Greta", "Hollis", "Ines", "Joris", "Kaja", "Lorcan")
LAST_NAMES = ("Ambervale", "Birkenthal", "Corvino", "Dunmarsh", "Elderquist", "Farrowby", "Glasspool", "Hartmoor")
STREETS = ("Sample Street", "Test Lane", "Placeholder Road", "Example Row", "Specimen Way")
TOWNS = (("Sampleton", "00001"), ("Exampleford", "00002"), ("Testbury", "00003"), ("Mockham", "00004"))
CARDS = ("4111 1111 1111 1111", "4242 4242 4242 4242", "5555 5555 5555 4444", "3782 822463 10005")
GOODS = (
    ("LMP-204", "Desk lamp, brass", 4_990),
    ("KTL-011", "Kettle, 1.7 l", 3_450),
    ("RUC-330", "Rucksack, 30 l", 8_900),
    ("HDP-072", "Headphones, closed", 12_900),
    ("CHR-500", "Office chair", 24_900),
    ("MUG-004", "Mug, set of four", 2_200),
)
REASONS = ("damaged", "wrong item", "late", "not as described", "changed my mind")
NOTES = (
    "The parcel was open when it came. Please call me on {phone} after five.",
    "It does not fit. Write to {email}, I do not answer unknown numbers.",
    "I want the money back on the card {card}, not a voucher!",
    "My neighbour at {street} took it in and it was already broken.",
    "Second time I report this. My name is {name}, order {order}.",
)
MODEL = "triage-small-3"
CURRENCY = "EUR"
MAX_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """An invented customer."""

    number: str
    name: str
    email: str
    phone: str
    street: str
    town: str
    postcode: str
    card: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedClaim:
    """What triage reads of a `claim.opened`."""

    number: str
    customer: str
    amount_cents: int
    currency: str
    is_long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageAnswer:
    """What the simulated model says about a claim. `confidence` is 0..1, `tokens` what the call cost."""

    model: str
    confidence: float
    tokens: int
    rationale: str


def invent_person(index: int, seed: int) -> Person:
    """Return customer `index` of the world `seed`; the same for the same two numbers."""
    random = Random(f"person/{seed}/{index}")  # noqa: S311 - invention, no secret
    first, last = random.choice(FIRST_NAMES), random.choice(LAST_NAMES)
    town, postcode = random.choice(TOWNS)
    return Person(
        number=f"C-{index:05d}",
        name=f"{first} {last}",
        email=f"{first}.{last}.{index}@example.org".lower(),
        phone=f"+44 20 7946 0{random.randrange(1000):03d}",
        street=f"{random.randrange(1, 200)} {random.choice(STREETS)}",
        town=town,
        postcode=postcode,
        card=random.choice(CARDS),
    )


def describe_claim(random: Random, person: Person, *, number: str, is_slow: bool) -> dict[str, object]:
    """Return the payload of `claim.opened`."""
    order = f"O-{random.randrange(10**8):08d}"
    goods = [(*random.choice(GOODS), random.randint(1, 2)) for _ in range(random.randint(1, MAX_LINES))]
    note = random.choice(NOTES).format(
        phone=person.phone,
        email=person.email,
        card=person.card,
        street=person.street,
        name=person.name,
        order=order,
    )
    return {
        "claim": {
            "number": number,
            "reason": random.choice(REASONS),
            "note": note,
            "amount_cents": sum(price_cents * quantity for _, _, price_cents, quantity in goods),
            "currency": CURRENCY,
            "effort": "long" if is_slow else "normal",
            "photos": [f"https://files.example.org/{number}/1.jpg?token={random.getrandbits(64):016x}"],
        },
        "customer": {
            "number": person.number,
            "name": person.name,
            "contacts": [{"kind": "email", "value": person.email}, {"kind": "phone", "value": person.phone}],
            "address": {"street": person.street, "postcode": person.postcode, "town": person.town},
        },
        "order": {"number": order, "lines": [_order_line(*line) for line in goods]},
        "payment": {"method": "card", "card_number": person.card, "card_holder": person.name},
        "session": {"ip": f"192.0.2.{random.randrange(1, 255)}", "api_key": f"sk_test_{random.getrandbits(80):020x}"},
    }


def spoil(random: Random, payload: Mapping[str, object]) -> dict[str, object]:
    """Return a copy that still is a claim on the outside but that no handler can work with (a poison record)."""
    claim = dict(_section(payload, "claim"))
    how = random.randrange(3)
    if how == 0:
        claim["amount_cents"] = "a lot"
    elif how == 1:
        del claim["currency"]
    else:
        claim["currency"] = "shells"
    return {**payload, "claim": claim}


def read_claim(payload: object) -> OpenedClaim:
    """Read a `claim.opened` payload.

    Raises:
        KeyError: a field is missing.
        TypeError: a field is of another type.
        ValueError: the currency is not one that refunds are paid in.
    """
    claim, customer = _section(payload, "claim"), _section(payload, "customer")
    amount_cents, currency = claim["amount_cents"], claim["currency"]
    if not isinstance(amount_cents, int):
        raise TypeError("claim.amount_cents is not a whole number")
    if currency != CURRENCY:
        raise ValueError("claim.currency is not one that refunds are paid in")
    return OpenedClaim(
        number=str(claim["number"]),
        customer=str(customer["number"]),
        amount_cents=amount_cents,
        currency=CURRENCY,
        is_long=claim.get("effort") == "long",
    )


def answer_triage(seed: int, number: str, amount_cents: int) -> TriageAnswer:
    """Return the model's answer for a claim: pseudo-random, the same for the same arguments."""
    random = Random(f"triage/{seed}/{number}/{amount_cents}")  # noqa: S311 - a simulation
    confidence = round(random.betavariate(5, 2), 3)
    return TriageAnswer(
        model=MODEL,
        confidence=confidence,
        tokens=random.randint(400, 2_600),
        rationale=f"Photos and order history support the claim with {confidence:.0%} confidence.",
    )


def may_refund(confidence: float, amount_cents: int, *, limit_cents: int) -> bool:
    """Tell whether a proposed refund is paid without asking a person: sure enough and small enough."""
    return confidence >= 0.4 and amount_cents <= limit_cents


def foreign_record(random: Random) -> tuple[bytes, list[tuple[str, bytes | None]]]:
    """Return (value, headers) as a careless foreign producer sends them: no event id, or no JSON, or neither."""
    how = random.randrange(3)
    if how == 0:
        return b'{"claim": {"number": "R-foreign"}}', [("source", b"legacy-shop")]
    if how == 1:
        return b"\x00\xff\xfe not json", [("event-id", b"not-a-uuid"), ("event-type", b"claim.opened")]
    return b"", [("event-id", None), ("event-id", b"")]


def _order_line(sku: str, title: str, price_cents: int, quantity: int) -> dict[str, object]:
    return {"sku": sku, "title": title, "price_cents": price_cents, "quantity": quantity}


def _section(payload: object, name: str) -> Mapping[str, object]:
    if not isinstance(payload, Mapping):
        raise TypeError("the payload is not an object")
    section = payload[name]
    if not isinstance(section, Mapping):
        raise TypeError(f"{name} is not an object")
    return section
