"""Numbers, ages and times as people read them. Pure; a no-break space stands before each unit."""

from datetime import datetime, timedelta

NBSP = "\N{NO-BREAK SPACE}"
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def duration_words(seconds: float | timedelta | None) -> str:
    """Say a duration in its two largest units: "4 m 10 s", "6 d 20 h"; under ten seconds with one decimal."""
    if seconds is None:
        return "unknown"
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    total = max(0.0, total)
    if total < 9.95:
        return f"{total:.1f}{NBSP}s"
    whole = round(total)
    for place, (size, unit) in enumerate(_STEPS):
        if whole >= size:
            return _two_units(whole, place, size, unit)
    return f"0{NBSP}s"


def number_words(value: float | None, *, decimals: int | None = None) -> str:
    """Group thousands: 88412 -> "88,412"; decimals appear below 100 only, unless asked for. None -> "unknown"."""
    if value is None:
        return "unknown"
    if decimals is None:
        decimals = 1 if isinstance(value, float) and abs(value) < 100 and value != int(value) else 0
    return f"{value:,.{decimals}f}"


def bytes_words(count: int | None) -> str:
    """Say a size: "512 B", "1.4 kB", "3.0 MB" (powers of ten)."""
    if count is None:
        return "absent"
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f}{NBSP}{unit}" if unit == "B" else f"{size:.1f}{NBSP}{unit}"
        size /= 1000
    return f"{size:.1f}{NBSP}GB"


def count_words(count: int, one: str, many: str | None = None) -> str:
    """Join a count and its noun: "1 event", "312 events"."""
    return f"{number_words(count)}{NBSP}{one if count == 1 else many or one + 's'}"


def clock_words(at: datetime, now: datetime) -> str:
    """The time of day, with the date when it is not today. Both in the zone that people read."""
    if at.date() == now.date():
        return f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d %H:%M:%S}"


def join_words(parts: list[str]) -> str:
    """Join as prose: "a", "a and b", "a, b and c"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _two_units(whole: int, place: int, size: int, unit: str) -> str:
    first = f"{whole // size}{NBSP}{unit}"
    rest = whole % size
    if place + 1 == len(_STEPS):
        return first
    next_size, next_unit = _STEPS[place + 1]
    second = rest // next_size
    return f"{first} {second}{NBSP}{next_unit}" if second else first
