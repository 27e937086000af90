"""The returns pipeline end to end: outbox -> relay -> Kafka -> three groups of consumers, real processes."""

import pytest

from tests.app import App, wait_until

GROUPS = ("claim-workers", "refund-workers", "mail-workers")
CLAIMS_WANTED = 60
SETTLED_WITHIN_S = 60

pytestmark = pytest.mark.xdist_group("demo_pipeline")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """An app whose demo ran for a while and then fell silent, with everything applied or parked."""
    with App(tmp_path_factory.mktemp("demo")) as app:
        app.start("relay", "relay")
        for group in GROUPS:
            app.start(group, "consume", app.prefix + group)
        shares = ("--poison", "0.1", "--malformed", "0.1", "--duplicates", "0.2", "--slow", "0", "--rollbacks", "0.1")
        app.manage("demo", "--rate", "40", "--triage-ms", "10", *shares)
        app.start("demo", "demo", "--run")
        wait_until(lambda: count(app, "demo_claim") >= CLAIMS_WANTED, within_s=40, what="claims are opened")
        assert app.stop("demo") == 0
        wait_until(lambda: is_settled(app), within_s=SETTLED_WITHIN_S, what="every event is applied or parked")
        yield app


def count(app, table, where="true"):
    return app.sql(f"SELECT count(*) FROM {table} WHERE {where}")[0][0]


def claim_events(app):
    """Published claim events as (id, is_poison); a repeated id counts once."""
    rows = app.sql(
        "SELECT DISTINCT id, convert_from(payload, 'UTF8')::jsonb -> 'claim' FROM relay_outbox"
        " WHERE type = 'claim.opened'"
    )
    return [
        (event_id, not (isinstance(claim["amount_cents"], int) and claim.get("currency") == "EUR"))
        for event_id, claim in rows
    ]


def parked(app):
    """(event id or None, event type, error class) of each dead letter."""
    return app.sql("SELECT event_id::text, event_type, error_class FROM dlq_dead_letter")


def is_settled(app):
    good = sum(not poison for _, poison in claim_events(app))
    return count(app, "demo_notice") >= good and len(parked(app)) >= len(claim_events(app)) - good


def test_the_run_had_what_it_should_try(pipeline):
    poison = sum(is_poison for _, is_poison in claim_events(pipeline))
    repeated = count(pipeline, "relay_outbox") - len(pipeline.sql("SELECT DISTINCT id FROM relay_outbox"))
    assert poison >= 1
    assert repeated >= 1


@pytest.mark.parametrize("group", GROUPS)
def test_each_handler_has_one_effect_an_event(pipeline, group):
    good = {str(event_id) for event_id, poison in claim_events(pipeline) if not poison}
    effects = [
        str(row[0])
        for row in pipeline.sql('SELECT event_id FROM demo_effect WHERE "group" = %s', pipeline.prefix + group)
    ]
    assert len(effects) == len(set(effects)) == len(good)
    if group == "claim-workers":
        assert set(effects) == good


def test_every_good_claim_ends_with_one_refund_and_one_notice(pipeline):
    odd = pipeline.sql(
        "SELECT c.number FROM demo_claim c"
        " LEFT JOIN demo_refund r ON r.claim_id = c.number LEFT JOIN demo_notice n ON n.claim_id = c.number"
        " WHERE c.state <> 'opened' GROUP BY c.number, c.state"
        " HAVING count(DISTINCT r.id) <> 1 OR count(DISTINCT n.id) <> 1 OR c.state NOT IN ('approved', 'rejected')"
    )
    assert odd == []


def test_poison_is_parked_and_the_line_moves(pipeline):
    poison = {str(event_id) for event_id, is_poison in claim_events(pipeline) if is_poison}
    letters = parked(pipeline)
    assert {event_id for event_id, kind, _ in letters if kind == "claim.opened" and event_id} == poison
    assert len([1 for event_id, *_ in letters if event_id in poison]) == len(poison)
    assert count(pipeline, "demo_claim", "state = 'opened'") == len(poison)


def test_records_of_a_foreign_producer_are_parked_though_they_are_no_events(pipeline):
    assert "Traceback" not in pipeline.log("demo")
    wait_until(lambda: any(event_id is None for event_id, *_ in parked(pipeline)), within_s=20, what="one is parked")


def test_a_duplicate_is_skipped_and_counted(pipeline):
    repeated = count(pipeline, "relay_outbox") - len(pipeline.sql("SELECT DISTINCT id FROM relay_outbox"))
    skipped = pipeline.sql("SELECT sum(duplicates) FROM dlq_counter")[0][0]
    assert skipped >= repeated >= 1


def test_effects_of_a_key_come_in_the_order_of_its_events(pipeline):
    inversions = pipeline.sql(
        "WITH first AS ("
        "  SELECT id, key, min(position) AS at FROM relay_outbox WHERE type = 'claim.opened' GROUP BY id, key),"
        " done AS (SELECT f.key, f.at, lag(f.at) OVER (PARTITION BY f.key ORDER BY e.id) AS before"
        "          FROM demo_effect e JOIN first f ON f.id = e.event_id)"
        " SELECT key FROM done WHERE before > at"
    )
    assert inversions == []
