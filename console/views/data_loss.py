"""A data loss (D7): what a group lost, what is kept, where it may go on; and the choice of a person."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.actions.lag import settle_data_loss, start_group, stop_group
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_name
from console.permissions import Action
from console.views.acts import run_act
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from console.views.rewind import read_number, read_time
from dlq import facade as dlq
from dlq.facade import DataLoss
from dlq.types import LossChoice
from relay.facade import BadRewind, RewindUnavailable, list_processes, preview_rewind
from relay.types import RewindStep, RewindStrategy, RewindWish, Role

BY_TIME = "time"
CHOICES = (
    (LossChoice.FIRST.value, "From the first record that Kafka keeps"),
    (LossChoice.OFFSET.value, "From an offset"),
    (BY_TIME, "From a time"),
    (LossChoice.END.value, "From the end"),
    (LossChoice.STAY.value, "Stay stopped"),
)
DONE = {
    LossChoice.FIRST: "The partition goes on from the first record that is kept, within seconds if a consumer runs.",
    LossChoice.OFFSET: "The partition goes on from offset {offset:,}, within seconds if a consumer runs.",
    LossChoice.END: "The partition goes on from the end, within seconds if a consumer runs.",
    LossChoice.STAY: "The partition stays stopped. The incident stays open; you can choose again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the log keeps now. `begin_at` is the first kept record's own time."""

    begin: int | None
    end: int | None
    committed: int | None
    begin_at: datetime | None


@require_safe
@permitted(Action.VIEW)
def data_loss(request: HttpRequest, loss_id: int) -> HttpResponse:
    """Show what is lost and kept, and the choice."""
    loss = dlq.get_loss(loss_id)
    if loss is None:
        raise Http404("There is no such data loss.")
    kept = read_or_fault("What Kafka keeps could not be read", _read_kept, loss)
    context = {
        "loss": loss,
        "as_of": timezone.now(),
        "kept": None if isinstance(kept, Fault) else kept,
        "fault": kept if isinstance(kept, Fault) else None,
        "choices": CHOICES,
        "choice_words": _choice_words(loss),
        "alive": _consumers_alive(loss.group),
        "group_url": f"{reverse('lag_history')}?{urlencode({'group': loss.group, 'topic': loss.place.topic})}",
    }
    return render_page(request, "lag/data_loss.html", context)


@require_POST
@permitted(Action.SETTLE_DATA_LOSS)
def data_loss_settle(request: HttpRequest, loss_id: int) -> HttpResponse:
    """Take the choice: 409 when it is settled or chosen meanwhile, 422 without a usable reason or offset."""
    back = reverse("data_loss", args=[loss_id])
    try:
        choice, offset = _read_choice(request, loss_id)
    except (BadFilter, BadRewind, RewindUnavailable) as refused:
        return refuse_filter(request, str(refused), page="the data loss", back=back)
    return run_act(
        request,
        lambda: settle_data_loss(
            request.user,
            loss_id,
            choice,
            seen=request.POST.get("seen", ""),
            reason=request.POST.get("reason", ""),
            offset=offset,
        ),
        done=DONE[LossChoice(choice)].format(offset=offset) if choice in DONE else "",
        back=back,
    )


@require_POST
@permitted(Action.SWITCH_GROUP)
def group_stop(request: HttpRequest) -> HttpResponse:
    """Stop a group's consumers, with a reason."""
    return _switch(
        request, "is stopped: its consumers finish what runs, leave the group and wait until it is started.", stop=True
    )


@require_POST
@permitted(Action.SWITCH_GROUP)
def group_start(request: HttpRequest) -> HttpResponse:
    """Start a group's consumers again."""
    return _switch(request, "is started: its consumers join it again within seconds.", stop=False)


def _switch(request: HttpRequest, done: str, *, stop: bool) -> HttpResponse:
    try:
        group = read_name(request.POST, "group")
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Lag", back=reverse("lag"))
    reason = request.POST.get("reason", "")
    return run_act(
        request,
        lambda: stop_group(request.user, group, reason=reason) if stop else start_group(request.user, group),
        done=f"{group} {done}",
        back=f"{reverse('lag_history')}?{urlencode({'group': group})}",
    )


# -- Reading -----------------------------------------------------------------------------------------------
def _read_choice(request: HttpRequest, loss_id: int) -> tuple[str, int | None]:
    """What was chosen, and its offset; a time becomes the offset that Kafka has for it now."""
    choice = request.POST.get("choice", "")
    if choice not in (LossChoice.OFFSET, BY_TIME):
        return choice, None
    loss = dlq.get_loss(loss_id)
    if loss is None:
        raise Http404("There is no such data loss.")
    if choice == BY_TIME:
        step = _ask(loss, RewindStrategy.TIME, at=read_time(request.POST))
        wanted = step.after
    else:
        step = _ask(loss, RewindStrategy.EARLIEST)
        wanted = read_number(request.POST, "offset")
    if wanted is None or step.begin is None or step.end is None:
        raise BadFilter(f"Kafka did not tell the offsets of {loss.place}: {step.error or 'try again'}.")
    if not step.begin <= wanted <= step.end:
        raise BadFilter(f"Kafka keeps {step.begin:,} to {step.end:,} of {loss.place}, not {wanted:,}.")
    return LossChoice.OFFSET.value, wanted


def _choice_words(loss: DataLoss) -> str:
    if loss.chosen_offset is not None:
        return f"From offset {loss.chosen_offset:,}"
    return dict(CHOICES).get(loss.choice.value, "")


def _ask(loss: DataLoss, strategy: RewindStrategy, at: datetime | None = None) -> RewindStep:
    wish = RewindWish(
        group=loss.group, topic=loss.place.topic, strategy=strategy, partitions=(loss.place.partition,), at=at
    )
    return preview_rewind(wish).steps[0]


def _read_kept(loss: DataLoss) -> Kept:
    step = _ask(loss, RewindStrategy.EARLIEST)
    return Kept(begin=step.begin, end=step.end, committed=step.before, begin_at=step.after_at)


def _consumers_alive(group: str) -> list[str]:
    """The names of living consumers of the group."""
    found = [p for p in list_processes() if p.role is Role.CONSUMER and p.facts.get("group") == group]
    return sorted(p.name for p in found if p.verdict.word != "lost" and p.verdict.aspect.value in {"ok", "warn"})
