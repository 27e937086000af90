import binascii
import errno
import json
import socket
import ssl
import urllib.error
from datetime import UTC, datetime
from email.message import Message

import django.core.exceptions
import django.db.utils
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.classify import CHAIN_LIMIT, TABLE, classify, name_class, retry_after_s, walk_causes
from dlq.types import FailureClass, Permanent, Transient
from relay.kafka.consumer import ConsumerUnavailable

TRANSIENT, PERMANENT, SCHEMA, UNKNOWN = (
    FailureClass.TRANSIENT,
    FailureClass.PERMANENT,
    FailureClass.SCHEMA,
    FailureClass.UNKNOWN,
)


class Answer:
    def __init__(self, status):
        self.status_code = status


class HttpError(Exception):
    def __init__(self, status):
        super().__init__("the answer was an error")
        self.response = Answer(status)


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Permanent("no"), PERMANENT),
        (Transient("later"), TRANSIENT),
        (KeyError("iban"), PERMANENT),
        (TypeError("x"), PERMANENT),
        (ValueError("x"), PERMANENT),
        (json.JSONDecodeError("x", "{", 0), SCHEMA),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), SCHEMA),
        (django.core.exceptions.ValidationError("x"), SCHEMA),
        (TimeoutError(), TRANSIENT),
        (ConnectionResetError(), TRANSIENT),
        (socket.gaierror(), TRANSIENT),
        (urllib.error.URLError("refused"), TRANSIENT),
        (urllib.error.HTTPError("http://example.org", 503, "x", Message(), None), TRANSIENT),
        (urllib.error.HTTPError("http://example.org", 404, "x", Message(), None), PERMANENT),
        (django.db.utils.OperationalError("deadlock detected"), TRANSIENT),
        (psycopg.errors.DeadlockDetected(), TRANSIENT),
        (psycopg.errors.SerializationFailure(), TRANSIENT),
        (django.db.utils.InterfaceError("closed"), TRANSIENT),
        (ConsumerUnavailable("x"), TRANSIENT),
        (django.db.utils.DataError("x"), PERMANENT),
        (django.db.utils.IntegrityError("x"), UNKNOWN),
        (psycopg.errors.UniqueViolation(), UNKNOWN),
        (RuntimeError("x"), UNKNOWN),
        (SystemExit(1), UNKNOWN),
        *[(HttpError(status), TRANSIENT) for status in (408, 425, 429, 500, 503, 599)],
        *[(HttpError(status), PERMANENT) for status in (400, 401, 404, 422)],
        (caused(RuntimeError("wrapped"), TimeoutError()), TRANSIENT),
        (caused(ValueError("wrapped"), TimeoutError()), TRANSIENT),
        (caused(Permanent("known"), TimeoutError()), PERMANENT),
        (caused(RuntimeError("x"), Permanent("deep")), PERMANENT),
        (caused(RuntimeError("x"), KeyError("k")), PERMANENT),
        (ExceptionGroup("all", [RuntimeError("x"), TimeoutError()]), TRANSIENT),
    ],
    ids=repr,
)
def test_the_table(error, expected):
    assert classify(error) is expected


def test_an_error_raised_while_another_was_handled_is_judged_alone():
    def fall_back():
        try:
            return int("no time")
        except ValueError:
            return {}["iban"]

    with pytest.raises(KeyError) as caught:
        fall_back()
    assert isinstance(caught.value.__context__, ValueError)
    assert list(walk_causes(caught.value)) == [caught.value]


def test_a_circle_of_causes_ends():
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert list(walk_causes(first)) == [first, second]


def test_what_the_other_side_asked_to_wait_is_found_behind_a_wrapper():
    assert retry_after_s(caused(RuntimeError("x"), Transient("busy", retry_after_s=7))) == 7


@given(st.integers(400, 599))
def test_every_http_error_status_has_a_class(status):
    assert classify(HttpError(status)) in {TRANSIENT, PERMANENT}


def test_builtins_are_named_bare():
    assert (name_class(KeyError()), name_class(json.JSONDecodeError("", "", 0))) == (
        "KeyError",
        "json.decoder.JSONDecodeError",
    )


