"""`manage.py replay_job list|show|items|pause|resume|cancel|rate|failed`: watch and hold replays of dead letters."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.actions import dlq as acts
from console.api.replay_shapes import ItemPageShape, JobPageShape, JobShape, PreviewShape
from console.management.acting import add_actor, as_json, find_actor, one_id, refusals
from console.replay_words import judge_job
from console.words import number_words
from dlq import facade as dlq
from dlq.types import ReplayJob, ReplayOutcome


class Command(BaseCommand):
    """An act names the version that was seen (--version of `show`); without it, the version of this moment."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(
            dest="what", required=True, metavar="list|show|items|pause|resume|cancel|rate|failed"
        )
        listed = what.add_parser("list", help="the newest replays")
        _paged(listed)
        shown = _on_job(what, "show", "one replay")
        items = _on_job(what, "items", "its dead letters, each with its outcome")
        items.add_argument("--outcome", choices=[o.value for o in ReplayOutcome])
        _paged(items)
        for parser_with_json in (listed, shown, items):
            parser_with_json.add_argument("--json", action="store_true", help="as the API shows it")
        for name, words in (("pause", "begin no more"), ("resume", "go on"), ("cancel", "end it; needs --reason")):
            held = _on_job(what, name, words)
            held.add_argument("--reason", default="")
            _acting(held)
        rate = _on_job(what, "rate", "how many a second may begin")
        rate.add_argument("rate", type=_rate, metavar="PER_S|max")
        _acting(rate)
        failed = _on_job(what, "failed", "preview a replay of what failed in it")
        add_actor(failed)

    def handle(self, **options: Any) -> None:
        with refusals():
            getattr(self, f"_{options['what']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        page = dlq.list_replays(options["cursor"], options["limit"])
        if options["json"]:
            self.stdout.write(as_json(JobPageShape, page))
            return
        for job in page.jobs:
            self.stdout.write(_line(job))
        self._more(page.next_cursor, "No replay was ever started." if not page.jobs else "")

    def _show(self, options: dict[str, Any]) -> None:
        job = dlq.get_replay(options["job"])
        self.stdout.write(as_json(JobShape, job) if options["json"] else _line(job))

    def _items(self, options: dict[str, Any]) -> None:
        outcome = ReplayOutcome(options["outcome"]) if options["outcome"] else None
        page = dlq.list_replay_items(options["job"], outcome, options["cursor"], options["limit"])
        if options["json"]:
            self.stdout.write(as_json(ItemPageShape, page))
            return
        for item in page.items:
            why = item.error_class or item.why
            self.stdout.write(
                f"{item.dead_letter_id}  {item.outcome}  {item.topic} {item.partition}/{item.offset}  {why}".rstrip()
            )
        self._more(page.next_cursor, "None." if not page.items else "")

    def _pause(self, options: dict[str, Any]) -> None:
        self._held(acts.pause_replay, options)

    def _resume(self, options: dict[str, Any]) -> None:
        self._held(acts.resume_replay, options)

    def _cancel(self, options: dict[str, Any]) -> None:
        self._held(acts.cancel_replay, options)

    def _rate(self, options: dict[str, Any]) -> None:
        actor = find_actor(options["actor"])
        job = acts.set_replay_rate(actor, options["job"], seen=_seen(options), rate_per_s=options["rate"])
        self.stdout.write(_line(job))

    def _failed(self, options: dict[str, Any]) -> None:
        found = acts.preview_failed(find_actor(options["actor"]), options["job"], rate_per_s=None)
        self.stdout.write(as_json(PreviewShape, found))

    def _held(self, act: Any, options: dict[str, Any]) -> None:
        actor = find_actor(options["actor"])
        self.stdout.write(_line(act(actor, options["job"], seen=_seen(options), reason=options["reason"])))

    def _more(self, cursor: str | None, words: str) -> None:
        if cursor:
            self.stdout.write(f"More: --cursor {cursor}")
        elif words:
            self.stdout.write(words)


def _on_job(what: Any, name: str, words: str) -> CommandParser:
    parser: CommandParser = what.add_parser(name, help=words)
    parser.add_argument("job", type=one_id, help="the replay's id")
    return parser


def _paged(parser: CommandParser) -> None:
    parser.add_argument("--cursor", help="from the page before")
    parser.add_argument("--limit", type=int, default=50)


def _acting(parser: CommandParser) -> None:
    add_actor(parser)
    parser.add_argument("--seen", type=int, metavar="VERSION", help="refuse when it has changed since this version")


def _seen(options: dict[str, Any]) -> int:
    return dlq.get_replay(options["job"]).version if options["seen"] is None else int(options["seen"])


def _rate(text: str) -> float | None:
    return None if text == "max" else float(text)


def _line(job: ReplayJob) -> str:
    verdict = judge_job(job)
    why = f" ({verdict.reason})" if verdict.reason else ""
    done = f"{number_words(job.settled)} of {number_words(job.total)}"
    parts = [
        str(job.id), f"{verdict.word}{why}", job.group, f"{done} have an outcome", f"applied {job.applied}",
        f"deduplicated {job.deduplicated}", f"sent {job.sent}", f"failed {job.failed}", f"skipped {job.skipped}",
        f"version {job.version}",
    ]  # fmt: skip
    return "  ".join(parts)
