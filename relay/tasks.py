"""Celery tasks of the relay."""

from celery import shared_task
from django.conf import settings

from relay import celery_runner, lag, samples, services
from relay.processes import process_name
from relay.sweeps import run_if_due
from relay.types import Role


@shared_task(name="relay.collect_lag")  # type: ignore[untyped-decorator, unused-ignore]
def collect_lag() -> None:
    """Read the lag of every group when it is due."""
    lag.collect_lag()


@shared_task(name="relay.tick")  # type: ignore[untyped-decorator, unused-ignore]
def tick() -> None:
    """Run a relay runner for its budget unless this worker process has one. Ends within `RELAY_TASK_LIMIT_S`."""
    celery_runner.run_if_needed()


@shared_task(name="relay.housekeeping")  # type: ignore[untyped-decorator, unused-ignore]
def housekeeping() -> None:
    """Keep partitions ahead and old rows away, when it is due."""
    run_if_due(
        "relay.housekeeping",
        every_s=settings.RELAY_HOUSEKEEPING_EVERY_S,
        runner=process_name(Role.WORKER),
        job=services.keep_house,
    )


@shared_task(name="relay.sample")  # type: ignore[untyped-decorator, unused-ignore]
def sample() -> None:
    """Write one sample of the relay's history when it is due."""
    samples.sample_relay()
