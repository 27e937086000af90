import re
import subprocess
from pathlib import Path

import pytest
import yaml
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
ENTRYPOINT = (ROOT / "deploy" / "entrypoint.sh").read_text()
SETTINGS = (ROOT / "console" / "settings" / "base.py").read_text()
READ_BY_SETTINGS = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', SETTINGS))
OWN = {name: service for name, service in COMPOSE["services"].items() if service.get("image") == "signalbox"}


@pytest.mark.parametrize("name", OWN)
def test_each_variable_of_the_compose_file_is_one_that_the_settings_read(name):
    assert set(OWN[name]["environment"]) <= READ_BY_SETTINGS


@pytest.mark.parametrize("name", OWN)
def test_each_command_of_the_compose_file_is_a_role_of_the_entrypoint(name):
    role, *arguments = OWN[name]["command"]
    assert f"\n  {role}) exec python" in ENTRYPOINT
    assert role != "consume" or arguments[0] in demo_groups()


def test_each_management_command_of_the_entrypoint_exists():
    named = set(re.findall(r"manage\.py (\w+)", ENTRYPOINT))
    assert named
    assert named <= set(get_commands())


def test_an_unknown_role_is_refused_with_the_list_of_roles():
    done = subprocess.run(["sh", ROOT / "deploy" / "entrypoint.sh", "wbe"], capture_output=True, text=True, check=False)
    assert (done.returncode, "unknown role 'wbe'" in done.stderr) == (2, True)


def test_every_file_that_the_image_copies_exists():
    lines = [line.split() for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()]
    copied = [path for line in lines if line[:1] == ["COPY"] and "--from" not in line[1] for path in line[1:-1]]
    assert copied
    assert [path for path in copied if not (ROOT / path).exists()] == []


def test_only_the_page_is_published_and_on_loopback():
    published = {name: service["ports"] for name, service in COMPOSE["services"].items() if "ports" in service}
    assert list(published) == ["web"]
    assert all(port.startswith("127.0.0.1:") for port in published["web"])


def test_compose_runs_the_kafka_that_the_embedded_stack_runs():
    from console.stack.kafka import kafka_version

    assert COMPOSE["services"]["kafka"]["image"] == f"apache/kafka:{kafka_version()}"


def test_each_variable_that_the_settings_read_is_documented():
    documented = set(re.findall(r"^\| `([A-Z_]+)`", (ROOT / "docs" / "configuration.md").read_text(), re.MULTILINE))
    assert READ_BY_SETTINGS - documented == set()


def test_each_dependency_is_documented():
    text = (ROOT / "docs" / "dependencies.md").read_text()
    for file in ("base", "stack"):
        lines = (ROOT / "requirements" / f"{file}.in").read_text().splitlines()
        names = [re.split(r"[<>=\[]", line)[0] for line in lines if line and not line.startswith(("#", "-"))]
        assert [name for name in names if name not in text] == []


def demo_groups():
    from dlq.facade import list_groups

    return {group.name for group in list_groups()}
