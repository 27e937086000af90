"""`manage.py api_token create|list|revoke`: tokens of the API. A token's secret is printed once and kept nowhere."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from console.actions.tokens import make_api_token, revoke_api_token
from console.management.acting import add_actor, find_actor, refusals
from console.models import ApiToken
from console.permissions import Action
from console.tokens import list_tokens

DAYS = 90


class Command(BaseCommand):
    """A token may what its actions name and its person may; the actor needs the permission to make tokens."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True, metavar="create|list|revoke")
        create = what.add_parser("create", help="make a token and print it")
        create.add_argument("person", help="the account whose token it is")
        create.add_argument("--name", required=True, help="what it is for")
        create.add_argument("--action", action="append", required=True, choices=[a.value for a in Action])
        create.add_argument("--days", type=int, default=DAYS, help=f"how long it lasts ({DAYS})")
        add_actor(create)
        what.add_parser("list", help="the newest tokens, without their secrets")
        revoke = what.add_parser("revoke", help="end a token at once")
        revoke.add_argument("prefix", help="how the token begins, such as sbx_0123abcd")
        add_actor(revoke)

    def handle(self, **options: Any) -> None:
        with refusals():
            getattr(self, f"_{options['what']}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        made = make_api_token(
            find_actor(options["actor"]),
            person=options["person"],
            name=options["name"],
            actions=options["action"],
            days=options["days"],
        )
        self.stderr.write(f"Valid until {made.row.expires_at:%Y-%m-%d %H:%M} UTC. It is not shown again:")
        self.stdout.write(made.secret)

    def _list(self, _: dict[str, Any]) -> None:
        rows = list_tokens(limit=settings.API_TOKENS_LISTED)
        for row in rows:
            used = f"{row.used_at:%Y-%m-%d}" if row.used_at else "never"
            self.stdout.write(
                f"{row.prefix}  {row.person.get_username()}  {row.name}  {_state(row)}  last used {used}"
                f"  {','.join(row.actions)}"
            )
        if not rows:
            self.stdout.write("There are no tokens.")

    def _revoke(self, options: dict[str, Any]) -> None:
        row = revoke_api_token(find_actor(options["actor"]), options["prefix"])
        self.stdout.write(f"{row.prefix} is revoked.")


def _state(row: ApiToken) -> str:
    if row.revoked_at:
        return f"revoked {row.revoked_at:%Y-%m-%d}"
    is_over = row.expires_at <= timezone.now()
    return f"{'expired' if is_over else 'valid until'} {row.expires_at:%Y-%m-%d}"
