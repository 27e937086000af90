"""Browser journeys: the whole app for real, Chromium, one page a persona; screenshots of what failed are kept."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

from tests.app import App, wait_until

RESULTS = Path(__file__).resolve().parents[2] / "test-results" / os.environ.get("SIGNALBOX_TEST_NAME", "main")
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")  # as in scripts/chromium.sh
GROUPS = ("claim-workers", "refund-workers", "mail-workers")
WORKERS_FIRST_VALKEY_DB = 4
PAGE_WITHIN_MS = 15_000
PATIENCE_S = 60
PATIENCE_MS = PATIENCE_S * 1_000

both = pytest.mark.parametrize(
    "script", [pytest.param(True, id="with JavaScript"), pytest.param(False, id="without JavaScript")]
)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # One worker has them all: they share one app, and its processes are stopped and started in turn.
            item.add_marker(pytest.mark.xdist_group("e2e"))
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.stash[FAILED] = outcome.get_result().failed


FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="package")
def app(tmp_path_factory, worker_id):
    """Web, worker, beat, relay and the three consumer groups; no traffic but what a test makes."""
    number = int(re.sub(r"\D", "", worker_id) or 0)
    with App(tmp_path_factory.mktemp("e2e"), valkey_db=WORKERS_FIRST_VALKEY_DB + number % 8) as app:
        app.manage("demo", "--rate", "0", "--triage-ms", "20")
        app.start_web()
        app.start_celery("worker", "worker", "-Q", "console", "-P", "threads", "-c", "2")
        app.start_celery("beat", "beat", "--schedule", str(app.folder / "beat"), "--pidfile=")
        app.start("relay", "relay")
        for group in GROUPS:
            app.start(group, "consume", app.prefix + group)
        app.start("demo", "demo", "--run")
        app.wait_for_page()
        yield app


@pytest.fixture(scope="package")
def traffic_was_there(app):
    """Effects, samples and dead letters to show."""
    set_traffic(app, rate=10, poison=0.2)
    wait_until(lambda: app.sql("SELECT count(*) FROM demo_notice")[0][0] >= 10, within_s=60, what="notices are sent")
    wait_until(lambda: app.sql("SELECT count(*) FROM dlq_dead_letter")[0][0] >= 3, within_s=60, what="some are parked")
    set_traffic(app, rate=0)
    app.manage("shell", "-v", "0", "-c", "from relay.facade import collect_lag\ncollect_lag()")


@pytest.fixture(scope="package")
def browser():
    # Not pytest-playwright's: its event loop would stay in this thread until the session ends, and Django's ORM
    # refuses to work beside one.
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    assert program, f"The browser tests need one of {', '.join(CHROMIUMS)}: run ./scripts/chromium.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            # Root in a container: no user namespaces, a small /dev/shm.
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def sessions():
    """Signed-in cookies a persona, so that each persona signs in once."""
    return {}


@pytest.fixture
def open_page(app, browser, sessions, request):
    """Return `open_page(persona, path="/", **context options)`: a signed-in page; None = nobody."""
    contexts = []

    def open_page(persona, path="/", **options):
        if persona and persona not in sessions:
            sessions[persona] = sign_in(app, browser, persona)
        options = {"viewport": {"width": 1440, "height": 900}, **options}
        context = browser.new_context(base_url=app.url, storage_state=sessions.get(persona), **options)
        context.set_default_timeout(PAGE_WITHIN_MS)
        contexts.append(context)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_page
    if request.node.stash.get(FAILED, False):
        keep_pages(contexts, request.node.name)
    for context in contexts:
        with suppress(PlaywrightError):  # Ctrl-C ends the browser too
            context.close()


def set_traffic(app, *, rate, poison=0.0):
    """Set the demo's rate (claims a second); all other oddities are off. The traffic follows within a second."""
    app.sql(
        "UPDATE demo_rates SET claims_per_s = %s, poison_share = %s, malformed_share = 0, duplicate_share = 0,"
        " slow_share = 0, rollback_share = 0",
        rate,
        poison,
    )


def sign_in(app, browser, persona):
    context = browser.new_context(base_url=app.url)
    page = context.new_page()
    fill_sign_in(page, persona, app.logins()[persona])
    page.wait_for_url(app.url + "/")
    state = context.storage_state()
    context.close()
    return state


def fill_sign_in(page, name, password):
    page.goto("/sign-in/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def keep_pages(contexts, name):
    RESULTS.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^\w.-]+", "_", name)
    for number, page in enumerate(page for context in contexts for page in context.pages):
        page.screenshot(path=RESULTS / f"{stem}-{number}.png", full_page=True)
        (RESULTS / f"{stem}-{number}.html").write_text(page.content())
