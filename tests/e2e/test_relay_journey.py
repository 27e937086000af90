"""A person on call meets a row that Kafka refuses: sees why it waits, retries it, skips it, and its key goes on."""

import re
import uuid

import pytest
from playwright.sync_api import expect

from tests.app import wait_until
from tests.e2e.conftest import PATIENCE_MS, both, set_traffic
from tests.e2e.test_pages import NO_FAULT, faults_in_both_schemes


@pytest.fixture(autouse=True)
def quiet(app):
    """The relay runs and nobody writes but the test."""
    set_traffic(app, rate=0)
    app.start_what_is_missing()
    yield
    app.sql("DELETE FROM relay_pause")
    app.sql("DELETE FROM relay_deferred")


def write_row(app, key, headers="[]"):
    """Insert as another language does; with headers that cannot be sent the relay refuses the row."""
    return app.sql(
        "INSERT INTO relay_outbox (topic, key, type, headers, payload)"
        " VALUES (%s, convert_to(%s, 'UTF8'), 'claim.opened', %s, '1') RETURNING id, position",
        f"{app.prefix}claim-events",
        key,
        headers,
    )[0]


def answer(page, button, script, reason=""):
    """Answer the question that an act asks: a dialog with JavaScript, a page of its own without it."""
    place = page.get_by_role("dialog") if script else page.locator("main")
    if reason:
        place.get_by_label("Reason").fill(reason)
    place.get_by_role("button", name=button).click()


def wait_for_landing(page, event):
    page.goto(f"/relay/events/{event}/")
    wait_until(
        lambda: page.reload() and "Offset" in page.locator("#event-landing").inner_text(),
        within_s=60,
        what="the event is found in Kafka",
    )


@both
def test_a_refused_row_is_seen_retried_and_skipped_and_its_key_goes_on(app, open_page, script):
    key = uuid.uuid4().hex
    bad, position = write_row(app, key, headers='[["x", 5]]')
    behind, _ = write_row(app, key)
    wait_until(
        lambda: app.sql("SELECT 1 FROM relay_deferred WHERE event_id = %s AND failed", bad),
        within_s=60,
        what="the relay gives up the row",
    )
    page = open_page("oncall", "/relay/", java_script_enabled=script)
    held = page.locator("#relay-held")
    expect(held).to_contain_text("failed: needs a person", timeout=PATIENCE_MS)

    held.get_by_role("link", name="Retry").first.click()
    answer(page, "Retry now", script)
    expect(page.get_by_text("Made due: the relay tries the row within a second.")).to_be_visible()
    wait_until(
        lambda: app.sql("SELECT 1 FROM relay_deferred WHERE event_id = %s AND failed", bad),
        within_s=60,
        what="it fails again",
    )

    page.goto(f"/relay/events/{behind}/")
    expect(page.locator("main")).to_contain_text("behind a failed row of its key", ignore_case=True)
    page.goto(f"/relay/events/{bad}/")
    page.get_by_role("link", name="Skip this row").click()
    answer(page, "Skip this row for good", script, reason="its headers are broken at the source")
    expect(page.locator("main")).to_contain_text("skipped by oncall: its headers are broken at the source")

    wait_for_landing(page, behind)
    (audited,) = app.sql("SELECT action, reason FROM console_auditentry WHERE object_id = %s", str(bad))
    assert audited == ("relay.row_skipped", "its headers are broken at the source")
    assert app.sql("SELECT position FROM relay_skipped WHERE event_id = %s", bad) == [(position,)]


@both
def test_a_topic_is_paused_its_row_waits_and_goes_out_when_it_is_resumed(app, open_page, script):
    topic = f"{app.prefix}claim-events"
    page = open_page("oncall", "/relay/", java_script_enabled=script)
    page.locator("#relay-topics tr", has_text=topic).get_by_role("link", name="Pause").click()
    answer(page, f"Pause {topic}", script, reason="trying the pause")
    expect(page.locator("#relay-held")).to_contain_text("trying the pause")
    event = None

    def a_row_waits():
        nonlocal event
        event, _ = write_row(app, uuid.uuid4().hex)
        page.goto(f"/relay/events/{event}/")
        return "paused by oncall: trying the pause" in page.locator("main").inner_text().lower()

    wait_until(a_row_waits, within_s=60, what="the relay, which looks once a second, obeys the pause")
    page.goto("/relay/")
    page.locator("#relay-held").get_by_role("link", name="Resume").click()
    answer(page, f"Resume {topic}", script)
    expect(page.locator("#relay-held")).not_to_contain_text("trying the pause", timeout=PATIENCE_MS)
    wait_for_landing(page, event)


def test_the_question_in_a_dialog_is_clean_for_axe_and_gives_the_focus_back(app, open_page):
    page = open_page("admin", "/relay/")
    opener = page.locator("#relay-topics").get_by_role("link", name="Pause").first
    opener.click()
    dialog = page.get_by_role("dialog", name=re.compile("Pause "))
    expect(dialog).to_be_visible()
    assert faults_in_both_schemes(page) == NO_FAULT
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#relay-topics").get_by_role("link", name="Pause").first).to_be_focused()


def test_the_charts_are_zoomed_and_the_zoom_can_be_sent(app, open_page):
    wait_until(
        lambda: app.sql("SELECT count(*) FROM relay_sample WHERE unit = 'sample'")[0][0] >= 2,
        within_s=60,
        what="the relay's history has samples",
    )
    page = open_page("viewer", "/relay/history/")
    expect(page.locator(".history-plot[data-ready]")).to_have_count(4, timeout=PATIENCE_MS)
    page.get_by_role("link", name="Zoom in").first.click()
    page.wait_for_url(re.compile("since="))
    expect(page.locator(".history-plot[data-ready]")).to_have_count(4, timeout=PATIENCE_MS)
