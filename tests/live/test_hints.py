import threading
import time

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import channel_layers, get_channel_layer
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.test import Client

from console.live.groups import LiveGroup
from console.live.hints import HintSender, hint, sender
from console.roles import sync_roles
from relay.facade import open_incident
from relay.types import IncidentKind
from tests.live.sockets import Socket

pytestmark = pytest.mark.django_db(transaction=True)

HOST = b"127.0.0.1"


@pytest.fixture(autouse=True)
def fresh_hints(settings):
    """A prefix and a sender of this test's own: tests share one Valkey, and hints are throttled by process."""
    layers = {"default": {**settings.CHANNEL_LAYERS["default"]}}
    layers["default"]["CONFIG"] = {**layers["default"]["CONFIG"], "prefix": f"t{time.monotonic_ns()}"}
    settings.CHANNEL_LAYERS = layers
    channel_layers.backends.clear()
    sender._sent_at.clear()
    yield
    channel_layers.backends.clear()


@pytest.fixture
def cookies_of():
    sync_roles()

    def sign_in(*groups):
        person = User.objects.create_user(f"live-{User.objects.count()}")
        person.groups.set(Group.objects.filter(name__in=groups))
        client = Client()
        client.force_login(person)
        return client.cookies.output(header="", sep=";").strip().encode()

    return sign_in


def socket(cookies=b"", origin=b"http://127.0.0.1:8000", groups="relay,lag"):
    from console.asgi import application

    headers = [(b"host", HOST), (b"origin", origin), (b"cookie", cookies)]
    return Socket(application, "/ws/live", f"groups={groups}", headers)


async def opened(cookies, **more):
    live = socket(cookies, **more)
    accepted, _ = await live.connect()
    assert accepted
    assert await live.receive_json() == {"live": True}
    return live


async def hints_within(live, seconds):
    """Every hint that arrives in the given time."""
    heard, until = [], time.monotonic() + seconds
    while not await live.is_quiet(max(0.01, until - time.monotonic())):
        heard.append((await live.receive_json())["changed"])
    return heard


def test_a_hint_from_another_thread_arrives(cookies_of):
    async def scenario(cookies):
        live = await opened(cookies)
        threading.Thread(target=hint, args=(LiveGroup.RELAY,)).start()
        heard = await live.receive_json()
        await live.disconnect()
        return heard

    assert async_to_sync(scenario)(cookies_of("viewer")) == {"changed": "relay"}


def test_an_opened_incident_is_announced_after_its_commit(cookies_of):
    async def scenario(cookies):
        live = await opened(cookies, groups="now")
        await sync_to_async(open_one)()
        heard = await live.receive_json()
        await live.disconnect()
        return heard

    def open_one():
        with transaction.atomic():
            open_incident(IncidentKind.BEAT_SILENT, "beat", title="t", meaning="m", action="a")

    assert async_to_sync(scenario)(cookies_of("viewer")) == {"changed": "now"}


def test_many_changes_are_at_most_one_hint_an_interval_and_the_last_is_not_lost(cookies_of, settings):
    settings.HINT_EVERY_MS = 300

    async def scenario(cookies):
        live = await opened(cookies)
        for _ in range(200):
            hint(LiveGroup.RELAY)
        heard = await hints_within(live, 0.8)
        hint(LiveGroup.RELAY)
        last = await hints_within(live, 0.8)
        await live.disconnect()
        return heard, last

    heard, last = async_to_sync(scenario)(cookies_of("viewer"))
    assert heard in (["relay"], ["relay", "relay"])
    assert last == ["relay"]


def test_hints_of_many_processes_are_throttled_at_the_socket(cookies_of, settings):
    settings.HINT_EVERY_MS = 1_000

    async def scenario(cookies):
        live = await opened(cookies)
        for _ in range(20):
            await get_channel_layer().group_send("live.relay", {"type": "live.hint", "changed": "relay"})
        heard = await hints_within(live, 0.7)
        later = await hints_within(live, 0.8)
        await live.disconnect()
        return heard, later

    assert async_to_sync(scenario)(cookies_of("viewer")) == (["relay"], ["relay"])


def test_a_socket_hears_only_the_groups_it_asked_for(cookies_of):
    async def scenario(cookies):
        live = await opened(cookies, groups="lag,nonsense")
        hint(LiveGroup.RELAY, LiveGroup.LAG)
        heard = await hints_within(live, 0.8)
        await live.disconnect()
        return heard

    assert async_to_sync(scenario)(cookies_of("viewer")) == ["lag"]


@pytest.mark.parametrize("origin", [b"https://example.org", b"http://127.0.0.1.example.org", b"null"])
def test_a_foreign_origin_is_refused(cookies_of, origin):
    async def scenario(cookies):
        return await socket(cookies, origin=origin).connect()

    accepted, _ = async_to_sync(scenario)(cookies_of("viewer"))
    assert not accepted


def test_an_anonymous_visitor_is_refused(db):
    async def scenario():
        return await socket().connect()

    assert async_to_sync(scenario)() == (False, 4403)


def test_somebody_without_a_group_is_refused(cookies_of):
    async def scenario(cookies):
        return await socket(cookies).connect()

    assert async_to_sync(scenario)(cookies_of()) == (False, 4403)


def test_a_sign_out_ends_the_socket_with_the_next_beat(cookies_of, settings):
    settings.LIVE_BEAT_EVERY_S = 0.1

    async def scenario(cookies):
        live = await opened(cookies)
        assert await live.receive_json() == {"live": True}
        await sync_to_async(Session.objects.all().delete)()
        for _ in range(50):
            message = await live.receive()
            if message["type"] == "websocket.close":
                return message["code"]
        return None

    assert async_to_sync(scenario)(cookies_of("viewer")) == 4403


def test_with_valkey_away_a_hint_neither_blocks_nor_fails(settings):
    away(settings)
    lonely = HintSender()
    began = time.monotonic()
    for _ in range(1_000):
        lonely.mark(LiveGroup.RELAY)
    took = time.monotonic() - began
    deadline = time.monotonic() + 5
    while not lonely.dropped and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    assert took < 0.5
    assert (lonely.sent, lonely.dropped > 0) == (0, True)


def test_with_valkey_away_the_socket_says_try_later(cookies_of, settings):
    away(settings)

    async def scenario(cookies):
        return await socket(cookies).connect()

    assert async_to_sync(scenario)(cookies_of("viewer")) == (False, 4503)


def away(settings):
    """Point the layer at a port where nothing listens."""
    layer = settings.CHANNEL_LAYERS["default"]
    settings.CHANNEL_LAYERS = {"default": {**layer, "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]}}}
    channel_layers.backends.clear()
