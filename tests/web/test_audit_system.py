"""Audit with its filters, System, runbooks as pages, and /readyz with a service away."""

import pytest

from console.markdown import render_markdown
from console.models import AuditAction
from relay.facade import pause_relay, resume_relay
from tests.web.pages import EVIL, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def acted(as_role):
    """A signed-in admin after three acts."""
    person = as_role("admin")
    for number in range(2):
        assert person.post("/relay/pause/", {"reason": f"reason-{number} {EVIL}"}).status_code == 303
        if not number:
            assert person.post("/relay/resume/").status_code == 303
    return person


def test_the_audit_lists_acts_newest_first_and_escapes_reasons(acted):
    answer = acted.get("/audit/")
    words = words_of(answer)
    assert words.index("reason-1") < words.index("reason-0")
    assert EVIL not in answer.text


def test_the_audit_is_narrowed_by_person_and_act(acted):
    assert "reason-1" in words_of(acted.get("/audit/?actor=admin-person"))
    assert "reason-1" not in words_of(acted.get("/audit/?actor=somebody-else"))
    resumed = acted.get(f"/audit/?action={AuditAction.RELAY_RESUMED.value}")
    assert "reason-1" not in words_of(resumed)
    assert resumed.text.count("<tr>") == 2


def test_the_audit_is_walked_to_the_end_and_back(acted, settings):
    settings.LIST_PAGE_ROWS = 2
    first = acted.get("/audit/")
    assert "reason-1" in words_of(first)
    assert "reason-0" not in words_of(first)
    before = first.context["page"].older
    second = acted.get(f"/audit/?before={before}")
    assert "reason-0" in words_of(second)
    assert "reason-1" not in words_of(second)
    assert second.context["page"].older is None
    back = acted.get(f"/audit/?after={second.context['page'].newer}")
    assert [row.id for row in back.context["page"].rows] == [row.id for row in first.context["page"].rows]


def test_system_says_that_no_process_has_beaten_and_how_the_services_answer(as_role):
    words = words_of(as_role("viewer").get("/system/"))
    assert "No process has beaten yet" in words
    assert words.count("answers") == 3


def test_system_names_a_service_that_is_away_without_its_address(as_role, settings):
    settings.VALKEY_URL = "redis://:a-password@127.0.0.1:1/0"
    answer = as_role("viewer").get("/system/")
    assert "does not answer: ConnectionError" in words_of(answer)
    assert "a-password" not in answer.text
    assert "127.0.0.1:1/" not in answer.text


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("valkey", "VALKEY_URL", "redis://127.0.0.1:1/0"),
        ("kafka", "KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1"),
        ("kafka", "KAFKA_BOOTSTRAP_SERVERS", "no-port"),
    ],
)
def test_readyz_stays_ready_without_valkey_or_kafka_and_names_what_is_away(client, settings, name, setting, value):
    setattr(settings, setting, value)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    away = [service for service, said in answer.json()["dependencies"].items() if not said["answers"]]
    assert away == [name]
    assert value not in answer.text


@pytest.mark.parametrize("kind", ["no-such-kind", "relay_silent", "README"])
def test_a_runbook_outside_the_closed_list_is_not_looked_for(as_role, kind):
    assert as_role("viewer").get(f"/runbooks/{kind}/").status_code == 404


def test_a_runbook_is_a_page_with_its_steps(as_role):
    answer = as_role("viewer").get("/runbooks/relay-silent/")
    assert answer.status_code == 200
    assert "manage.py relay" in words_of(answer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title\n\nwords", "<p>words</p>"),
        ("## A & B", "<h2>A &amp; B</h2>"),
        ("one\ntwo\n\nthree", "<p>one two</p>\n<p>three</p>"),
        ("- a\n  more\n- b", "<ul><li>a more</li><li>b</li></ul>"),
        ("1. a\n2. b", "<ol><li>a</li><li>b</li></ol>"),
        ("```\n<b> **x**\n```", '<pre class="code">&lt;b&gt; **x**</pre>'),
        ("`<i>` **b&b**", "<p><code>&lt;i&gt;</code> <strong>b&amp;b</strong></p>"),
        ("[w](lag-stopped.md)", '<p><a href="lag-stopped">w</a></p>'),
        ("[w](https://example.org/x)", '<p><a href="https://example.org/x">w</a></p>'),
        ("[w](javascript:alert)", "<p>w</p>"),
        ("[w](//evil.example)", "<p>w</p>"),
        ('[w](/a"onload=x)', '<p><a href="/a&quot;onload=x">w</a></p>'),
        (EVIL, f"<p>{EVIL.replace('<', '&lt;').replace('>', '&gt;').replace(chr(34), '&quot;')}</p>"),
    ],
)
def test_markdown_becomes_html_with_everything_escaped(text, expected):
    assert render_markdown(text) == expected


def test_a_pause_by_somebody_else_is_shown_on_every_relay_page(as_role):
    pause_relay(actor="night-shift", reason="the broker is being moved")
    words = words_of(as_role("viewer").get("/relay/"))
    assert "night-shift" in words
    assert "the broker is being moved" in words
    resume_relay(actor="night-shift")
