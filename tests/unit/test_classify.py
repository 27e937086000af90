import json
import socket
import urllib.error
from email.message import Message

import django.core.exceptions
import django.db.utils
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.classify import classify, name_class, retry_after_s, walk_causes
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
