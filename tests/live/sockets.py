"""A websocket client in the test's own loop. (channels.testing needs daphne, which Signalbox does not use.)"""

import json

from asgiref.testing import ApplicationCommunicator

# The most that is waited for what must come: a crowded machine is slow, not wrong.
ANSWER_WITHIN_S = 30


class Socket:
    """One connection to an ASGI application."""

    def __init__(self, application, path, query, headers):
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        self.app = ApplicationCommunicator(application, scope)

    async def connect(self):
        """(accepted, close code or None)."""
        await self.app.send_input({"type": "websocket.connect"})
        answer = await self.app.receive_output(timeout=ANSWER_WITHIN_S)
        return answer["type"] == "websocket.accept", answer.get("code")

    async def receive(self):
        """The next message, as the server sends it."""
        return await self.app.receive_output(timeout=ANSWER_WITHIN_S)

    async def receive_json(self):
        return json.loads((await self.receive())["text"])

    async def is_quiet(self, seconds):
        return await self.app.receive_nothing(timeout=seconds)

    async def disconnect(self):
        await self.app.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.app.wait(timeout=ANSWER_WITHIN_S)
