"""The consumer runtime on a real broker and database: one effect, order per key, offsets only behind it."""

import pytest

from dlq.models import Applied
from tests.consumers import Line, effects, make_effect_table, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(db_table):
    made = Line()
    yield made
    made.drop()


@pytest.fixture
def db_table(transactional_db):
    make_effect_table()


def test_an_event_is_applied_once_and_its_offset_moves_afterwards(line):
    event_id = line.put(1)
    with running(line, write_effect):
        until(lambda: line.committed() == 1)
    assert effects(line) == [("k", 1)]
    assert [row.event_id for row in Applied.objects.filter(group=line.group)] == [event_id]


def test_a_repeat_of_an_event_has_no_second_effect_and_is_counted(line):
    event_id = line.put(1)
    line.put(1, event_id=event_id)
    line.put(2)
    with running(line, write_effect) as member:
        until(lambda: line.committed() == 3)
    assert effects(line) == [("k", 1), ("k", 2)]
    assert member.tally == {"applied": 2, "duplicate": 1}
