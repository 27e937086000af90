"""Lag in a browser: zooming a history by drag, keys and links, and stopping, rewinding and starting a group."""

import re

from playwright.sync_api import expect

from tests.app import wait_until
from tests.e2e.conftest import PATIENCE_MS


def group_page(app):
    return f"/lag/history/?group={app.prefix}claim-workers"


def test_a_history_is_zoomed_by_drag_and_the_window_stands_in_the_address(traffic_was_there, app, open_page):
    page = open_page("viewer", group_page(app))
    plot = page.locator(".history-plot[data-ready] canvas")
    expect(plot).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".history-static")).to_be_hidden()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.98, box["y"] + 100, steps=4)
    page.mouse.up()
    page.mouse.move(5, 5)
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(page.get_by_role("link", name="Back to now")).to_be_visible(timeout=PATIENCE_MS)
    zoomed = page.url
    page.reload()
    expect(page.locator(".history-plot[data-ready]")).to_be_visible(timeout=PATIENCE_MS)
    assert page.url == zoomed


def test_a_history_is_read_and_zoomed_by_keyboard_alone(traffic_was_there, app, open_page):
    page = open_page("viewer", group_page(app))
    slider = page.get_by_role("slider")
    expect(slider).to_be_visible(timeout=PATIENCE_MS)
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"\d\d:\d\d:\d\d · (partition \d+: \d|not known)"))
    page.keyboard.press("Shift+End")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("since=.*until="))
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("since="))


def test_without_javascript_the_chart_its_table_and_the_zoom_links_are_there(traffic_was_there, app, open_page):
    page = open_page("viewer", group_page(app), java_script_enabled=False)
    expect(page.locator(".history-static svg")).to_be_visible()
    page.get_by_role("link", name="Zoom in").click()
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(page.get_by_text("The same as a table")).to_be_visible()


def test_a_group_is_stopped_rewound_and_started_from_the_console(traffic_was_there, app, open_page):
    group = f"{app.prefix}claim-workers"
    page = open_page("oncall", f"/lag/rewind/?group={group}&topic={app.prefix}claim-events&strategy=shift&shift=-1")
    expect(page.locator("main")).to_contain_text("It cannot be applied while the group has members")
    page.get_by_label(re.compile("Why stop")).fill("trying a rewind")
    page.get_by_role("button", name="Stop the consumers").click()
    expect(page.locator("main")).to_contain_text("Stopped by oncall")

    def is_empty():
        page.reload()
        return page.get_by_text("Its offsets can be moved").is_visible()

    wait_until(is_empty, within_s=60, what="the consumers have left the group")
    page.get_by_label("Why", exact=True).fill("a handler was wrong")
    page.get_by_role("button", name="Rewind as previewed").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("is rewound")
    page.goto(f"/lag/rewind/?group={group}")
    page.get_by_role("button", name="Start the consumers").click()
    expect(page.locator("main")).to_contain_text("is started")
    acts = [row[0] for row in app.sql("SELECT action FROM console_auditentry WHERE object_id = %s ORDER BY id", group)]
    assert acts == ["lag.group_stopped", "lag.rewound", "lag.group_started"]
