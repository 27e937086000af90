"""The live socket: hints to a signed-in person who may see the console. It carries no data."""

import asyncio
import time
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

import structlog
from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError
from redis.exceptions import RedisError

from console.live.groups import LiveGroup, channel_group, parse_groups
from console.permissions import Action, may

log = structlog.get_logger(__name__)

HINTS_FAIL = (RedisError, OSError)  # a timeout is an OSError
CLOSE_NOT_ALLOWED = 4403
CLOSE_TRY_LATER = 4503


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """One socket. The origin is checked in front of it (console/asgi.py), the permission here.

    Sends `{"changed": "relay"}`, at most one a group in `HINT_EVERY_MS`, and `{"live": true}` every
    `LIVE_BEAT_EVERY_S` after a message of its own came back through Valkey; `{"live": false}` when it did not, so
    that the page polls. The permission is checked again with every beat.
    """

    groups_wanted: list[LiveGroup]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket; with Valkey away before it opened, refuse it, and the page polls."""
        try:
            await super().__call__(scope, receive, send)
        except HINTS_FAIL as error:
            log.warning("live.valkey_away", error=type(error).__name__)
            with suppress(Exception):
                await send({"type": "websocket.close", "code": CLOSE_TRY_LATER})

    async def connect(self) -> None:
        """Accept who may look; everyone else is refused before the socket opens."""
        self._sent_at: dict[str, float] = {}
        self._late: dict[str, asyncio.Task[None]] = {}
        self._beat: asyncio.Task[None] | None = None
        if not await self._may_look():
            await self.close(code=CLOSE_NOT_ALLOWED)
            return
        query = parse_qs(self.scope.get("query_string", b"").decode("ascii", "replace"))
        self.groups_wanted = parse_groups(query.get("groups", [""])[0])
        await self.accept()
        if await self._join():
            await self.send_json({"live": True})
        self._beat = asyncio.create_task(self._beat_on())

    async def disconnect(self, _code: int) -> None:
        """Leave the groups and end what runs for this socket."""
        for task in (*self._late.values(), self._beat):
            if task is not None:
                task.cancel()
        with suppress(Exception):
            async with asyncio.timeout(settings.HINT_SEND_TIMEOUT_S):
                for group in getattr(self, "groups_wanted", []):
                    await self.channel_layer.group_discard(channel_group(group), self.channel_name)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        """A page has nothing to say; what it sends is dropped."""

    async def live_hint(self, message: dict[str, str]) -> None:
        """Pass a hint on; one that comes too early goes out at the end of the interval, once."""
        changed = message["changed"]
        wait_s = self._sent_at.get(changed, float("-inf")) + settings.HINT_EVERY_MS / 1000 - time.monotonic()
        if wait_s <= 0:
            await self._send_hint(changed)
        elif changed not in self._late:
            self._late[changed] = asyncio.create_task(self._send_late(changed, wait_s))

    async def live_beat(self, _message: dict[str, str]) -> None:
        """Our own message came back: hints work."""
        self._echo.set()

    async def _send_late(self, changed: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._late.pop(changed, None)
        await self._send_hint(changed)

    async def _send_hint(self, changed: str) -> None:
        self._sent_at[changed] = time.monotonic()
        await self.send_json({"changed": changed})

    async def _join(self) -> bool:
        self._echo = asyncio.Event()
        try:
            async with asyncio.timeout(settings.HINT_SEND_TIMEOUT_S):
                for group in self.groups_wanted:
                    await self.channel_layer.group_add(channel_group(group), self.channel_name)
        except HINTS_FAIL as error:
            log.warning("live.valkey_away", error=type(error).__name__)
            await self.close(code=CLOSE_TRY_LATER)
            return False
        return True

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(settings.LIVE_BEAT_EVERY_S)
            if not await self._may_look():
                await self.close(code=CLOSE_NOT_ALLOWED)
                return
            await self.send_json({"live": await self._hints_work()})

    async def _hints_work(self) -> bool:
        self._echo.clear()
        try:
            async with asyncio.timeout(settings.HINT_SEND_TIMEOUT_S):
                await self.channel_layer.send(self.channel_name, {"type": "live.beat"})
                await self._echo.wait()
        except HINTS_FAIL:
            return False
        return True

    async def _may_look(self) -> bool:
        """Read the person of the session anew, so that a sign-out or a lost group ends the socket."""
        session = self.scope.get("session")
        if session is None or not session.session_key:
            return False
        try:
            user = await get_user({"session": SessionStore(session.session_key)})
            allowed: bool = await database_sync_to_async(_may_view)(user)
        except DatabaseError as error:
            log.warning("live.database_away", error=type(error).__name__)
            return False
        return allowed


def _may_view(user: User | AnonymousUser) -> bool:
    return may(user, Action.VIEW).ok
