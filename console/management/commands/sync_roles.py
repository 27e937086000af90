"""Bring groups and permissions in line with the table in console/permissions.py."""

from typing import Any

from django.core.management.base import BaseCommand

from console.roles import sync_roles


class Command(BaseCommand):
    """The command."""

    help = "Make the groups viewer, on-call, support and admin and give them their permissions (idempotent)."

    def handle(self, *_args: Any, **_options: Any) -> None:
        for group, permissions in sync_roles().items():
            self.stdout.write(f"{group}: {', '.join(permissions)}")
