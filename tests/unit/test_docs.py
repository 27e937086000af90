"""The documents name only what exists: files, commands, targets, tests' folders."""

import re
from pathlib import Path

import pytest
from django.core.management import get_commands
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def targets():
    found = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "test" in found
    return set(found)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(path):
    local = [link.split("#")[0] for link in LINK.findall(path.read_text()) if "://" not in link]
    assert [link for link in local if link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_heading_that_is_linked_exists(path):
    broken = []
    for link in LINK.findall(path.read_text()):
        file, _, heading = link.partition("#")
        target = path.parent / file if file else path
        if "://" not in link and heading and heading not in headings(target):
            broken.append(link)
    assert broken == []


def headings(path):
    lines = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_and_target_that_is_named_exists(path):
    code = "\n".join(code_of(path.read_text()))
    commands = set(re.findall(r"manage\.py ([a-z_]+)", code))
    assert commands - set(get_commands()) == set()
    named = set(re.findall(r"(?:^|\s)make((?: [a-z][a-z-]*)+)", code, re.MULTILINE))
    assert {word for words in named for word in words.split()} - targets() == set()


def code_of(text):
    """Code spans, fenced and indented blocks; what follows ` #` is a remark."""
    spans = re.findall(r"`([^`\n]+)`", text)
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    fenced = [line for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [re.split(r"\s+#", line)[0] for line in [*spans, *lines, *fenced]]


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", "\n".join(path.read_text() for path in DOCS), re.DOTALL)
)
def test_what_a_python_example_imports_exists(block):
    imports = "\n".join(line for line in block.splitlines() if line.startswith(("from ", "import ")))
    exec(compile(imports, "a document", "exec"), {})


def test_every_page_of_the_documents_is_reached_from_the_readme():
    seen, wanted = set(), [ROOT / "README.md"]
    while wanted:
        path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        for link in LINK.findall(path.read_text()):
            target = (path.parent / link.split("#")[0]).resolve()
            if "://" not in link and target.suffix == ".md":
                wanted.append(target)
    lonely = {path for path in DOCS if path.parent.name not in {"adr", "runbooks"}} - seen
    assert sorted(str(path.relative_to(ROOT)) for path in lonely) == []


def test_architecture_names_every_folder_of_tests():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert {name for name in folders if f"`{name}`" not in text} == set()


@pytest.mark.django_db
def test_architecture_names_every_table_of_the_product():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relname ~ '^(relay|dlq|sagas|console)_'"
        )
        tables = {name for (name,) in cursor.fetchall()}
    assert len(tables) > 10
    assert {name for name in tables if f"`{name}`" not in text} == set()
