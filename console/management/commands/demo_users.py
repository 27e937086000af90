"""`manage.py demo_users`: one user a role with a generated password, for a stack on one's own machine."""

import json
import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand
from django.db import transaction

from console.permissions import Group as Role
from console.stack.private import write_private

GROUP_OF = {"viewer": Role.VIEWER, "oncall": Role.ON_CALL, "support": Role.SUPPORT, "admin": Role.ADMIN}


class Command(BaseCommand):
    """Make the demo users; a password that its owner changed is left alone."""

    help = "Make the users viewer, oncall, support and admin; their passwords are kept in logins.json (mode 600)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--quiet", action="store_true", help="do not print the passwords")

    def handle(self, *_args: Any, **options: Any) -> None:
        file = Path(settings.SIGNALBOX_DATA_DIR) / "logins.json"
        kept: dict[str, str | None] = json.loads(file.read_text()) if file.is_file() else {}
        # The file first: a kill in between leaves passwords without users, never users without a known password.
        planned = {name: kept.get(name) or secrets.token_urlsafe(9) for name in GROUP_OF}
        write_private(file, json.dumps(planned, indent=2))
        current = {name: _ensure_user(name, password) for name, password in planned.items()}
        write_private(file, json.dumps(current, indent=2))
        if not options["quiet"]:
            for name, password in current.items():
                self.stdout.write(f"{name:<10}{password or '(its owner changed the password)'}")


@transaction.atomic
def _ensure_user(name: str, password: str) -> str | None:
    """Make the user in its group; return the password that works, None when its owner chose another."""
    user, created = User.objects.get_or_create(username=name, defaults={"email": f"{name}@example.org"})
    if created:
        user.set_password(password)
        user.save()
        user.groups.add(Group.objects.get_or_create(name=GROUP_OF[name].value)[0])
    return password if created or user.check_password(password) else None
