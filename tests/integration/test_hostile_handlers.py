"""Handlers that break the rules: each has only failed, the line moves, and nobody else pays for it."""

import sys

import pytest
from django.db import connection, transaction

from dlq.models import Applied, DeadLetter
from dlq.types import Result
from tests.consumers import Line, effects, make_effect_table, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(transactional_db, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05
    make_effect_table()
    made = Line()
    yield made
    made.drop()


class Odd(BaseException):
    """Not an Exception."""


class Trap(Exception):
    """Looking at it raises."""

    @property
    def response(self):
        raise RuntimeError("no response was set")

    def __str__(self):
        raise RuntimeError("no text")


def close_connection(event, tx):
    write_effect(event, tx)
    connection.close()


def break_socket(event, tx):
    write_effect(event, tx)
    connection.connection.close()
    raise LookupError("x")


def roll_back_by_hand(event, tx):
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK")
    write_nothing_more(event, tx)


def write_nothing_more(event, tx):
    raise LookupError("x")


def leave_a_block_open(event, tx):
    write_effect(event, tx)
    transaction.atomic().__enter__()


def leave_a_block_open_and_raise(event, tx):
    leave_a_block_open(event, tx)
    raise LookupError("x")


def mark_for_rollback(event, tx):
    write_effect(event, tx)
    transaction.set_rollback(True)


def raise_odd(event, tx):
    raise Odd


def raise_trap(event, tx):
    raise Trap


def raise_interrupt(event, tx):
    raise KeyboardInterrupt


def raise_deep(event, tx):
    return raise_deep(event, tx)


def return_no_result(event, tx):
    return "done"


def return_nul(event, tx):
    return Result(outcome="a\x00b", data={"a": "\x00"})


def return_surrogate(event, tx):
    return Result(data={"a": "\ud800"})


def return_nan(event, tx):
    return Result(data={"a": float("nan")})


HOSTILE = [
    close_connection,
    break_socket,
    roll_back_by_hand,
    leave_a_block_open,
    leave_a_block_open_and_raise,
    mark_for_rollback,
    raise_odd,
    raise_trap,
    raise_interrupt,
    raise_deep,
    return_no_result,
    return_nul,
    return_surrogate,
    return_nan,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda function: function.__name__)
def test_a_handler_that_breaks_the_rules_is_parked_and_the_worker_goes_on(line, hostile):
    def work(event, tx):
        if event.payload["n"] == 1:
            return hostile(event, tx)
        return write_effect(event, tx)

    line.put(1, key="bad")
    for number in (2, 3):
        line.put(number, key="good")
    with running(line, work, concurrency=1):
        until(lambda: line.committed() == 3, within_s=15)
    assert effects(line) == [("good", 2), ("good", 3)]
    assert DeadLetter.objects.get(group=line.group).offset == 0
    assert Applied.objects.filter(group=line.group).count() == 2


def test_a_hook_after_the_commit_that_exits_ends_no_worker(line):
    def work(event, tx):
        write_effect(event, tx)
        if event.payload["n"] == 1:
            transaction.on_commit(lambda: sys.exit(1))

    for number in (1, 2):
        line.put(number)
    with running(line, work, concurrency=1):
        until(lambda: line.committed() == 2, within_s=15)
    assert effects(line) == [("k", 1), ("k", 2)]


def test_waiting_for_the_database_beyond_the_deadline_is_an_outage_and_not_the_records_fault(line, settings):
    settings.HANDLER_DEADLINE_S = 1
    tries = []

    def work(event, tx):
        tries.append(tx.attempt)
        if len(tries) < 5:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(3)")
        write_effect(event, tx)

    line.put(1)
    with running(line, work):
        until(lambda: line.committed() == 1, within_s=30)
    assert effects(line) == [("k", 1)]
    assert not DeadLetter.objects.filter(group=line.group).exists()
