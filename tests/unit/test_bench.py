"""What `bench/relay.py` prints is read by programs: its lines and its exit status are a contract."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.parts.main import SECTIONS
from bench.parts.plan import FULL, QUICK
from bench.parts.report import Report

BENCH = Path(__file__).resolve().parents[2] / "bench" / "relay.py"


@pytest.fixture
def lines(capsys):
    """The printed JSON lines."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_measurement_is_one_object_a_line_with_what_value_bar_and_met(lines):
    report = Report(as_json=True)
    report.at_least("one", 0.4, 0.35, detail="seen")
    report.at_most("two", 51.0, 50, unit="ms")
    assert lines() == [
        {"what": "one", "value": 0.4, "bar": ">= 0.35", "met": True, "detail": "seen"},
        {"what": "two", "value": 51.0, "bar": "<= 50", "met": False, "unit": "ms"},
    ]


@pytest.mark.parametrize(("value", "met"), [(0.3499, False), (0.35, True), (0.36, True)])
def test_a_bar_is_met_from_its_own_value_on(lines, value, met):
    Report(as_json=True).at_least("ratio", value, 0.35)
    assert lines()[0]["met"] is met


def test_a_bar_from_above_is_met_up_to_its_own_value(lines):
    report = Report(as_json=True)
    report.at_most("lost", 0, 0)
    report.at_most("lost", 1, 0)
    assert [line["met"] for line in lines()] == [True, False]


def test_a_value_just_under_its_bar_is_not_rounded_up_to_it(lines):
    Report(as_json=True).at_least("ratio", 0.34999, 0.35)
    assert lines()[0] == {"what": "ratio", "value": 0.34999, "bar": ">= 0.35", "met": False}


def test_what_could_not_be_measured_is_a_line_with_the_reason_and_an_error(lines):
    report = Report(as_json=True)
    report.missing("one relay process : a peer", ">= 10", "pip could not install it")
    assert report.errors == 1
    (line,) = lines()
    assert (line["value"], line["met"]) == (None, False)
    assert "pip could not install it" in line["detail"]


def test_words_say_when_a_bar_is_missed(capsys):
    Report(as_json=False).at_least("ratio", 0.1, 0.35)
    assert "NOT MET" in capsys.readouterr().out


def test_an_unknown_part_is_refused_and_the_known_ones_are_named():
    done = subprocess.run([sys.executable, BENCH, "--only", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("nonsense", *SECTIONS))


def test_the_help_says_what_the_exit_status_means():
    done = subprocess.run([sys.executable, BENCH, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "also when a bar was missed" in " ".join(done.stdout.split())


def test_a_quick_run_measures_less_of_everything():
    sizes = [name for name in QUICK.__dataclass_fields__ if name != "is_quick"]
    assert all(getattr(QUICK, name) < getattr(FULL, name) for name in sizes)
