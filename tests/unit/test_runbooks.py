"""Every incident links a runbook that says what to do."""

from pathlib import Path

import pytest

from relay.types import IncidentKind

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
PARTS = ["## What it means", "## Check", "## Do", "## When to call whom"]


@pytest.mark.parametrize("kind", list(IncidentKind))
def test_each_kind_has_a_runbook_with_all_its_parts(kind):
    text = (RUNBOOKS / f"{kind.value.replace('_', '-')}.md").read_text()
    assert text.startswith("# ")
    places = [text.index(f"\n{part}\n") for part in PARTS]
    assert places == sorted(places)


def test_each_runbook_belongs_to_a_kind():
    kinds = {kind.value.replace("_", "-") for kind in IncidentKind}
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == kinds


@pytest.mark.parametrize("kind", list(IncidentKind))
def test_the_settings_that_a_runbook_names_exist(kind, settings):
    import re

    text = (RUNBOOKS / f"{kind.value.replace('_', '-')}.md").read_text()
    named = set(re.findall(r"`([A-Z][A-Z_]{4,})`", text)) - {"DESCRIBE"}
    assert [name for name in named if not hasattr(settings, name)] == []
