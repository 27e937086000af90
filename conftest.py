"""Stop what the test run started: its settings (console/settings/test.py) start PostgreSQL, Valkey and Kafka."""

import os
import signal

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run the tests that start services of their own, one after another: they are heavy."""
    for item in items:
        if item.get_closest_marker("own_stack"):
            item.add_marker(pytest.mark.xdist_group("own_stack"))


def pytest_configure() -> None:
    """Let SIGTERM end the run as Ctrl-C does: a runner that cancels sends it, and the services must not stay."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured: they promise order and counts, and say the seconds without failing by them."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"measured: {name}: {value}")


def pytest_unconfigure() -> None:
    """End the services, in the process that started them: xdist's workers only use them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        from tests import stack

        stack.stop_services()
