"""Relay: what waits unsent and why, who publishes, which keys and topics are held, and how it was lately."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.charts import CHART_POINTS
from console.context import is_live_refresh
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice
from console.history import SPANS, History, Window, draw_history, history_data, read_window
from console.permissions import Action
from console.relay_history import FIGURES
from console.shard_map import shard_map
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from relay.facade import (
    get_outbox_state,
    get_relay_history,
    get_relay_status,
    list_pauses,
    list_relay_policies,
    list_skipped,
)
from relay.types import (
    Aspect,
    DeferredKey,
    OutboxState,
    RelayPause,
    RelayPoint,
    RelayPolicy,
    RelayStatus,
    SkippedRow,
    TopicUnsent,
    UnsentRow,
)

ALL_FIGURES = "unsent"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """One topic on the page: what waits, whether somebody paused it, and its policy (None = not declared here).

    `keys_set_aside`: keys that wait after a failure, among those that the status names.
    """

    topic: str
    unsent: TopicUnsent | None
    keys_set_aside: int
    pause: RelayPause | None
    policy: RelayPolicy | None


@require_safe
@permitted(Action.VIEW)
def relay(request: HttpRequest) -> HttpResponse:
    """Show what needs a person first, then everything that explains it."""
    try:
        window = read_window(request.GET, timezone.now())
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Relay", back=reverse("relay"))
    found = read_or_fault("The state of the relay could not be read", _read_page)
    if isinstance(found, Fault):
        return render_page(request, "relay/relay.html", {"fault": found, "as_of": timezone.now()})
    context = {
        **found,
        # The charts have an address of their own to be refreshed from: see templates/relay/history.html.
        "charts": None if is_live_refresh(request) else _read_charts(window),
        "window": window,
        "windows": list(SPANS),
    }
    return render_page(request, "relay/relay.html", context)


@require_safe
@permitted(Action.VIEW)
def relay_history(request: HttpRequest) -> HttpResponse:
    """Show the relay over time, on a page of its own."""
    try:
        window = read_window(request.GET, timezone.now())
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Relay history", back=reverse("relay_history"))
    context = {"charts": _read_charts(window), "window": window, "windows": list(SPANS), "as_of": timezone.now()}
    return render_page(request, "relay/history_page.html", context)


@require_safe
@permitted(Action.VIEW)
def relay_history_data(request: HttpRequest) -> HttpResponse:
    """Give the lines of one chart as JSON: what `static/js/history.js` draws."""
    try:
        window = read_window(request.GET, timezone.now())
        figure = FIGURES[read_choice(request.GET, "figure", list(FIGURES), ALL_FIGURES)]
    except BadFilter as refused:
        return JsonResponse({"error": str(refused)}, status=422)
    response = JsonResponse(history_data(figure.series(_read_points(window)), window))
    response["Cache-Control"] = "no-store"
    return response


# -- Reading -----------------------------------------------------------------------------------------------
def _read_page() -> dict[str, object]:
    status = get_relay_status()
    pauses, policies = list_pauses(), list_relay_policies()
    outbox: OutboxState = get_outbox_state()
    skipped: Sequence[SkippedRow] = list_skipped(settings.RELAY_SKIPPED_SHOWN)
    paused = {(pause.topic, pause.key_label) for pause in pauses}
    set_aside = [key for key in status.deferred if key.failed or (key.topic, key.key_label) not in paused]
    return {
        "relay": status,
        "as_of": status.as_of,
        "waiting": _worth_listing(status),
        "waiting_shown_s": settings.RELAY_WAITING_SHOWN_S,
        "map": shard_map(status.shards, status.runners),
        "failed": [key for key in set_aside if key.failed][: settings.RELAY_HELD_SHOWN],
        "retried": [key for key in set_aside if not key.failed][: settings.RELAY_HELD_SHOWN],
        "failed_count": sum(key.failed for key in set_aside),
        "holds": [hold for hold in status.holds if (hold.topic, None) not in paused],
        "topic_pauses": [pause for pause in pauses if pause.key is None],
        "key_pauses": [pause for pause in pauses if pause.key is not None],
        "topics": _topic_lines(status, set_aside, pauses, policies),
        "skipped": skipped,
        "outbox": outbox,
        "partitions_low": status.partitions_ahead <= settings.RELAY_PARTITIONS_LOW,
        "partitions_wanted": settings.RELAY_PARTITIONS_AHEAD,
        "retention": settings.RELAY_OUTBOX_RETENTION,
    }


def _worth_listing(status: RelayStatus) -> list[UnsentRow]:
    """While all is well, rows that were only just committed come and go too fast to be read."""
    if status.verdict.aspect is not Aspect.OK:
        return list(status.waiting)[: settings.RELAY_OLDEST_LISTED]
    seen = [row for row in status.waiting if row.age_s >= settings.RELAY_WAITING_SHOWN_S]
    return seen[: settings.RELAY_OLDEST_LISTED]


def _topic_lines(
    status: RelayStatus,
    set_aside: Sequence[DeferredKey],
    pauses: Sequence[RelayPause],
    policies: Sequence[RelayPolicy],
) -> list[TopicLine]:
    """Every declared topic and every topic with unsent rows; those that wait first, then by name."""
    unsent = {topic.topic: topic for topic in status.unsent_by_topic}
    declared = {policy.topic: policy for policy in policies}
    paused = {pause.topic: pause for pause in pauses if pause.key is None}
    keys = Counter(key.topic for key in set_aside)
    names = sorted(
        unsent.keys() | declared.keys() | paused.keys(),
        key=lambda name: (name not in paused, -(unsent[name].unsent.value if name in unsent else 0), name),
    )
    lines = (
        TopicLine(
            topic=name,
            unsent=unsent.get(name),
            keys_set_aside=keys[name],
            pause=paused.get(name),
            policy=declared.get(name),
        )
        for name in names
    )
    return list(lines)[: settings.RELAY_TOPICS_SHOWN]


# -- Charts ------------------------------------------------------------------------------------------------
def _read_charts(window: Window) -> list[History] | Fault:
    return read_or_fault("The history of the relay could not be read", _draw_charts, window)


def _draw_charts(window: Window) -> list[History]:
    points = _read_points(window)
    return [
        draw_history(
            figure.series(points),
            figure.texts,
            window,
            now=timezone.now(),
            zone=timezone.get_current_timezone(),
            path=reverse("relay_history_data"),
            query={"figure": name},
        )
        for name, figure in FIGURES.items()
    ]


def _read_points(window: Window) -> list[RelayPoint]:
    return get_relay_history(since=window.since, until=window.until, max_points=CHART_POINTS)
