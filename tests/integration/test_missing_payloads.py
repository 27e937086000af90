"""Dead letters that never had their payload, and what goes with a dead letter that is deleted."""

import pytest
from django.db import connection

from dlq.facade import import_dead_letters, preview_replay
from dlq.foreign import find_without_payload
from dlq.models import DeadLetter, ForeignStop
from dlq.models_copy import Copy
from dlq.types import ReplayVerdict, Selection
from relay.facade import declare_topic
from relay.types import TopicSpec
from tests.consumers import headers_of, running, until, write_effect
from tests.copies import copies_on, read_copies
from tests.unit.test_foreign_headers import SHARE, SPRING

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(make_line):
    return make_line()


@pytest.mark.parametrize(
    ("key", "value", "headers", "is_bare"),
    [(None, None, SHARE, True), (b"k", None, SHARE, False), (None, b"v", SHARE, False), (None, None, SPRING, False)],
    ids=["share group, no content", "share group, tombstone with its key", "share group, content", "Spring, tombstone"],
)
def test_a_payload_is_missing_only_where_its_program_leaves_it_out(line, key, value, headers, is_bare):
    line.put_raw(value, key=key, headers=headers)
    import_dead_letters(line.topic)
    letter = DeadLetter.objects.get(topic=line.topic)
    assert find_without_payload([letter.pk]) == ({letter.pk} if is_bare else set())


@pytest.mark.parametrize(
    ("with_payload", "verdict"), [(False, ReplayVerdict.NO_PAYLOAD), (True, ReplayVerdict.ELIGIBLE)]
)
def test_a_copy_without_its_payload_is_imported_and_said_to_be_not_replayable(line, with_payload, verdict):
    declare_topic(TopicSpec(name=line.topic))
    with copies_on(line, payload=with_payload) as topic:
        line.put_raw(b"{", headers=headers_of())
        with running(line, write_effect):
            until(lambda: line.committed() == 1)
        read_copies(topic)
        import_dead_letters(topic)
    letter = DeadLetter.objects.get(topic=topic)
    preview = preview_replay(Selection(ids=[letter.pk]), rate_per_s=None, actor="ada")
    assert preview.counts == {verdict: 1}


def test_what_belongs_to_a_dead_letter_goes_with_it_however_it_is_deleted(line):
    with copies_on(line) as topic:
        line.put_raw(b"{", headers=headers_of())
        with running(line, write_effect):
            until(lambda: line.committed() == 1)
        read_copies(topic)
        import_dead_letters(topic)
    assert (Copy.objects.count(), ForeignStop.objects.count()) == (1, 2)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM dlq_key")
        cursor.execute("DELETE FROM dlq_dead_letter")
    assert (Copy.objects.count(), ForeignStop.objects.count()) == (0, 0)
