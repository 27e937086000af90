"""Celery tasks of the relay."""

from celery import shared_task

from relay import lag


@shared_task(name="relay.collect_lag")  # type: ignore[untyped-decorator, unused-ignore]
def collect_lag() -> None:
    """Read the lag of every group when it is due."""
    lag.collect_lag()
