"""What people order of a running group: to rest and go on, and where to go on after records were lost to it (D7)."""

import pytest

from dlq.facade import (
    AlreadyStopped,
    BadLossChoice,
    NotStopped,
    StaleLoss,
    UnknownGroup,
    choose_after_loss,
    get_loss,
    handler,
    list_open_losses,
    start_group,
    stop_group,
)
from dlq.types import LossChoice
from relay.facade import apply_rewind, list_open_incidents, list_processes, read_group_members
from relay.types import IncidentKind
from tests.consumers import effects, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


def is_empty(line):
    return not read_group_members(line.group).members


def doing(member):
    return next((p.doing for p in list_processes() if p.name == member.name), "")


# -- Stop and start ----------------------------------------------------------------------------------------
def test_a_stopped_group_is_left_by_its_living_consumer_rewound_and_goes_on_when_started(make_line):
    line = make_line()
    for number in range(3):
        line.put(number)
    with running(line, write_effect) as member:
        until(lambda: line.committed() == 3)
        stop_group(line.group, actor="ada", reason="the schema changes")
        until(lambda: is_empty(line), what="the group is empty")
        until(lambda: "stopped by ada: the schema changes" in doing(member), what="its process says so")
        line.put(3)
        (outcome,) = apply_rewind(line.group, line.topic, {0: 1}, {0: 3})
        assert outcome.ok
        assert is_empty(line)
        start_group(line.group, actor="bo")
        until(lambda: line.committed() == 4)
    assert effects(line) == [("k", 0), ("k", 1), ("k", 2), ("k", 3)]
    assert member.tally == {"applied": 4, "duplicate": 2}


def test_what_runs_is_finished_and_committed_before_the_group_is_left(make_line):
    line = make_line()
    line.put(0)

    def stop_meanwhile(event, tx):
        stop_group(line.group, actor="ada", reason="r")
        write_effect(event, tx)

    with running(line, stop_meanwhile):
        until(lambda: effects(line), what="the effect is there")
        until(lambda: line.committed() == 1, what="its offset is committed")
        until(lambda: is_empty(line), what="the group is empty")
    assert effects(line) == [("k", 0)]


def test_a_consumer_that_starts_while_its_group_is_stopped_reads_nothing(make_line):
    line = make_line()
    line.put(0)
    handler(topic=line.topic, group=line.group)(write_effect)
    stop_group(line.group, actor="ada", reason="r")
    with running(line) as member:
        until(lambda: "stopped by ada" in doing(member), what="its process says so")
        assert effects(line) == []
        start_group(line.group, actor="ada")
        until(lambda: line.committed() == 1)


def test_a_switch_that_stands_already_or_a_foreign_group_is_refused(make_line):
    line = make_line()
    with pytest.raises(UnknownGroup):
        stop_group("somebody-elses", actor="ada", reason="r")
    handler(topic=line.topic, group=line.group)(write_effect)
    with pytest.raises(NotStopped):
        start_group(line.group, actor="ada")
    stop_group(line.group, actor="ada", reason="the first reason")
    with pytest.raises(AlreadyStopped, match="by ada: the first reason"):
        stop_group(line.group, actor="bo", reason="r")


# -- After a data loss (D7) --------------------------------------------------------------------------------
def lose(line):
    """Six records in partition 0, of which the group read one and Kafka kept the last two; partition 1 is whole."""
    for number in range(6):
        line.put(number, key="a", partition=0)
    line.put(10, key="b", partition=1)
    line.rewind(1, partition=0)
    line.delete_before(4, partition=0)


def the_loss(line):
    return until(lambda: list_open_losses(line.group), what="the loss is found")[0]


def incidents(line):
    return [i for i in list_open_incidents() if i.kind is IncidentKind.DATA_LOSS and line.group in i.cause]


