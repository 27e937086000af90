"""Wait for a condition with a deadline."""

import time
from collections.abc import Callable

from console.stack.errors import StackError

LOOK_EVERY_S = 0.1


def wait_until(condition: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Look every `LOOK_EVERY_S` seconds until `condition()` holds.

    Raises:
        StackError: it did not hold within `within_s`; the text names `what`.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise StackError(f"{what} did not answer within {within_s:g} s")
        time.sleep(LOOK_EVERY_S)
