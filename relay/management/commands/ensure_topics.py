"""`manage.py ensure_topics`: create the declared topics that are missing on the broker."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from relay.errors import TopicSetupError
from relay.facade import ensure_topics


class Command(BaseCommand):
    """Create missing topics; never alter one that exists."""

    help = "Create the declared topics that are missing on the broker."

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            created = ensure_topics()
        except TopicSetupError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"created: {', '.join(created)}" if created else "every declared topic exists")
