"""What tests of the consumers share: topics of a test's own, each with a group."""

import pytest

from tests.consumers import Line, make_effect_table


@pytest.fixture
def make_line(transactional_db):
    """Make lines; what they leave is dropped at the end."""
    make_effect_table()
    made = []

    def make(partitions=1):
        made.append(Line(partitions))
        return made[-1]

    yield make
    for line in made:
        line.drop()
