"""Celery tasks of the console."""

from celery import shared_task

from console.watch import watch_once


@shared_task(name="console.watch")  # type: ignore[untyped-decorator, unused-ignore]
def watch() -> None:
    """Look at everything once when it is due."""
    watch_once()
