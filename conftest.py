"""Stop what the test run started: its settings (console/settings/test.py) start PostgreSQL, Valkey and Kafka."""

import os


def pytest_unconfigure() -> None:
    """End the services, in the process that started them: xdist's workers only use them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        from tests import stack

        stack.stop_services()
