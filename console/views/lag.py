"""Lag: every consumer group, worst first; one group on one topic over time; the allowed lag."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.actions.lag import set_allowed_lag
from console.charts import CHART_POINTS, Series
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice, read_name, read_page, read_text
from console.history import SPANS, History, HistoryTexts, Window, draw_history, history_data, read_window
from console.lag_table import (
    LagFilter,
    chart_series,
    chart_words,
    count_verdicts,
    lag_table,
    lead_sentence,
    list_partitions,
    list_unread,
    worst_first,
)
from console.permissions import Action
from console.views.acts import run_act
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from dlq import facade as dlq
from relay.facade import get_lag_history, get_lag_overview, get_lag_state
from relay.types import GroupLag, LagOverview, LagWord

ANY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPanel:
    """The lag of one group on one topic over a window."""

    group: GroupLag
    topic: str
    history: History


@require_safe
@permitted(Action.VIEW)
def lag(request: HttpRequest) -> HttpResponse:
    """Show every group's partitions, worst first, and the chart of the worst or the chosen one."""
    try:
        wanted, window = _read_filter(request.GET), read_window(request.GET, timezone.now())
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Lag", back=reverse("lag"))
    overview = read_or_fault("The lag of the consumer groups could not be read", get_lag_overview)
    if isinstance(overview, Fault):
        return render_page(request, "lag/lag.html", {"fault": overview, "as_of": timezone.now()})
    now = timezone.now()
    wanted = _as_named(wanted, overview)
    table = lag_table(
        overview.groups, wanted, now=now, page_rows=settings.LAG_PAGE_ROWS, group_rows=settings.LAG_GROUP_ROWS
    )
    group = _charted_group(overview, wanted)
    context = {
        **_collector(overview),
        "lead": lead_sentence(overview),
        "counts": count_verdicts(overview.groups),
        "table": table,
        "wanted": wanted,
        "group_names": sorted(group.group for group in overview.groups),
        "topic_names": sorted({p.topic for _, p in list_partitions(overview.groups)}),
        "words": [word.value for word in LagWord],
        "panel": _read_panel(group, _charted_topic(group, wanted), window, now) if group else None,
        "windows": list(SPANS),
    }
    return render_page(request, "lag/lag.html", context)


@require_safe
@permitted(Action.VIEW)
def lag_history(request: HttpRequest) -> HttpResponse:
    """Show one group: its facts, one topic's lag over time, its partitions, and its allowed lag."""
    return _group_page(request, request.GET)


@require_safe
@permitted(Action.VIEW)
def lag_history_data(request: HttpRequest) -> HttpResponse:
    """Give the lines of one group on one topic as JSON: what `static/js/history.js` draws."""
    try:
        wanted, window = _read_filter(request.GET), read_window(request.GET, timezone.now())
    except BadFilter as refused:
        return JsonResponse({"error": str(refused)}, status=422)
    overview = get_lag_state()
    wanted = _as_named(wanted, overview)
    group = next((group for group in overview.groups if group.group == wanted.group), None)
    if group is None or not wanted.topic:
        return JsonResponse({"error": "No such consumer group, or no topic is named."}, status=404)
    response = JsonResponse(history_data(_read_series(group, wanted.topic, window), window, limit=group.allowed_lag))
    response["Cache-Control"] = "no-store"
    return response


class AllowedLagForm(forms.Form):
    """The lag that a partition may have and still be ok; `seen` is what the person's page showed."""

    value = forms.IntegerField(
        min_value=0,
        max_value=settings.LAG_ALLOWED_MAX,
        error_messages={
            "required": "Type a number of offsets, for example 50.",
            "invalid": "Type a whole number of offsets, for example 50.",
            "min_value": "An allowed lag cannot be negative; 0 allows none.",
            "max_value": f"At most {settings.LAG_ALLOWED_MAX:,} offsets.",
        },
    )
    seen = forms.IntegerField(required=False)


@require_POST
@permitted(Action.SET_ALLOWED_LAG)
def lag_allowed(request: HttpRequest) -> HttpResponse:
    """Set a group's allowed lag; a value that cannot be used shows the page again with what is wrong."""
    form = AllowedLagForm(request.POST)
    try:
        group = read_name(request.POST, "group")
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Lag", back=reverse("lag"))
    if not form.is_valid():
        error = (
            " ".join(str(text) for text in form["value"].errors) or "The form was changed on its way. Load it again."
        )
        return _group_page(request, request.POST, error=error, typed=request.POST.get("value", ""), status=422)
    value, seen = form.cleaned_data["value"], form.cleaned_data["seen"]
    return run_act(
        request,
        lambda: set_allowed_lag(request.user, group, value, seen=seen),
        done=f"The allowed lag of {group} is {value:,} now. The next pass judges by it.",
        back=f"{reverse('lag_history')}?{urlencode({'group': group})}",
    )