@pytest.mark.parametrize(
    ("choice", "offset", "read", "resumed_at"),
    [(LossChoice.FIRST, None, [4, 5, 6], 4), (LossChoice.OFFSET, 5, [5, 6], 5), (LossChoice.END, None, [6], 6)],
)
def test_the_partition_goes_on_where_a_person_chose_and_the_others_never_stopped(
    make_line, choice, offset, read, resumed_at
):
    line = make_line(partitions=2)
    lose(line)
    with running(line, write_effect):
        loss = the_loss(line)
        assert (loss.first_lost, loss.first_kept, loss.lost) == (1, 4, 3)
        assert incidents(line)[0].link == f"/lag/data-loss/{loss.id}/"
        until(lambda: ("b", 10) in effects(line), what="the other partition goes on")
        line.put(11, key="b", partition=1)
        until(lambda: ("b", 11) in effects(line), what="it still does")
        assert not [row for row in effects(line) if row[0] == "a"]
        reason = "refunds were done by hand"
        choose_after_loss(loss.id, choice, seen=LossChoice.NONE, actor="ada", reason=reason, offset=offset)
        until(lambda: line.committed(0) >= resumed_at, within_s=10, what="it goes on within seconds")
        until(lambda: not incidents(line), what="the incident is closed")
        line.put(6, key="a", partition=0)
        until(lambda: line.committed(0) == 7)
    assert [n for key, n in effects(line) if key == "a"] == read
    settled = get_loss(loss.id)
    assert settled.settled_at is not None
    assert settled.resumed_at >= resumed_at
    assert (settled.choice, settled.chosen_by) == (choice, "ada")


def test_staying_stopped_leaves_the_incident_and_another_choice_can_follow(make_line):
    line = make_line(partitions=2)
    lose(line)
    with running(line, write_effect):
        loss = the_loss(line)
        choose_after_loss(loss.id, LossChoice.STAY, seen=LossChoice.NONE, actor="ada", reason="we look first")
        line.put(11, key="b", partition=1)
        until(lambda: ("b", 11) in effects(line), what="the other partition goes on")
        assert incidents(line)
        assert not [row for row in effects(line) if row[0] == "a"]
        with pytest.raises(StaleLoss):
            choose_after_loss(loss.id, LossChoice.END, seen=LossChoice.NONE, actor="bo", reason="r")
        choose_after_loss(loss.id, LossChoice.FIRST, seen=LossChoice.STAY, actor="bo", reason="it is fine")
        until(lambda: line.committed(0) == 6)
    assert [n for key, n in effects(line) if key == "a"] == [4, 5]


def test_an_offset_that_is_deleted_before_anybody_goes_on_there_is_asked_for_again(make_line):
    line = make_line(partitions=2)
    lose(line)
    with running(line, write_effect):
        loss = the_loss(line)
    choose_after_loss(loss.id, LossChoice.OFFSET, seen=LossChoice.NONE, actor="ada", reason="r", offset=4)
    line.delete_before(5, partition=0)
    with running(line):
        until(lambda: get_loss(loss.id).choice is LossChoice.NONE, what="the choice is taken back")
        asked = get_loss(loss.id)
        assert (asked.first_kept, asked.settled_at) == (5, None)
        assert incidents(line)
        choose_after_loss(loss.id, LossChoice.OFFSET, seen=LossChoice.NONE, actor="ada", reason="r", offset=5)
        until(lambda: line.committed(0) == 6)
    assert [n for key, n in effects(line) if key == "a"] == [5]


def test_an_offset_belongs_to_its_choice_only(make_line):
    line = make_line(partitions=2)
    lose(line)
    with running(line, write_effect):
        loss = the_loss(line)
    for choice, offset in [(LossChoice.OFFSET, None), (LossChoice.OFFSET, -1), (LossChoice.FIRST, 4)]:
        with pytest.raises(BadLossChoice):
            choose_after_loss(loss.id, choice, seen=LossChoice.NONE, actor="ada", reason="r", offset=offset)
    assert get_loss(loss.id).choice is LossChoice.NONE


def test_a_choice_that_is_made_while_nobody_runs_is_obeyed_by_who_starts(make_line):
    line = make_line(partitions=2)
    lose(line)
    with running(line, write_effect):
        loss = the_loss(line)
    choose_after_loss(loss.id, LossChoice.FIRST, seen=LossChoice.NONE, actor="ada", reason="r")
    with running(line):
        until(lambda: line.committed(0) == 6)
        until(lambda: get_loss(loss.id).settled_at, what="it is settled")
    assert [n for key, n in effects(line) if key == "a"] == [4, 5]


def test_an_offset_that_is_set_by_other_means_settles_the_loss_too(make_line):
    line = make_line(partitions=2)
    lose(line)
    with running(line, write_effect):
        loss = the_loss(line)
    line.rewind(5, partition=0)
    with running(line):
        until(lambda: line.committed(0) == 6)
        until(lambda: get_loss(loss.id).settled_at, what="it is settled")
        until(lambda: not incidents(line), what="the incident is closed")
    assert get_loss(loss.id).choice is LossChoice.NONE
