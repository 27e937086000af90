"""Celery tasks of the dead-letter queue."""

from celery import shared_task
from django.conf import settings

from dlq.attempt_log import forget_old_attempts
from dlq.triage_counts import fold_counts
from relay.facade import process_name, run_if_due
from relay.types import Role


@shared_task(name="dlq.fold_counts")  # type: ignore[untyped-decorator, unused-ignore]
def fold_counts_if_due() -> None:
    """Fold the counts of failure groups when it is due."""
    run_if_due("dlq.fold_counts", every_s=settings.DLQ_FOLD_EVERY_S, runner=process_name(Role.WORKER), job=fold_counts)


@shared_task(name="dlq.forget_attempts")  # type: ignore[untyped-decorator, unused-ignore]
def forget_attempts_if_due() -> None:
    """Delete recorded tries beyond their bounds when it is due."""
    run_if_due(
        "dlq.forget_attempts",
        every_s=settings.DLQ_ATTEMPT_SWEEP_EVERY_S,
        runner=process_name(Role.WORKER),
        job=forget_old_attempts,
    )
