"""Tags and filters of every page.

Tags: `aspect state`, `icon name`, `verdict v`, `badge v [word]`, `asof at`, `when at`, `since at now`, `page_url name`,
`qty value unit`,`sparkline points label [unit]`, `sparkline_table points label [unit]`, `permit action as p`,
`act_button label permit [kind]`, `ask_link label url_name permit [about] [kind] [name=value...]`, `live_socket`.
Filters: `duration` (seconds or timedelta), `num`, `bytes`, `codes`, `short_id`, `message_state`, `state` (of a
verdict).
"""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django import template
from django.template.context import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console import charts
from console.permissions import Action, Allowed, Denied, may
from console.words import NBSP, bytes_words, clock_words, duration_words, number_words
from relay.types import Aspect, CappedCount, Verdict

register = template.Library()

Points = Sequence[tuple[datetime, float | None]]
SPARK_TABLE_ROWS = 12
_MESSAGE_STATES = {"success": Aspect.OK, "info": Aspect.INFO, "warning": Aspect.WARN, "error": Aspect.BAD}
_reason_ids = itertools.count(1)


@register.simple_tag
def aspect(state: str) -> SafeString:
    """The lamp of a state; words always stand beside it, so it is hidden from screen readers."""
    known = Aspect(state)
    return format_html(
        '<svg class="aspect" data-state="{0}" aria-hidden="true" focusable="false"><use href="#a-{0}"/></svg>',
        known.value,
    )


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of the sprite, decorative."""
    return format_html('<svg class="icon" aria-hidden="true" focusable="false"><use href="#i-{}"/></svg>', name)


@register.simple_tag
def verdict(judged: Verdict) -> SafeString:
    """Shape, colour and words of a verdict."""
    return format_html(
        '<span class="verdict" data-state="{}">{}<span>{}</span></span>',
        judged.aspect.value,
        aspect(judged.aspect),
        str(judged),
    )


@register.simple_tag
def badge(judged: Verdict | str, word: str = "") -> SafeString:
    """The state of a whole object beside its title: a verdict, or a state and its word."""
    state, text = (judged.aspect, judged.word) if isinstance(judged, Verdict) else (Aspect(judged), word or judged)
    return format_html('<span class="badge" data-state="{}">{} {}</span>', state.value, aspect(state), text)


@register.simple_tag
def when(at: datetime | None) -> SafeString:
    """A moment as a time element: the time of day, with its date when it is not today."""
    if at is None:
        return mark_safe('<span class="muted">never</span>')
    local, now = timezone.localtime(at), timezone.localtime()
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S %Z}",
        clock_words(local, now),
    )


@register.simple_tag
def asof(at: datetime | None) -> SafeString:
    """How old what is shown is: "as of 12:03:04"."""
    if at is None:
        return mark_safe('<span class="asof">not known yet</span>')
    return format_html('<span class="asof">as of {}</span>', when(at))


@register.simple_tag
def since(at: datetime, now: datetime) -> str:
    """How long ago `at` was, seen from `now`."""
    return duration_words(now - at)


@register.simple_tag
def page_url(name: str) -> str:
    """The address of a page by its URL name; Now for a page that this installation does not have."""
    try:
        return reverse(name)
    except NoReverseMatch:
        return reverse("now")


@register.simple_tag
def qty(value: float | CappedCount | None, unit: str = "") -> SafeString:
    """A number and its unit, never parted by a line break; a capped count says "at least"."""
    if value is None:
        return mark_safe('<span class="muted">unknown</span>')
    number = num(value)
    return format_html('<span class="nowrap">{}{}{}</span>', number, NBSP if unit else "", unit)


@register.simple_tag
def sparkline(points: Points | Sequence[float | None], label: str, unit: str = "") -> SafeString:
    """A small line of values, or (time, value) points, oldest first; its title says now, lowest and highest.

    Give it a table twin.
    """
    values = [point[1] if isinstance(point, tuple) else point for point in points]
    known = [value for value in values if value is not None]
    drawn = charts.sparkline(values)
    if not known:
        return format_html('<span class="spark-none small muted">{}: no samples yet</span>', label)
    words = f"{label}: now {number_words(values[-1])}{unit and NBSP + unit}, lowest {number_words(min(known))}, "
    words += f"highest {number_words(max(known))}"
    dot = format_html('<circle class="spark-now" cx="{}" cy="{}" r="2"/>', *drawn.end) if drawn.end else ""
    return format_html(
        '<svg class="spark" viewBox="0 0 {0} {1}" role="img" aria-label="{2}"><title>{2}</title>'
        '<path class="spark-base" d="M0 {3}H{0}"/><path class="spark-line" d="{4}"/>{5}</svg>',
        f"{drawn.width:.0f}",
        f"{drawn.height:.0f}",
        words,
        drawn.height - 0.5,
        drawn.path,
        dot,
    )


@register.simple_tag
def sparkline_table(points: Points, label: str, unit: str = "") -> SafeString:
    """The twin of a sparkline: the same points, newest first, thinned to a dozen rows, behind "Figures"."""
    rows = points[-1 :: -max(1, len(points) // SPARK_TABLE_ROWS)][:SPARK_TABLE_ROWS]
    body = format_html_join(
        "", '<tr><th scope="row">{}</th><td class="num">{}</td></tr>', ((when(at), number_words(v)) for at, v in rows)
    )
    return format_html(
        '<details class="twin"><summary>Figures</summary><table class="table"><caption>{}</caption><thead><tr>'
        '<th scope="col">Time</th><th scope="col" class="num">{}</th></tr></thead><tbody>{}</tbody></table></details>',
        label,
        unit or "Value",
        body,
    )


@register.simple_tag(takes_context=True)
def permit(context: Context, action: str) -> Allowed | Denied:
    """May the signed-in person do `action`? `{% permit "pause_relay" as p %}`, then `p.ok` and `p.reason`."""
    return may(context["request"].user, Action(action))


@register.simple_tag
def act_button(label: str, allowed: Allowed | Denied, kind: str = "") -> SafeString:
    """A submit button; without permission it stays reachable, `aria-disabled`, with the reason beside it."""
    style = f"btn btn-{kind}" if kind else "btn"
    if isinstance(allowed, Allowed):
        return format_html('<button class="{}" type="submit">{}</button>', style, label)
    reason_id = f"why-{next(_reason_ids)}"
    return format_html(
        '<button class="btn" type="button" aria-disabled="true" aria-describedby="{}">{}</button>'
        '<span class="why" id="{}">{}</span>',
        reason_id,
        label,
        reason_id,
        allowed.reason,
    )


@register.simple_tag(takes_context=True)
def ask_link(
    context: Context,
    label: str,
    url_name: str,
    allowed: Allowed | Denied,
    *,
    about: str = "",
    kind: str = "",
    **query: object,
) -> SafeString:
    """A link to the page that asks before an act; with JavaScript the question opens in a dialog.

    `about` names the object for those who do not see the row. Without permission it is a button with the reason
    beside it; a small one, of which a table has many, has it for screen readers and in its title: say it once below.
    """
    words = format_html('{}<span class="vh"> {}</span>', label, about) if about else format_html("{}", label)
    style = f"btn btn-{kind}" if kind else "btn"
    if isinstance(allowed, Denied):
        reason_id = f"why-{next(_reason_ids)}"
        return format_html(
            '<button class="{0}" type="button" aria-disabled="true" aria-describedby="{1}" title="{2}">{3}</button>'
            '<span class="{4}" id="{1}">{2}</span>',
            style,
            reason_id,
            allowed.reason,
            words,
            "vh" if kind == "small" else "why",
        )
    asked = {**query, "next": context["request"].get_full_path()}
    address = f"{reverse(url_name)}?{urlencode({name: value for name, value in asked.items() if value is not None})}"
    return format_html('<a class="{}" href="{}" data-ask>{}</a>', style, address, words)


@register.simple_tag
def live_socket() -> str:
    """The path of the live socket."""
    return "/ws/live"


@register.filter
def duration(seconds: float | timedelta | None) -> str:
    """Seconds in words: "4 m 10 s"."""
    return duration_words(seconds)


@register.filter
def num(value: float | CappedCount | None) -> str:
    """A number with thousands separators; "at least 10,000" for a capped count."""
    if isinstance(value, CappedCount):
        return f"at least {number_words(value.value)}" if value.capped else number_words(value.value)
    return number_words(value)


@register.filter(name="bytes")
def size(count: int | None) -> str:
    """A size in words: "1.4 kB"."""
    return bytes_words(count)


@register.filter
def codes(text: str) -> SafeString:
    """Text in which `words` between backticks are shown as code; everything is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return format_html("{}", text)
    return format_html_join(
        "",
        "{}{}",
        ((part if at % 2 == 0 else format_html("<code>{}</code>", part), "") for at, part in enumerate(parts)),
    )


@register.filter
def short_id(value: object) -> str:
    """The last 8 characters of an id: enough to recognise, the whole stands in the title or the link."""
    return str(value)[-8:]


@register.filter
def state(judged: Verdict) -> str:
    """The value for `data-state` of a verdict."""
    return judged.aspect.value


@register.filter
def message_state(level_tag: str) -> str:
    """The state of a message of Django's messages framework."""
    return _MESSAGE_STATES.get(level_tag, Aspect.INFO).value
