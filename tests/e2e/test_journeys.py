"""What a person on call sees, with JavaScript and without it."""

import re

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

from tests.app import wait_until
from tests.e2e.conftest import fill_sign_in, set_traffic

# Without JavaScript a page loads itself again every 10 s.
WITH_SCRIPT = pytest.param(True, id="with JavaScript")
WITHOUT_SCRIPT = pytest.param(False, id="without JavaScript")
both = pytest.mark.parametrize("script", [WITH_SCRIPT, WITHOUT_SCRIPT])
REFRESH_MS = 12_000


def seen_within_ms(script, live_ms):
    return live_ms if script else live_ms + REFRESH_MS


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
def test_now_says_that_the_relay_is_silent_and_how_old_the_oldest_row_is_until_it_recovers(app, open_page, script):
    wait_until(lambda: is_clear(app), within_s=30, what="the watch finds the relay in order")
    page = open_page("oncall", "/", java_script_enabled=script)
    expect(page.locator("#incidents")).not_to_contain_text("silent")
    navigated_to = page.evaluate("performance.timeOrigin") if script else None
    set_traffic(app, rate=4)
    expect(station(page, "Relay")).to_contain_text(
        re.compile("caught up|moving"), timeout=seen_within_ms(script, 15_000)
    )

    app.kill("relay")
    expect(station(page, "Relay")).to_contain_text("silent", timeout=seen_within_ms(script, 5_000))
    expect(page.locator("#incidents")).to_contain_text("The relay is silent", timeout=seen_within_ms(script, 5_000))
    first_age = oldest_age_s(page)
    wait_until(
        lambda: oldest_age_s(page) >= first_age + 2, within_s=8 if script else 25, what="the age grows on screen"
    )
    if script:
        assert page.evaluate("performance.timeOrigin") == navigated_to, "the page was loaded again"

    app.start_what_is_missing()
    expect(page.locator("#incidents")).not_to_contain_text("silent", timeout=seen_within_ms(script, 30_000))
    expect(station(page, "Relay")).to_contain_text(
        re.compile("caught up|moving"), timeout=seen_within_ms(script, 30_000)
    )


def station(page, name):
    return page.locator(".stn", has=page.get_by_role("heading", name=name, exact=True))


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
    before = app.sql("SELECT count(*) FROM dlq_dead_letter")[0][0]
    page = open_page("viewer", "/dead-letters/", java_script_enabled=script)
    rows = page.locator("#dlq-list tbody tr")
    set_traffic(app, rate=4, poison=1)
    wait_until(
        lambda: app.sql("SELECT count(*) FROM dlq_dead_letter")[0][0] > before, within_s=20, what="one is parked"
    )
    set_traffic(app, rate=0)
    expect(rows).not_to_have_count(before, timeout=seen_within_ms(script, 5_000))
    rows.first.get_by_role("link").first.click()
    expect(page.get_by_text("claim-workers").first).to_be_visible()
    text = page.locator("main").inner_text()
    assert "example.org" not in text
    assert not re.search(r"4111|5555 5555|7946", text)


@both
def test_the_lag_of_a_stopped_consumer_grows_per_partition_and_is_called_stopped(app, open_page, script):
    group = app.prefix + "claim-workers"
    page = open_page("viewer", f"/lag/?group={group}", java_script_enabled=script)
    table = page.locator("#lag-table tbody")
    app.stop("claim-workers")
    set_traffic(app, rate=20)
    expect(table).to_contain_text("stopped", timeout=seen_within_ms(script, 40_000))
    first = {}
    wait_until(lambda: first.update(lags_of(page)) or first, within_s=20, what="the table is read")
    wait_until(lambda: grew(first, lags_of(page)), within_s=20 if script else 35, what="the lag grows on the page")
    set_traffic(app, rate=0)
    app.start_what_is_missing()
    expect(table).not_to_contain_text("stopped", timeout=seen_within_ms(script, 60_000))


def lags_of(page):
    """Partition -> lag as the table says it now; empty while the page loads itself again."""
    try:
        texts = page.locator("#lag-table tbody tr[data-state]").all_inner_texts()
    except PlaywrightError:
        return {}
    rows = [re.split(r"\s*\t\s*", text) for text in texts]
    return {partition: number(lag) for partition, _verdict, lag, *_ in rows}


def number(text):
    return int(re.sub(r"\D", "", text) or 0)


def grew(before, after):
    return (
        after.keys() >= before.keys()
        and all(after[partition] >= lag for partition, lag in before.items())
        and sum(after.values()) > sum(before.values())
    )
