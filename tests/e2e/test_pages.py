"""Every page: clean for axe in light and dark, usable at 320 px and by keyboard alone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.e2e.conftest import fill_sign_in

PAGES = ["/", "/relay/", "/lag/", "/lag/history/", "/dead-letters/", "/system/", "/permissions/"]
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def faults(page):
    found = Axe().run(page, options={"runOnly": WCAG}).response["violations"]
    return [(fault["id"], [node["target"] for node in fault["nodes"]][:3]) for fault in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_no_fault(traffic_was_there, open_page, path, scheme):
    page = open_page("oncall", path, color_scheme=scheme)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert faults(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_before_sign_in_nor_in_what_went_wrong(open_page, scheme):
    page = open_page(None, "/sign-in/", color_scheme=scheme)
    assert faults(page) == []
    fill_sign_in(page, "viewer", "wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    assert faults(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_a_dead_letter(traffic_was_there, open_page, scheme):
    page = open_page("oncall", "/dead-letters/", color_scheme=scheme)
    page.locator("#dlq-list tbody tr").first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert faults(page) == []


def test_axe_finds_no_fault_on_a_page_that_is_not_there(open_page):
    page = open_page("viewer", "/no-such-page/")
    assert faults(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_nothing_scrolls_sideways_at_320_px(traffic_was_there, open_page, path):
    page = open_page("viewer", path)
    page.set_viewport_size({"width": 320, "height": 640})
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0


@pytest.mark.parametrize("path", PAGES)
def test_nothing_scrolls_sideways_at_320_px_without_javascript(traffic_was_there, open_page, path):
    page = open_page("viewer", path, java_script_enabled=False)
    page.set_viewport_size({"width": 320, "height": 640})
    box = page.locator("body").bounding_box()
    assert box["width"] == 320


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_without_an_error_in_the_browser(traffic_was_there, open_page, path):
    page = open_page("viewer", "/permissions/")
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
    page.on("response", lambda r: said.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.goto(path)
    page.wait_for_load_state("load")
    expect(page.locator("#conn-words")).to_have_text("Live")
    assert said == []


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
    press_until(page, "Tab", "pause-reason")
    page.keyboard.type("Trying the keyboard")
    press_until(page, "Tab", "Pause the relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Resume the relay")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Trying the keyboard")
    assert app.sql("SELECT count(*) FROM console_auditentry")[0][0] >= 1
    press_until(page, "Tab", "Resume the relay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Pause the relay")).to_be_visible()


def test_a_viewer_sees_why_a_button_is_not_for_them(open_page):
    page = open_page("viewer", "/relay/")
    button = page.get_by_role("button", name="Pause the relay")
    expect(button).to_have_attribute("aria-disabled", "true")
    assert button.get_attribute("aria-describedby")
