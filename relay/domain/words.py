"""How verdicts say durations. Pure."""

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def say_duration(seconds: float) -> str:
    """Say a duration in its two largest whole units: "45 s", "4 m 10 s", "6 h 12 m", "6 d 20 h"."""
    left = max(0, int(seconds))
    for at, (size, unit) in enumerate(_STEPS):
        if left >= size:
            below, below_unit = _STEPS[at + 1] if at + 1 < len(_STEPS) else (1, "s")
            return f"{left // size} {unit} {left % size // below} {below_unit}"
    return f"{left} s"