# -- What foreign libraries raise --------------------------------------------------------------------------
def foreign(name, *bases, **attributes):
    """An error of a library that need not be installed, by its full name."""
    module, _, qualname = name.rpartition(".")
    return type(qualname, bases or (Exception,), {"__module__": module, **attributes})()


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_error_of_the_table_is_found_by_its_name(name):
    assert classify(foreign(name)) is TABLE[name]
    child = foreign("app.errors.Mine", type(foreign(name)))
    assert classify(child) is TABLE[name]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ssl.SSLCertVerificationError("x"), UNKNOWN),
        (ssl.SSLError("x"), TRANSIENT),
        (OSError(errno.EHOSTUNREACH, "no route"), TRANSIENT),
        (OSError(errno.ENOENT, "no such file"), UNKNOWN),
        (binascii.Error("x"), SCHEMA),
        (AttributeError("x"), PERMANENT),
        (ZeroDivisionError(), PERMANENT),
        (django.core.exceptions.ObjectDoesNotExist(), UNKNOWN),
        (caused(django.db.utils.InternalError("x"), psycopg.errors.ReadOnlySqlTransaction()), TRANSIENT),
        (foreign("aiohttp.client_exceptions.ClientResponseError", status=503), TRANSIENT),
        (foreign("aiohttp.client_exceptions.ClientResponseError", status=404), PERMANENT),
        (
            foreign(
                "botocore.exceptions.ClientError",
                response={"ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "3"}}},
            ),
            TRANSIENT,
        ),
        (SystemExit(503), UNKNOWN),
    ],
    ids=repr,
)
def test_more_of_the_table(error, expected):
    assert classify(error) is expected


# -- Overrides ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "overrides", "expected"),
    [
        (KeyError("x"), {"KeyError": TRANSIENT}, TRANSIENT),
        (KeyError("x"), {"LookupError": TRANSIENT}, TRANSIENT),
        (KeyError("x"), {"LookupError": TRANSIENT, "KeyError": SCHEMA}, SCHEMA),
        (KeyError("x"), {"IndexError": TRANSIENT}, PERMANENT),
        (HttpError(409), {"HTTP 409": TRANSIENT}, TRANSIENT),
        (HttpError(404), {"HTTP 409": TRANSIENT}, PERMANENT),
        (Permanent("no"), {"dlq.types.Permanent": TRANSIENT}, TRANSIENT),
        (caused(Permanent("no"), TimeoutError()), {"TimeoutError": UNKNOWN}, UNKNOWN),
        (caused(RuntimeError("x"), KeyError("x")), {"KeyError": TRANSIENT, "RuntimeError": SCHEMA}, SCHEMA),
        (TimeoutError(), {}, TRANSIENT),
    ],
    ids=repr,
)
def test_an_override_of_the_policy_wins(error, overrides, expected):
    assert classify(error, overrides) is expected


# -- Retry-After -------------------------------------------------------------------------------------------
def answer(status=503, **headers):
    error = HttpError(status)
    error.response.headers = {name.replace("_", "-"): said for name, said in headers.items()}
    return error


NOW = datetime(2026, 11, 30, 19, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (answer(Retry_After="120"), 120),
        (answer(retry_after=" 7 "), 7),
        (answer(Retry_After="-1"), None),
        (answer(Retry_After="soon"), None),
        (answer(Retry_After="1e9"), None),
        (answer(Retry_After="9" * 400), 999_999_999_999),
        (answer(Retry_After="Mon, 30 Nov 2026 19:01:30 GMT"), 90),
        (answer(Retry_After="Mon, 30 Nov 2026 18:00:00 GMT"), 0),
        (answer(Retry_After="Mon, 30 Nov 2026 19:01:30 GMT", Date="Mon, 30 Nov 2026 19:01:00 GMT"), 30),
        (answer(Retry_After="Mon, 30 Nov 2026 19:01:30"), None),
        (answer(Retry_After="Mon, 99 Foo 99999 19:01:30 GMT"), None),
        (answer(), None),
        (caused(RuntimeError("x"), answer(Retry_After="5")), 5),
        (caused(Transient("x", retry_after_s=2), answer(Retry_After="5")), 2),
        (Transient("x", retry_after_s=-4), 0),
        (urllib.error.HTTPError("http://example.org", 429, "x", {"Retry-After": "4"}, None), 4),
        (
            foreign(
                "botocore.exceptions.ClientError",
                response={"ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "3"}}},
            ),
            3,
        ),
        (KeyError("x"), None),
    ],
    ids=repr,
)
def test_what_an_answer_asks_to_wait(error, asked):
    assert retry_after_s(error, NOW) == asked


def test_a_date_without_a_clock_is_not_heeded():
    assert retry_after_s(answer(Retry_After="Mon, 30 Nov 2026 19:01:30 GMT")) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_header_breaks_the_judgement(said, date):
    error = answer(Retry_After=said, Date=date)
    wait = retry_after_s(error, NOW)
    assert wait is None or wait >= 0
    assert classify(error) is TRANSIENT


def test_an_error_whose_attributes_raise_is_judged_by_its_class():
    class Odd(TimeoutError):
        @property
        def response(self):
            raise RuntimeError("not yet")

    assert classify(Odd()) is TRANSIENT
    assert retry_after_s(Odd(), NOW) is None


def test_a_long_chain_is_walked_to_its_bound():
    error = deepest = RuntimeError("0")
    for n in range(100):
        deepest.__cause__ = RuntimeError(str(n))
        deepest = deepest.__cause__
    assert len(list(walk_causes(error))) == CHAIN_LIMIT
