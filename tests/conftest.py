"""What every test of the repository gets."""

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings

# A busy machine is slow; that says nothing about an example.
settings.register_profile("signalbox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("signalbox")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """Let transactional tests empty the audit table between them: its trigger refuses TRUNCATE.

    `tests/integration/test_audit.py` switches the trigger on again for its own transaction.
    """
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE console_auditentry DISABLE TRIGGER console_audit_no_truncate")
    connection.close()


@pytest.fixture
def shop(db):
    """Dead letters of one group, and what replays them in the test's own process."""
    from tests.replays import Shop  # Django is set up by now

    made = Shop()
    yield made
    made.drop()
