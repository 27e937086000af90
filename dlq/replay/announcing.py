"""Tell whoever listens that replays, and with them dead letters, changed."""

from django.db import transaction

from dlq.signals import dead_letters_changed


def announce_replays() -> None:
    """Announce it after the commit of the caller's transaction."""
    transaction.on_commit(lambda: dead_letters_changed.send_robust(sender=None), robust=True)
