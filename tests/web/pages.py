"""What the tests of the pages share: values as the facades give them, and a reader of the HTML."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace
from uuid import UUID

from relay import facade
from relay.types import (
    Aspect,
    CappedCount,
    GroupLag,
    LagOverview,
    LagPoint,
    LagWord,
    PartitionLag,
    RelayStatus,
    RunnerView,
    ShardView,
    UnsentRow,
    Verdict,
)

NOW = datetime.now(UTC)
EVIL = '<script>alert("x")</script>'
ASPECTS = {
    LagWord.DATA_LOSS: Aspect.BAD,
    LagWord.STOPPED: Aspect.BAD,
    LagWord.STALLED: Aspect.BAD,
    LagWord.REWOUND: Aspect.WARN,
    LagWord.FALLING_BEHIND: Aspect.WARN,
    LagWord.UNKNOWN: Aspect.UNKNOWN,
    LagWord.OK: Aspect.OK,
    LagWord.IDLE: Aspect.IDLE,
}


class _Words(HTMLParser):
    """The words that a person sees or hears; the frame around the page's content is left out."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.depth = 0

    def handle_starttag(self, tag, attrs):
        if tag == "main":
            self.depth = 1

    def handle_endtag(self, tag):
        if tag == "main":
            self.depth = 0

    def handle_data(self, data):
        if self.depth:
            self.found.append(data)


def words_of(response):
    """The text of the page's content with single spaces; no-break spaces become plain ones."""
    reader = _Words()
    reader.feed(response.content.decode())
    return " ".join(" ".join(reader.found).replace("\N{NO-BREAK SPACE}", " ").split())


def partition(number=0, *, topic="claim-events", word=LagWord.OK, reason="within 50", lag=3, **changes):
    made = PartitionLag(
        topic=topic,
        partition=number,
        committed=None if lag is None else 1_000,
        begin=0,
        end=None if lag is None else 1_000 + lag,
        lag=lag,
        time_lag_s=1.2,
        time_lag_estimated=False,
        in_per_min=60.0,
        out_per_min=59.0,
        drain_s=None,
        drain_words="never at this rate",
        owner="cw-7f2",
        verdict=Verdict(aspect=ASPECTS[word], word=word.value, reason=reason),
        history=[LagPoint(at=NOW - timedelta(minutes=m), committed=1_000, begin=0, end=1_003) for m in (3, 2, 1)],
        as_of=NOW,
    )
    return replace(made, **changes)


def group(name="claim-workers", partitions=None, **changes):
    found = [partition()] if partitions is None else partitions
    made = GroupLag(
        group=name,
        state="Stable",
        protocol="range",
        members=3,
        allowed_lag=50,
        total_lag=sum(p.lag or 0 for p in found),
        skew=1.0,
        verdict=found[0].verdict if found else Verdict(aspect=Aspect.UNKNOWN, word="unknown"),
        partitions=found,
        as_of=NOW,
        error=None,
    )
    return replace(made, **changes)


def overview(*groups, **changes):
    made = LagOverview(as_of=NOW, age_s=1.0, collector="worker-1", pass_s=0.2, groups=groups, errors=[])
    return replace(made, **changes)


def know_group(monkeypatch, name):
    """Let the acts on groups see `name`, as if a pass had found it; the pages read what is stored."""
    seen = {**vars(facade), "get_lag_overview": lambda: overview(group(name))}
    monkeypatch.setattr("console.actions.lag.facade", SimpleNamespace(**seen))


def unsent(position=1, **changes):
    made = UnsentRow(
        position=position,
        shard=7,
        event_id=UUID("01959000-0000-7000-8000-00000000c7d2"),
        topic="claim-events",
        type="claim.opened",
        key_label="key#3fa81c20",
        created_at=NOW - timedelta(seconds=250),
        age_s=250.0,
        why="no runner holds shard 7",
    )
    return replace(made, **changes)


def runner(name="relay-1", **changes):
    made = RunnerView(
        name=name,
        kind="celery",
        pid=4711,
        host="host-a",
        started_at=NOW,
        seen_at=NOW,
        age_s=0.4,
        lease_left_s=8.0,
        shards=range(32),
        state="draining",
        sent_total=1_204,
        unacked=3,
    )
    return replace(made, **changes)


def shards(holder="relay-1"):
    return [ShardView(shard=n, holder=holder, epoch=2, hw=88_412, moved_at=NOW) for n in range(64)]


def relay_status(**changes):
    made = RelayStatus(
        as_of=NOW,
        verdict=Verdict(aspect=Aspect.OK, word="clear", reason="every committed row is acknowledged"),
        oldest=None,
        waiting=[],
        unsent=CappedCount(value=0),
        unsent_by_topic=[],
        window_s=60.0,
        appended_per_s=38.2,
        sent_per_s=38.0,
        latency_p50_ms=4.1,
        latency_p99_ms=84.0,
        runners=[runner()],
        shards=shards(),
        deferred=[],
        holds=[],
        paused_by=None,
        paused_at=None,
        paused_reason="",
        circuit_open_since=None,
        blocked_by=None,
        partitions_ahead=8,
    )
    return replace(made, **changes)
