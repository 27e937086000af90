"""Every page: clean for axe in light and dark, usable at 320 px and by keyboard alone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from console.urls import urlpatterns
from tests.e2e.conftest import fill_sign_in

A_DRAFT = (
    "max_attempts=12&unknown_attempts=4&base_s=5&factor=2&max_s=600&jitter=0.2&retry_after_max_s=60&ordering=block"
    "&overrides=KeyError+%3D+transient"
)
PAGES = {
    "now": lambda app: "/",
    "relay": lambda app: "/relay/",
    "relay_history": lambda app: "/relay/history/",
    "relay_waiting": lambda app: "/relay/waiting/",
    "relay_event": lambda app: f"/relay/events/{app.sql('SELECT id FROM relay_outbox LIMIT 1')[0][0]}/",
    "relay_pause": lambda app: "/relay/pause/",
    "relay_topic_pause": lambda app: f"/relay/topic/pause/?topic={app.prefix}claim-events",
    "relay_key_pause": lambda app: "/relay/key/pause/",
    "lag": lambda app: "/lag/",
    "lag_history": lambda app: f"/lag/history/?group={app.prefix}claim-workers",
    "rewind": lambda app: (
        f"/lag/rewind/?group={app.prefix}claim-workers&topic={app.prefix}claim-events&strategy=earliest"
    ),
    "data_loss": lambda app: f"/lag/data-loss/{a_loss(app)}/",
    "dead_letters": lambda app: "/dead-letters/",
    "failure_groups": lambda app: "/dead-letters/groups/",
    "failure_group": lambda app: f"/dead-letters/groups/{app.sql('SELECT max(number) FROM dlq_failure_group')[0][0]}/",
    "dead_letter": lambda app: f"/dead-letters/{app.sql('SELECT id FROM dlq_dead_letter LIMIT 1')[0][0]}/",
    "policies": lambda app: "/policies/",
    "policy": lambda app: f"/policies/consumer/?subject={app.prefix}claim-workers",
    "policy_edit": lambda app: f"/policies/consumer/edit/?subject={app.prefix}claim-workers&{A_DRAFT}",
    "policy_errors": lambda app: "/policies/errors/",
    "replays": lambda app: "/replays/",
    "replay_preview_page": lambda app: f"/replays/previews/{a_preview(app)}/",
    "replay": lambda app: f"/replays/{a_replay(app)}/",
    "second_request": lambda app: f"/second-person/{a_second_request(app)}/",
    "quarantined": lambda app: "/quarantine/",
    "system": lambda app: "/system/",
    "audit": lambda app: "/audit/",
    "runbook": lambda app: "/runbooks/relay-silent/",
    "permissions": lambda app: "/permissions/",
}


def a_loss(app):
    """A data loss to show: noted, of a group and topic that are there."""
    found = app.sql("SELECT id FROM dlq_data_loss LIMIT 1")
    return (found or app.sql(
        "INSERT INTO dlq_data_loss (group_name, topic, partition, first_lost, first_kept, counted, choice, chosen_by,"
        " reason) VALUES (%s, %s, 0, 0, 2, true, '', '', '') RETURNING id",
        f"{app.prefix}claim-workers",
        f"{app.prefix}claim-events",
    ))[0][0]  # fmt: skip


def a_preview(app):
    """A frozen selection of one dead letter."""
    letter = app.sql("SELECT id FROM dlq_dead_letter WHERE group_name LIKE %s LIMIT 1", f"{app.prefix}%")[0][0]
    made = app.sql(
        "INSERT INTO dlq_selection (id, actor, group_name, mode, as_of, expires_at, rate_per_s, total, followers,"
        " counts) SELECT gen_random_uuid(), 'ada', group_name, 'handler', now(), now() + interval '1 hour', 50, 1, 0,"
        " '{\"eligible\": 1}' FROM dlq_dead_letter WHERE id = %s RETURNING id",
        str(letter),
    )[0][0]
    app.sql(
        "INSERT INTO dlq_selection_item (selection_id, number, dead_letter_id, verdict)"
        " VALUES (%s, 1, %s, 'eligible') RETURNING number",
        str(made),
        str(letter),
    )
    return made


def a_replay(app):
    """A replay that is paused, of nothing."""
    return app.sql(
        "INSERT INTO dlq_replay (id, group_name, mode, state, phase, why, selection_id, actor, second, reason, version,"
        " changed_by, total, mark_tried, mark_failed, window_settled) VALUES (gen_random_uuid(), %s, 'handler',"
        " 'paused', 'canary', 'paused: a test', gen_random_uuid(), 'ada', '', 'r', 1, 'ada', 0, 0, 0, 0) RETURNING id",
        f"{app.prefix}claim-workers",
    )[0][0]


def a_second_request(app):
    """A request that waits for somebody."""
    return app.sql(
        "INSERT INTO console_secondrequest (act, preview, scope, count, options, reason, asked_by, asked_by_id,"
        " expires_at, state, decided_by, answer, outcome) VALUES ('replay', %s, 'Replay 900 dead letters', 900, '{}',"
        " 'r', 'ada', 0, now() + interval '1 hour', 'waiting', '', '', '') RETURNING id",
        str(a_preview(app)),
    )[0][0]


FOR_NOBODY = {"login"}
ACTS_AND_PROBES = {
    "incident_acknowledge", "relay_resume", "relay_topic_resume", "relay_topic_retry", "relay_key_resume",
    "failure_group_describe", "failure_group_snooze", "failure_group_fixed", "failure_group_reopen",
    "failure_group_merge", "failure_group_split", "dead_letters_discard", "dead_letters_discard_ask",
    "dead_letter_restore", "relay_key_retry", "relay_row_skip", "relay_find", "relay_history_data", "lag_allowed",
    "lag_history_data",
    "replay_preview", "replay_start", "replay_pause", "replay_resume", "replay_cancel", "replay_rate", "replay_failed",
    "second_confirm", "second_refuse", "second_withdraw", "key_release", "breaker_close",
    "rewind_apply", "data_loss_settle", "policy_withdraw", "policy_roll_back",
    "group_stop", "group_start", "logout", "look", "healthz", "readyz",
}  # fmt: skip
every_page = pytest.mark.parametrize("name", PAGES)
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TICK_MS = 1_000  # how often static/js/live.js looks
NARROW = {"width": 320, "height": 640}


def faults(page):
    found = Axe().run(page, options={"runOnly": WCAG}).response["violations"]
    return [(fault["id"], [node["target"] for node in fault["nodes"]][:3]) for fault in found]


def faults_in_both_schemes(page):
    found = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found[scheme] = faults(page)
    return found


NO_FAULT = {"light": [], "dark": []}


def test_every_page_of_the_console_is_in_the_list():
    names = {pattern.name for pattern in urlpatterns if not pattern.name.startswith("api_")}
    assert names == PAGES.keys() | FOR_NOBODY | ACTS_AND_PROBES


@every_page
def test_axe_finds_no_fault(traffic_was_there, app, open_page, name):
    page = open_page("admin", PAGES[name](app))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert faults_in_both_schemes(page) == NO_FAULT


def test_axe_sees_a_fault(open_page):
    page = open_page(None, "/sign-in/")
    page.evaluate("document.querySelectorAll('label').forEach((label) => label.remove())")
    assert "label" in {fault for fault, _ in faults(page)}


def test_axe_finds_no_fault_before_sign_in_nor_in_what_went_wrong(open_page):
    page = open_page(None, "/sign-in/")
    assert faults_in_both_schemes(page) == NO_FAULT
    fill_sign_in(page, "viewer", "wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    assert faults_in_both_schemes(page) == NO_FAULT


def test_axe_finds_no_fault_on_a_page_that_is_not_there(open_page):
    page = open_page("viewer", "/no-such-page/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert faults_in_both_schemes(page) == NO_FAULT


@every_page
def test_nothing_scrolls_sideways_at_320_px(traffic_was_there, app, open_page, name):
    page = open_page("viewer", PAGES[name](app), viewport=NARROW)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert hidden_width(page) == 0


@every_page
def test_nothing_scrolls_sideways_at_320_px_without_javascript(traffic_was_there, app, open_page, name):
    page = open_page("viewer", PAGES[name](app), viewport=NARROW, java_script_enabled=False)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert hidden_width(page) == 0


@pytest.mark.parametrize("script", [True, False])
def test_the_sign_in_page_does_not_scroll_sideways_at_320_px(open_page, script):
    assert hidden_width(open_page(None, "/sign-in/", viewport=NARROW, java_script_enabled=script)) == 0


WIDE = """[...document.querySelectorAll('body *')]
  .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map((one) => `${one.tagName} ${one.className} ${one.id} ${one.textContent.trim().slice(0, 40)}`).slice(-8)"""


def hidden_width(page):
    """How many pixels lie beside the window. (What tests evaluate runs also where a page's own scripts do not.)"""
    print(page.evaluate(WIDE))  # shown when the test fails
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@every_page
def test_a_page_loads_without_an_error_in_the_browser(traffic_was_there, app, open_page, name):
    page = open_page("viewer", "about:blank")
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
    page.on("response", lambda r: said.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.goto(PAGES[name](app))
    page.wait_for_load_state("load")
    expect(page.locator("#conn-words")).to_have_text("Live", timeout=30_000)
    assert said == []


def test_now_reads_its_line_again_after_the_seconds_that_the_line_names(open_page):
    page = open_page("viewer", "about:blank")
    page.clock.install()
    page.goto("/")
    expect(page.locator("#conn-words")).to_have_text("Live", timeout=30_000)
    page.clock.pause_at(page.evaluate("Date.now()") + 1_000)
    page.wait_for_load_state("networkidle")
    max_age_ms = 1_000 * int(page.locator("#line").get_attribute("data-max-age"))
    with page.expect_request(lambda request: "hx-request" in request.headers, timeout=30_000):
        page.clock.run_for(max_age_ms + TICK_MS)


def focused(page):
    return page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")


def press_until(page, key, wanted, limit=40):
    """Press a key until the focused element's words begin with `wanted`."""
    for _ in range(limit):
        page.keyboard.press(key)
        if focused(page).startswith(wanted):
            return
    raise AssertionError(f"{wanted!r} was not reached in {limit} presses of {key}")


def test_the_relay_is_paused_with_a_reason_and_resumed_by_keyboard_alone(app, open_page):
    page = open_page("oncall", "/")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.reload()
    press_until(page, "Tab", "Relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Relay")).to_be_visible()
    press_until(page, "Tab", "Pause the relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Pause the relay")).to_be_visible()
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert focused(page) == "Pause the relay"
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("Trying the keyboard")
    press_until(page, "Tab", "Pause the relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Resume the relay")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Trying the keyboard")
    assert app.sql("SELECT count(*) FROM console_auditentry")[0][0] >= 1
    page.reload()
    press_until(page, "Tab", "Resume the relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Resume the relay")).to_be_visible()
    press_until(page, "Tab", "Resume the relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Pause the relay")).to_be_visible()


def test_a_viewer_sees_why_a_button_is_not_for_them(open_page):
    page = open_page("viewer", "/relay/")
    button = page.get_by_role("button", name="Pause the relay")
    expect(button).to_have_attribute("aria-disabled", "true")
    assert button.get_attribute("aria-describedby")