def _group_page(
    request: HttpRequest, query: QueryDict, *, error: str = "", typed: str = "", status: int = 200
) -> HttpResponse:
    """Render a group's page; with `error` and what was `typed`, the allowed-lag form says what is wrong."""
    try:
        wanted, window = _read_filter(query), read_window(query, timezone.now())
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Lag", back=reverse("lag"))
    overview = read_or_fault("The lag of the consumer groups could not be read", get_lag_overview)
    if isinstance(overview, Fault):
        return render_page(request, "lag/group.html", {"fault": overview, "wanted": wanted, "as_of": timezone.now()})
    now = timezone.now()
    wanted = _as_named(wanted, overview)
    group = next((group for group in overview.groups if group.group == wanted.group), None)
    if group is None:
        context = {**_collector(overview), "wanted": wanted, "group": None}
        return render_page(request, "lag/group.html", context, status=404 if wanted.group else 200)
    topic = _charted_topic(group, wanted)
    page_url = f"{reverse('lag_history')}?{urlencode({'group': group.group, 'topic': wanted.topic, **window.query})}"
    table = lag_table([group], wanted, now=now, page_rows=settings.LAG_PAGE_ROWS, group_rows=settings.LAG_GROUP_ROWS)
    context = {
        **_collector(overview),
        "unread": list_unread([group]),
        "errors": overview.errors if group.error else [],
        "wanted": wanted,
        "group": group,
        "topic_names": sorted({p.topic for p in group.partitions}),
        "table": table,
        "panel": _read_panel(group, topic, window, now),
        "windows": list(SPANS),
        "form_error": error,
        "is_ours": any(spec.name == group.group for spec in dlq.list_groups()),
        "switch": dlq.get_switch(group.group),
        "losses": dlq.list_open_losses(group.group),
        "holds": dlq.list_holds(group.group),
        "typed": typed or group.allowed_lag,
        "page_url": page_url,
        # The answer to a form stands at the form's address; its panels live on from the page's.
        "live_url": page_url if error else "",
    }
    return render_page(request, "lag/group.html", context, status=status)


# -- Reading -----------------------------------------------------------------------------------------------
def _read_filter(query: QueryDict) -> LagFilter:
    return LagFilter(
        group=read_name(query, "group"),
        topic=read_text(query, "topic"),
        verdict=read_choice(query, "verdict", [word.value for word in LagWord], ANY) if query.get("verdict") else ANY,
        page=read_page(query),
    )


def _as_named(wanted: LagFilter, overview: LagOverview) -> LagFilter:
    """The filter with the group's name as Kafka has it: spaces around a name count only where a group has them."""
    if wanted.group == wanted.group.strip() or any(group.group == wanted.group for group in overview.groups):
        return wanted
    return replace(wanted, group=wanted.group.strip())


def _read_panel(group: GroupLag, topic: str, window: Window, now: datetime) -> ChartPanel | Fault | None:
    if not topic:
        return None
    return read_or_fault(f"The lag history of {group.group} could not be read", _draw_panel, group, topic, window, now)


def _draw_panel(group: GroupLag, topic: str, window: Window, now: datetime) -> ChartPanel:
    series = _read_series(group, topic, window)
    texts = HistoryTexts(
        id="lag",
        title=f"Lag of {group.group} on {topic}",
        unit="offsets",
        what="partition",
        words=chart_words(series),
    )
    history = draw_history(
        series,
        texts,
        window,
        now=now,
        zone=timezone.get_current_timezone(),
        path=reverse("lag_history_data"),
        query={"group": group.group, "topic": topic},
        limit=group.allowed_lag,
        times=settings.LAG_CHART_TIMES,
        most_rows=settings.LAG_PAGE_ROWS,
    )
    return ChartPanel(group=group, topic=topic, history=history)


def _read_series(group: GroupLag, topic: str, window: Window) -> list[Series]:
    history = get_lag_history(group.group, topic=topic, since=window.since, until=window.until, max_points=CHART_POINTS)
    return chart_series(history, [p for p in group.partitions if p.topic == topic])


def _charted_group(overview: LagOverview, wanted: LagFilter) -> GroupLag | None:
    """The chosen group, else the worst one that has the chosen topic."""
    groups: Sequence[GroupLag] = [group for group in overview.groups if _charted_topic(group, wanted)]
    return next((group for group in groups if wanted.group in {ANY, group.group}), None)


def _charted_topic(group: GroupLag, wanted: LagFilter) -> str:
    """The chosen topic when the group has it, else the topic of the group's worst partition; empty when none."""
    found = [p for p in group.partitions if wanted.topic in {ANY, p.topic}]
    worst = min(found, key=worst_first, default=None)
    return worst.topic if worst else ""


def _collector(overview: LagOverview) -> dict[str, object]:
    """What the page says about the age of its numbers and about what could not be read."""
    return {
        "overview": overview,
        "as_of": overview.as_of,
        "collect_every_s": settings.LAG_COLLECT_EVERY_S,
        "errors": overview.errors,
        "unread": list_unread(overview.groups),
    }
