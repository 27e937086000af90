"""What a bench prints: a line a measurement, in words or as JSON."""

import json
import os
import platform
import sys
from statistics import median

import psutil


class Report:
    """Prints each measurement when it is there. `errors` counts what could not be measured."""

    def __init__(self, *, as_json: bool):
        self._as_json = as_json
        self.errors = 0

    def at_least(self, what: str, value: float | None, bar: float, **more: object) -> None:
        """A measurement that must not be lower than its bar."""
        self._print(what, value, f">= {bar:g}", value is not None and value >= bar, more)

    def at_most(self, what: str, value: float | None, bar: float, **more: object) -> None:
        """A measurement that must not be higher than its bar."""
        self._print(what, value, f"<= {bar:g}", value is not None and value <= bar, more)

    def seen(self, what: str, value: float, **more: object) -> None:
        """A measurement without a bar."""
        self._print(what, value, None, None, more)

    def missing(self, what: str, bar: str | None, reason: str, *, is_error: bool = True) -> None:
        """Something that could not be measured, and why; never left out silently."""
        self.errors += is_error
        self._print(what, None, bar, False, {"detail": f"not measured: {reason}"})

    def note(self, text: str) -> None:
        """Progress, on stderr."""
        print(text, file=sys.stderr, flush=True)

    def _print(self, what, value, bar, met, more) -> None:
        line = {"what": what, "value": None if value is None else float(f"{value:.5g}"), "bar": bar, "met": met, **more}
        if self._as_json:
            print(json.dumps(line), flush=True)
            return
        mark = {True: "met", False: "NOT MET", None: ""}[met]
        unit = f" {more['unit']}" if "unit" in more else ""
        shown = "-" if value is None else f"{value:,.3g}{unit}" if value < 1000 else f"{value:,.0f}{unit}"
        print(f"{what:64} {shown:>16}  {bar or '':>9}  {mark:7}  {more.get('detail', '')}", flush=True)


def machine() -> str:
    """The machine in words."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, load before {load}"


def spread(values: list[float], form: str = ",.0f") -> str:
    """Median, least and greatest."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}}, {len(values)} runs)"
