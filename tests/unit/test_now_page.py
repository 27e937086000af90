"""What Now says of calm consumers and of latency: never better than it is."""

import pytest

from console.now_page import list_stations
from dlq.types import DlqStatus
from relay.types import Aspect, LagWord, TopicSpec
from tests.web.pages import NOW, group, overview, partition, relay_status

DLQ = DlqStatus(
    as_of=NOW, open=0, oldest_age_s=None, parked_last_hour=0, by_topic_group=[], applied_per_s=None, duplicates_total=0
)
IDLE = group("b", partitions=[partition(word=LagWord.IDLE, lag=0)])


def station(key, *groups, **relay_changes):
    found = list_stations(relay_status(**relay_changes), list[TopicSpec](), overview(*groups), DLQ, {}, growing_at=100)
    return next(one for one in found if one.key == key)


@pytest.mark.parametrize(
    ("groups", "aspect", "words"),
    [
        ([group(partitions=[partition(lag=50)])], Aspect.OK, "caught up, 1 group"),
        (
            [group(partitions=[partition(lag=719), partition(1, lag=590), partition(2, lag=3)])],
            Aspect.OK,
            "moving, 1,309 wait",
        ),
        ([group(), IDLE], Aspect.OK, "caught up, 2 groups"),
        ([IDLE], Aspect.IDLE, "idle, 1 group"),
    ],
)
def test_consumers_are_caught_up_only_when_nothing_over_the_allowed_lag_waits(groups, aspect, words):
    verdict = station("consumers", *groups).verdict
    assert verdict.aspect is aspect
    assert str(verdict).replace("\N{NO-BREAK SPACE}", " ").replace(":", ",") == words


@pytest.mark.parametrize(
    ("latency_ms", "words"), [(84.0, "sent, p99 within 84 ms"), (300_000.0, "sent, p99 within 5 m"), (None, "sent")]
)
def test_the_latency_is_said_as_the_upper_edge_of_its_bucket(latency_ms, words):
    assert station("relay", latency_p99_ms=latency_ms).label.replace("\N{NO-BREAK SPACE}", " ") == words
