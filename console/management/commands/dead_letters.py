"""`manage.py dead_letters ...`: list, show, preview, replay, discard and restore dead letters; release keys."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.actions import discards
from console.actions import dlq as acts
from console.api.replay_shapes import KeyPageShape, PreviewShape
from console.api.shapes import LetterDetailShape, LetterPageShape
from console.management.acting import (
    STALE,
    add_actor,
    add_filter,
    as_json,
    find_actor,
    one_id,
    read_filter,
    read_selection,
    refusals,
)
from console.models import SecondRequest
from console.replay_words import scope_words
from dlq import facade as dlq
from dlq.types import VERDICT_WORDS, QuarantineFilter, ReplayPreview


class Command(BaseCommand):
    """Contents are never printed. Acts need --actor: an account whose permissions decide, and whose name is audited."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(
            dest="what", required=True, metavar="list|show|preview|replay|discard|restore|keys|release"
        )
        listed = what.add_parser("list", help="dead letters, newest first")
        add_filter(listed)
        _paged(listed)
        shown = what.add_parser("show", help="one dead letter, as JSON")
        shown.add_argument("id", type=one_id)
        preview = what.add_parser("preview", help="freeze a selection and say what a replay of it would do")
        preview.add_argument("ids", type=one_id, nargs="*", metavar="ID")
        add_filter(preview)
        preview.add_argument("--rate", type=float, help="dead letters a second; not given: as fast as they can")
        preview.add_argument("--json", action="store_true", help="as the API shows it")
        add_actor(preview)
        replay = what.add_parser("replay", help="start the replay of a preview, once")
        replay.add_argument("preview", type=one_id, help="the id that `preview` printed")
        replay.add_argument("--rate", type=float)
        replay.add_argument("--reason", default="")
        add_actor(replay)
        discard = what.add_parser("discard", help="end what a preview froze; restorable for some days")
        discard.add_argument("preview", type=one_id, help="the id that `preview` printed")
        restore = what.add_parser("restore", help="park a discarded one again")
        restore.add_argument("id", type=one_id)
        for acting in (discard, restore):
            acting.add_argument("--reason", required=True)
            add_actor(acting)
        keys = what.add_parser("keys", help="quarantined keys, newest first")
        for name in ("group", "topic", "key"):
            keys.add_argument(f"--{name}", default="")
        _paged(keys)
        release = what.add_parser("release", help="replay a quarantined key in order")
        release.add_argument("id", type=one_id, help="the id that `keys` printed")
        release.add_argument("--reason", required=True)
        add_actor(release)

    def handle(self, **options: Any) -> None:
        with refusals():
            getattr(self, f"_{options['what']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        page = dlq.list_dead_letters(read_filter(options), cursor=options["cursor"], limit=options["limit"])
        if options["json"]:
            self.stdout.write(as_json(LetterPageShape, page))
            return
        for row in page.rows:
            place = f"{row.topic} {row.partition}/{row.offset}"
            self.stdout.write(
                f"{row.id}  {row.state}  {row.parked_at:%Y-%m-%dT%H:%M:%SZ}  {place}  {row.group}  {row.key_label}"
                f"  {row.error_class}  tries {row.attempts}"
            )
        self._more(page.next_cursor, is_empty=not page.rows)

    def _show(self, options: dict[str, Any]) -> None:
        found = dlq.get_dead_letter(options["id"])
        if found is None:
            raise CommandError(f"There is no dead letter {options['id']}.", returncode=STALE)
        self.stdout.write(as_json(LetterDetailShape, found))

    def _preview(self, options: dict[str, Any]) -> None:
        selection, actor = read_selection(options), find_actor(options["actor"])
        found = acts.preview_replay(actor, selection, rate_per_s=options["rate"])
        self.stdout.write(as_json(PreviewShape, found) if options["json"] else _preview_words(found))

    def _replay(self, options: dict[str, Any]) -> None:
        actor = find_actor(options["actor"])
        self._done(acts.start_replay(actor, options["preview"], rate_per_s=options["rate"], reason=options["reason"]))

    def _discard(self, options: dict[str, Any]) -> None:
        done = discards.discard_frozen(find_actor(options["actor"]), options["preview"], reason=options["reason"])
        if isinstance(done, SecondRequest):
            self._asked(done, "discarded")
            return
        self.stdout.write(
            f"discard {done.id}: {done.discarded} discarded, {done.in_replay} in a replay,"
            f" {done.skipped} not parked any more. Restorable until {done.restorable_until:%Y-%m-%dT%H:%M:%SZ}."
        )

    def _restore(self, options: dict[str, Any]) -> None:
        discards.restore_dead_letter(find_actor(options["actor"]), options["id"], reason=options["reason"])
        self.stdout.write(f"{options['id']} is parked again.")

    def _keys(self, options: dict[str, Any]) -> None:
        wanted = QuarantineFilter(group=options["group"], topic=options["topic"], key_label=options["key"])
        page = dlq.list_quarantined(options["cursor"], options["limit"], wanted)
        if options["json"]:
            self.stdout.write(as_json(KeyPageShape, page))
            return
        for key in page.keys:
            self.stdout.write(
                f"{key.id}  {key.group}  {key.topic}  {key.key_label}  behind {key.letters - 1}"
                f"  since {key.quarantined_at:%Y-%m-%dT%H:%M:%SZ}  {key.head.error_class}"
            )
        self._more(page.next_cursor, is_empty=not page.keys)

    def _release(self, options: dict[str, Any]) -> None:
        self._done(acts.release_key(find_actor(options["actor"]), options["id"], reason=options["reason"]))

    def _done(self, done: acts.Started | acts.Asked) -> None:
        if isinstance(done, acts.Asked):
            self._asked(done.request, "replayed")
            return
        waiting = f" ({done.job.waiting_for})" if done.job.waiting_for else ""
        self.stdout.write(f"replay {done.job.id}: {done.job.total} dead letters{waiting}")

    def _asked(self, request: SecondRequest, done: str) -> None:
        self.stdout.write(
            f"request {request.pk}: nothing is {done} yet. Another person confirms it in the console until"
            f" {request.expires_at:%Y-%m-%dT%H:%M:%SZ}."
        )

    def _more(self, cursor: str | None, *, is_empty: bool) -> None:
        if cursor:
            self.stdout.write(f"More: --cursor {cursor}")
        elif is_empty:
            self.stdout.write("None.")


def _paged(parser: CommandParser) -> None:
    parser.add_argument("--cursor", help="from the page before")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="as the API shows it")


def _preview_words(found: ReplayPreview) -> str:
    lines = [f"preview {found.id}", f"{scope_words(found, found.rate_per_s)}."]
    lines += [f"{count:>8}  {VERDICT_WORDS[verdict]}" for verdict, count in found.counts.items()]
    if found.needs_second:
        lines.append("So many need a reason and a second person.")
    lines.append(f"Start it with: manage.py dead_letters replay {found.id} --actor NAME")
    return "\n".join(lines)
