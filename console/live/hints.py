"""Say from any process that a part of the console changed; never blocks and never fails the caller (D15).

The caller only marks the group. A background thread, one a process and started with its first hint, sends at most
one hint a group in `HINT_EVERY_MS`; what is marked meanwhile goes out as one more at the end of the interval. When
Valkey does not answer within `HINT_SEND_TIMEOUT_S`, the circuit opens for `HINT_CIRCUIT_OPEN_S`: hints are dropped
meanwhile, because each panel is fetched again by its own age anyway.
"""

import asyncio
import os
import threading
import time
from collections.abc import Mapping

import structlog
from channels.layers import get_channel_layer
from django.conf import settings
from redis.exceptions import RedisError

from console.live.groups import LiveGroup, channel_group

log = structlog.get_logger(__name__)


class HintSender:
    """The marks and the thread that sends them."""

    def __init__(self) -> None:
        self._marked: set[LiveGroup] = set()
        self._wake = threading.Condition()
        self._sent_at: dict[LiveGroup, float] = {}
        self._closed_until = 0.0
        self._thread: threading.Thread | None = None
        self._pid = 0
        self.sent: int = 0
        self.dropped: int = 0

    def mark(self, group: LiveGroup) -> None:
        """Note that a group changed; returns at once."""
        if self._pid != os.getpid():
            self._begin_again()
        with self._wake:
            self._marked.add(group)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _begin_again(self) -> None:
        """After a fork the thread is gone and the lock may be held by nobody."""
        self._pid = os.getpid()
        self._wake = threading.Condition()
        self._thread = None
        self._marked = set()

    def _run(self) -> None:
        # One loop for the thread's life: the channel layer keeps its connection by loop.
        with asyncio.Runner() as runner:
            while True:
                due, wait_s = self._take_due(time.monotonic())
                for group in due:
                    runner.run(self._send(group))
                if not due:
                    self._wait(wait_s)

    def _wait(self, seconds: float | None) -> None:
        with self._wake:
            if seconds is None:
                self._wake.wait_for(lambda: bool(self._marked))
            else:
                self._wake.wait(seconds)

    def _take_due(self, now: float) -> tuple[list[LiveGroup], float | None]:
        """The marked groups whose interval is over, and how long the next one has to wait (None = nothing marked)."""
        every_s = settings.HINT_EVERY_MS / 1000
        with self._wake:
            waits: Mapping[LiveGroup, float] = {
                group: self._sent_at.get(group, float("-inf")) + every_s - now for group in self._marked
            }
            due = [group for group, wait in waits.items() if wait <= 0]
            self._marked.difference_update(due)
            left = [wait for wait in waits.values() if wait > 0]
        return due, min(left, default=None)

    async def _send(self, group: LiveGroup) -> None:
        now = time.monotonic()
        self._sent_at[group] = now
        if now < self._closed_until:
            self.dropped += 1
            return
        try:
            async with asyncio.timeout(settings.HINT_SEND_TIMEOUT_S):
                await get_channel_layer().group_send(
                    channel_group(group), {"type": "live.hint", "changed": group.value}
                )
        except (RedisError, OSError) as error:
            self._closed_until = time.monotonic() + settings.HINT_CIRCUIT_OPEN_S
            self.dropped += 1
            log.warning("hints.valkey_away", error=type(error).__name__, retry_in_s=settings.HINT_CIRCUIT_OPEN_S)
        else:
            self.sent += 1


sender = HintSender()


def hint(*groups: LiveGroup) -> None:
    """Mark groups as changed."""
    for group in groups:
        sender.mark(group)
