"""While the whole installation has only just been started, silence is called starting and accuses nobody."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from console.now_page import list_stations, say_now
from console.starting import is_starting
from console.watch_rules import WatchBounds, WatchFacts, decide_incidents
from dlq.types import DlqStatus
from relay.types import Aspect, IncidentKind, LagWord, ProcessView, Role, Verdict
from tests.web.pages import group, overview, partition, relay_status

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BOUNDS = WatchBounds(
    relay_silent_s=3, unsent_old_s=30, dead_letters_an_hour=50, crashes=3, beat_silent_s=10, sweep_silent_s=120
)
CALM = DlqStatus(
    as_of=NOW, open=0, parked_last_hour=0, oldest_age_s=None, by_topic_group=[], applied_per_s=0.0, duplicates_total=0
)
SILENT = Verdict(aspect=Aspect.BAD, word="silent", reason="no relay has ever run")


def process(lived_s, *, role=Role.WEB, aspect=Aspect.OK):
    return ProcessView(
        role=role,
        name=role.value,
        pid=7,
        host="h",
        version="1",
        started_at=NOW - timedelta(seconds=lived_s),
        seen_at=NOW,
        age_s=0.0,
        doing="",
        facts={},
        crashes=0,
        crashed_at=None,
        verdict=Verdict(aspect=aspect, word="alive"),
    )


@pytest.mark.parametrize(
    ("processes", "starting"),
    [
        ([process(3)], True),
        ([process(3), process(29, role=Role.BEAT)], True),
        ([process(31)], False),
        ([process(3), process(3_600, role=Role.BEAT)], False),  # one process was started anew
        ([process(3), process(3_600, role=Role.BEAT, aspect=Aspect.BAD)], True),  # what is lost is no sign of life
        ([], False),
    ],
)
def test_it_is_starting_while_no_living_process_is_older_than_the_grace(processes, starting):
    assert is_starting(processes, 30) is starting


def stations(*, starting):
    lag = overview(group(partitions=[partition(word=LagWord.STOPPED, reason="no member, 3 waiting")]))
    return list_stations(relay_status(verdict=SILENT), [], lag, CALM, {}, growing_at=50, starting=starting)


def test_silent_stations_say_starting_and_the_page_is_not_red():
    shown = {one.key: one.verdict.word for one in stations(starting=True)}
    assert (shown["relay"], shown["consumers"]) == ("starting", "starting")
    sentence = say_now(stations(starting=True), [], relay_status(verdict=SILENT), CALM, starting=True)
    assert (sentence.aspect, sentence.word) == (Aspect.INFO, "starting")


def test_after_the_grace_the_same_silence_is_red():
    shown = {one.key: one.verdict for one in stations(starting=False)}
    assert shown["relay"] == SILENT
    sentence = say_now(stations(starting=False), [], relay_status(verdict=SILENT), CALM)
    assert sentence.aspect is Aspect.BAD


def test_the_watch_opens_and_closes_nothing_about_silence_while_starting():
    facts = WatchFacts(
        relay=relay_status(verdict=SILENT, runners=[]), lag=overview(), processes=[], valkey_answers=False
    )
    wanted = {incident.kind for incident in decide_incidents(facts, BOUNDS).wanted}
    assert {IncidentKind.RELAY_SILENT, IncidentKind.BEAT_SILENT, IncidentKind.VALKEY_DOWN} <= wanted
    decision = decide_incidents(replace(facts, starting=True), BOUNDS)
    assert {incident.kind for incident in decision.wanted} == {IncidentKind.VALKEY_DOWN}
    assert decision.judged == {IncidentKind.VALKEY_DOWN}
