"""`manage.py policy list|show|set|simulate|withdraw|rollback`: policies of consumers and of the relay's topics."""

import json
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.http import QueryDict

from console.actions import policies as acts
from console.management.acting import WRONG, add_actor, find_actor, refusals
from console.policy_scopes import SCOPES, Document, Scope, compare, simulate_document, source_words
from console.policy_words import say_simulation
from dlq import facade as dlq
from relay.types import PolicyScope

DOCUMENT_BYTES = 64 * 1024


class Command(BaseCommand):
    """A subject is `*` (everything), GROUP, GROUP/TOPIC or GROUP/TOPIC/TYPE; of the relay it is a topic.

    An act names the version that was seen; without --seen it is the version of this moment.
    """

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True, metavar="list|show|set|simulate|withdraw|rollback")
        what.add_parser("list", help="what counts for every target of the consumers")
        shown = _on_subject(what, "show", "what counts for one, with its versions")
        shown.add_argument("--json", action="store_true", help="the document alone, to edit and give to set")
        for name, words in (("set", "set it as its next version"), ("simulate", "what it would have done")):
            _changing(_on_subject(what, name, words), name)
        _acting(_on_subject(what, "withdraw", "let the next wider policy count again"))
        back = _on_subject(what, "rollback", "put an older version in force again, as a new version")
        back.add_argument("--to", type=int, required=True, metavar="VERSION")
        _acting(back)

    def handle(self, **options: Any) -> None:
        with refusals():
            getattr(self, f"_{options['what']}")(options)

    def _list(self, _: dict[str, Any]) -> None:
        for line in dlq.list_retry_policies():
            attempts = f"{line.policy.max_attempts} attempts, {line.policy.ordering}"
            self.stdout.write(f"{dlq.subject_of(line.target)}  {attempts}  {source_words(line)}")

    def _show(self, options: dict[str, Any]) -> None:
        scope, subject = _named(options)
        view = scope.view(subject)
        if options["json"]:
            self.stdout.write(json.dumps(dict(view.document), indent=2))
            return
        self.stdout.write(f"{view.title}: {view.source}")
        for what, words in scope.describe(view.document):
            self.stdout.write(f"  {what}: {words}")
        for version in scope.versions(subject):
            self.stdout.write(f"version {version.version}  {version.created_at:%Y-%m-%d %H:%M:%S}  {version.actor}")
            self.stdout.write(f"  {version.reason}")

    def _set(self, options: dict[str, Any]) -> None:
        scope, subject = _named(options)
        document = _document(scope, subject, options)
        for change in compare(scope, scope.view(subject).document, document):
            if change.is_changed:
                self.stdout.write(f"  {change.what}: {change.before or 'none'} -> {change.after or 'none'}")
        actor, seen = find_actor(options["actor"]), _seen(scope, subject, options)
        version = acts.set_policy(actor, scope, subject, document, seen=seen, reason=options["reason"])
        self.stdout.write(f"Version {version} is in force. {scope.obeyed}")

    def _simulate(self, options: dict[str, Any]) -> None:
        scope, subject = _named(options)
        if scope.kept_as is not PolicyScope.CONSUMER:
            raise CommandError("Tries of the relay are not recorded one by one: nothing to simulate.", returncode=WRONG)
        said = say_simulation(simulate_document(subject, _document(scope, subject, options), options["days"]))
        self.stdout.write(said.headline)
        for what, words in said.facts:
            self.stdout.write(f"  {what}: {words}")
        for limit in said.limits:
            self.stdout.write(f"- {limit}")

    def _withdraw(self, options: dict[str, Any]) -> None:
        scope, subject = _named(options)
        actor, seen = find_actor(options["actor"]), _seen(scope, subject, options)
        version = acts.withdraw_policy(actor, scope, subject, seen=seen, reason=options["reason"])
        self.stdout.write(f"Withdrawn, as version {version}: {scope.view(subject).source} counts. {scope.obeyed}")

    def _rollback(self, options: dict[str, Any]) -> None:
        scope, subject = _named(options)
        actor, seen = find_actor(options["actor"]), _seen(scope, subject, options)
        version = acts.roll_back_policy(actor, scope, subject, options["to"], seen=seen, reason=options["reason"])
        self.stdout.write(f"Version {options['to']} is in force again, as version {version}. {scope.obeyed}")


# -- Options -----------------------------------------------------------------------------------------------
def _on_subject(what: Any, name: str, words: str) -> CommandParser:
    parser: CommandParser = what.add_parser(name, help=words)
    parser.add_argument("subject")
    parser.add_argument("--scope", choices=sorted(SCOPES), default="consumer")
    return parser


def _changing(parser: CommandParser, name: str) -> None:
    parser.add_argument("--value", action="append", default=[], metavar="NAME=VALUE", help="one value; may be repeated")
    parser.add_argument("--document", metavar="FILE", help="JSON as `show --json` prints it; - reads standard input")
    if name == "set":
        _acting(parser)
    else:
        parser.add_argument("--days", type=int, default=settings.DLQ_SIMULATION_DAYS)


def _acting(parser: CommandParser) -> None:
    add_actor(parser)
    parser.add_argument("--reason", required=True)
    parser.add_argument("--seen", type=int, metavar="VERSION", help="the version that the change was made from")


def _named(options: dict[str, Any]) -> tuple[Scope, str]:
    scope = SCOPES[options["scope"]]
    query = QueryDict(mutable=True)
    query["subject"] = options["subject"]
    return scope, scope.read_subject(query)


def _seen(scope: Scope, subject: str, options: dict[str, Any]) -> int:
    return scope.view(subject).version if options["seen"] is None else int(options["seen"])


def _document(scope: Scope, subject: str, options: dict[str, Any]) -> Document:
    """What counts now, changed by the file and then by each value."""
    changes = _read_file(options["document"]) if options["document"] else {}
    for text in options["value"]:
        name, sign, value = text.partition("=")
        if not sign:
            raise CommandError(f"{text!r} is no NAME=VALUE, for example max_attempts=12.", returncode=WRONG)
        changes[name.strip()] = _read_value(value.strip())
    if not changes:
        raise CommandError("Say what changes: --value max_attempts=12, or --document FILE.", returncode=WRONG)
    return scope.check(subject, changes)


def _read_value(text: str) -> object:
    """A number, null or JSON object; any other text is itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_file(name: str) -> dict[str, object]:
    try:
        text = sys.stdin.read(DOCUMENT_BYTES + 1) if name == "-" else Path(name).read_text()[: DOCUMENT_BYTES + 1]
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise CommandError(f"{name} cannot be read as JSON: {error}", returncode=WRONG) from error
    if len(text) > DOCUMENT_BYTES or not isinstance(found, dict):
        raise CommandError(f"{name} is no JSON object of at most {DOCUMENT_BYTES:,} characters.", returncode=WRONG)
    return found
