from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from console.demo.models import Rates
from console.demo.rates import RatesError, change_rates, read_rates

pytestmark = pytest.mark.django_db


def run_demo(*args):
    out = StringIO()
    call_command("demo", *args, stdout=out)
    return out.getvalue()


def test_without_options_the_present_rates_are_printed_and_nothing_is_written():
    assert "rate=4" in run_demo()
    assert not Rates.objects.exists()


def test_changed_rates_are_printed_before_and_after_and_kept():
    said = run_demo("--rate", "20", "--poison", "0.02", "--triage-ms", "150")
    before, after = said.splitlines()
    assert "rate=4 " in before
    assert "rate=20" in after
    rates = read_rates()
    assert (rates.rate, rates.poison, rates.triage_ms) == (20, 0.02, 150)


def test_a_rate_that_is_not_named_keeps_its_value():
    change_rates({"slow": 0.3})
    before, after = change_rates({"rate": 1})
    assert before.slow == after.slow == 0.3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--rate", "-1"], "rate must be from 0 to 200, not -1"),
        (["--rate", "1000"], "rate must be from 0 to 200, not 1000"),
        (["--rate", "nan"], "rate must be from 0 to 200, not nan"),
        (["--rate", "inf"], "rate must be from 0 to 200, not inf"),
        (["--poison", "1.5"], "poison must be from 0 to 1, not 1.5"),
        (["--triage-ms", "60000"], "triage_ms must be from 0 to 5000, not 60000"),
        (["--poison", "0.6", "--duplicates", "0.6"], "the shares together must be at most 1"),
        (["--rate", "fast"], "invalid float value: 'fast'"),
        (["--triage-ms", "1.5"], "invalid int value: '1.5'"),
    ],
)
def test_a_bad_rate_is_refused_in_words_and_changes_nothing(args, words):
    change_rates({"rate": 3})
    with pytest.raises(CommandError, match=words):
        run_demo(*args)
    assert read_rates().rate == 3


def test_an_unknown_rate_names_the_known_ones():
    with pytest.raises(RatesError, match="there is no rate 'speed'; there are rate, poison"):
        change_rates({"speed": 1})
