import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction

from console.audit import NotInAct, list_audit, record_act
from console.models import AuditAction, AuditEntry

pytestmark = pytest.mark.django_db


def write(count=1, **more):
    person, _ = User.objects.get_or_create(username="p")
    return [record_act(person, AuditAction.RELAY_PAUSED, kind="relay", object_id="relay", **more) for _ in range(count)]


@pytest.mark.parametrize(
    "statement",
    ["UPDATE console_auditentry SET reason = 'x'", "DELETE FROM console_auditentry", "TRUNCATE console_auditentry"],
)
def test_the_database_refuses_to_change_an_entry(statement):
    write()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE console_auditentry ENABLE TRIGGER console_audit_no_truncate")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.count() == 1


def test_a_large_detail_is_refused(settings):
    with pytest.raises(ValueError, match="at most"):
        write(facts="x" * settings.AUDIT_DETAIL_BYTES)


@pytest.mark.django_db(transaction=True)
def test_an_entry_outside_its_acts_transaction_is_refused():
    with pytest.raises(NotInAct):
        write()


def test_the_entry_goes_when_the_act_is_undone():
    with transaction.atomic():
        write()
        transaction.set_rollback(True)
    assert AuditEntry.objects.count() == 0


def test_pages_lead_older_and_newer_without_gaps():
    ids = [entry.id for entry in write(7)][::-1]
    first = list_audit(limit=3)
    second = list_audit(limit=3, before=first.older)
    third = list_audit(limit=3, before=second.older)
    assert [e.id for page in (first, second, third) for e in page.rows] == ids
    assert (first.newer, third.older) == (None, None)
    back = list_audit(limit=3, after=third.newer)
    assert [e.id for e in back.rows] == [e.id for e in second.rows]
