"""When a writer's next act is due. Pure: the clock is passed in, in seconds."""

LOOK_AGAIN_S = 1.0


class Pace:
    """Spread acts evenly. A writer that fell behind catches up on at most `catch_up_s` of missed acts."""

    def __init__(self, now_s: float, *, catch_up_s: float) -> None:
        self._last_s = now_s
        self._catch_up_s = catch_up_s

    def take(self, now_s: float, per_s: float) -> bool:
        """Tell whether an act is due at `per_s` acts a second, and count it as done when it is."""
        if per_s <= 0:
            self._last_s = now_s
            return False
        due_s = self._last_s + 1 / per_s
        if now_s < due_s:
            return False
        self._last_s = max(due_s, now_s - self._catch_up_s)
        return True

    def wait_s(self, now_s: float, per_s: float) -> float:
        """How long to wait before asking again: until the next act, and never so long that a new rate is missed."""
        if per_s <= 0:
            return LOOK_AGAIN_S
        return min(LOOK_AGAIN_S, max(0.0, self._last_s + 1 / per_s - now_s))
