"""What a person on call sees, with JavaScript and without it."""

import re
import time
from datetime import datetime, timedelta

import pytest
from django.conf import settings
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

from tests.app import wait_until
from tests.e2e.conftest import PATIENCE_MS, PATIENCE_S, both, fill_sign_in, set_traffic

# Where only the result counts. Without JavaScript a page loads itself again every 10 s.
SILENT_WITHIN = timedelta(seconds=5)
GOES = re.compile("caught up|moving")


@pytest.fixture(autouse=True)
def quiet(app):
    """Each journey begins with a healthy, silent line and leaves one behind."""
    set_traffic(app, rate=0)
    yield
    set_traffic(app, rate=0)
    app.start_what_is_missing()


@both
def test_a_person_signs_in_with_the_right_password_only(app, open_page, script):
    page = open_page(None, "/sign-in/", java_script_enabled=script)
    fill_sign_in(page, "viewer", "not the password")
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")
    fill_sign_in(page, "viewer", app.logins()["viewer"])
    expect(page.get_by_role("heading", level=1, name="Now")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()


@both
def test_now_says_that_the_relay_is_silent_and_how_old_the_oldest_row_is_until_it_recovers(
    app, open_page, script, request, record_property
):
    wait_until(lambda: is_clear(app), within_s=60, what="the watch finds the relay in order")
    page = open_page("oncall", "/", java_script_enabled=script)
    expect(page.locator("#incidents")).not_to_contain_text("silent")
    navigated_to = page.evaluate("performance.timeOrigin") if script else None
    set_traffic(app, rate=4)
    expect(station(page, "Relay")).to_contain_text(GOES, timeout=PATIENCE_MS)

    readings = []
    app.kill("relay")
    killed_at = time.monotonic()
    wait_until(
        lambda: look(page, "Relay", readings) and "silent" in readings[-1][1], within_s=60, what="it says silent"
    )
    record_property(f"kill to silent on screen, {request.node.callspec.id}", f"{time.monotonic() - killed_at:.1f} s")
    expect(page.locator("#incidents")).to_contain_text("The relay is silent", timeout=PATIENCE_MS)
    last_sign = app.sql(
        "SELECT greatest((SELECT max(seen_at) FROM relay_runner), (SELECT max(moved_at) FROM relay_checkpoint))"
    )[0][0]
    # What the page read later than 5 s after the relay's last sign of life calls it silent, and it reads in time.
    assert [r for r in readings if r[0] > last_sign + SILENT_WITHIN and "silent" not in r[1]] == [], last_sign
    # (test_pages.py has the page's own clock for this.)
    every_s = int(page.locator("#line").get_attribute("data-max-age"))
    assert settings.RELAY_SILENT_AFTER_S + every_s <= SILENT_WITHIN.total_seconds()

    first_age = oldest_age_s(page)
    wait_until(lambda: oldest_age_s(page) >= first_age + 2, within_s=PATIENCE_S, what="the age grows on screen")
    if script:
        assert page.evaluate("performance.timeOrigin") == navigated_to, "the page was loaded again"

    app.start_what_is_missing()
    expect(page.locator("#incidents")).not_to_contain_text("silent", timeout=PATIENCE_MS)
    expect(station(page, "Relay")).to_contain_text(GOES, timeout=PATIENCE_MS)


def station(page, name):
    return page.locator(".stn", has=page.get_by_role("heading", name=name, exact=True))


def look(page, name, readings):
    """Add (as of, verdict) of the line that is on screen; False while the page loads itself again."""
    try:
        at = page.locator("#line .asof time").get_attribute("datetime", timeout=1_000)
        words = station(page, name).locator(".verdict").inner_text(timeout=1_000)
        if at != page.locator("#line .asof time").get_attribute("datetime", timeout=1_000):
            return False
    except PlaywrightError:
        return False
    readings.append((datetime.fromisoformat(at), words))
    return True


def oldest_age_s(page):
    """The figure of the outbox's station: "7 s", "1 min 3 s"."""
    text = station(page, "Outbox").locator(".fig").inner_text()
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(h|min|m|s)\b", text)
    return sum(float(value) * {"h": 3600, "min": 60, "m": 60, "s": 1}[unit] for value, unit in parts)


def is_clear(app):
    """No incident of the relay is open. (Groups of other tests on the same broker have incidents of their own.)"""
    return not app.sql("SELECT 1 FROM relay_incident WHERE closed_at IS NULL AND kind LIKE 'relay_%%'")


@both
def test_a_poison_record_appears_in_dead_letters(app, open_page, script):
    known = parked_ids(app)
    page = open_page("viewer", "/dead-letters/", java_script_enabled=script)
    set_traffic(app, rate=4, poison=1)
    wait_until(lambda: parked_ids(app) - known, within_s=PATIENCE_S, what="one is parked")
    set_traffic(app, rate=0)
    new = page.locator(", ".join(f'#dlq-list tbody a[href$="/{letter}/"]' for letter in parked_ids(app) - known)).first
    expect(new).to_be_visible(timeout=PATIENCE_MS)
    new.click()
    expect(page.get_by_text(app.prefix + "claim-workers").first).to_be_visible()
    text = page.locator("main").inner_text()
    assert "example.org" not in text
    assert not re.search(r"4111|5555 5555|7946", text)


def parked_ids(app):
    return {str(row[0]) for row in app.sql("SELECT id FROM dlq_dead_letter")}


@both
def test_the_lag_of_a_stopped_consumer_grows_per_partition_and_is_called_stopped(app, open_page, script):
    group = app.prefix + "claim-workers"
    page = open_page("viewer", f"/lag/?group={group}", java_script_enabled=script)
    table = page.locator("#lag-table .table tbody").first
    app.stop("claim-workers")
    set_traffic(app, rate=20)
    expect(table).to_contain_text("stopped", timeout=PATIENCE_MS)
    first = {}
    wait_until(lambda: first.update(lags_of(page)) or first, within_s=PATIENCE_S, what="the table is read")
    wait_until(lambda: grew(first, lags_of(page)), within_s=PATIENCE_S, what="the lag grows on the page")
    set_traffic(app, rate=0)
    app.start_what_is_missing()
    expect(table).not_to_contain_text("stopped", timeout=90_000)


def lags_of(page):
    """Partition -> lag as the table says it now; empty while the page loads itself again."""
    try:
        texts = page.locator("#lag-table .table").first.locator("tbody tr[data-state]").all_inner_texts()
    except PlaywrightError:
        return {}
    rows = [re.split(r"\s*\t\s*", text) for text in texts]
    return {partition: number(lag) for partition, _verdict, lag, *_ in rows}


def number(text):
    return int(re.sub(r"\D", "", text) or 0)


def grew(before, after):
    """At least two partitions have more, none has less: each has a number of its own."""
    return (
        after.keys() >= before.keys()
        and all(after[partition] >= lag for partition, lag in before.items())
        and sum(after[partition] > lag for partition, lag in before.items()) >= 2
    )
