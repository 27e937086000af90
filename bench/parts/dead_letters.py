"""The parts of the bench of dead letters, and how much they measure."""

import os
from dataclasses import dataclass

from bench.parts import command
from bench.parts.letter_pages import measure_pages
from bench.parts.replaying import measure_replay
from bench.parts.services import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Dead letters that are replayed and that pages choose from; requests of each page."""

    is_quick: bool
    replayed: int
    letters: int
    requests: int


QUICK = Plan(is_quick=True, replayed=1_500, letters=100_000, requests=20)
FULL = Plan(is_quick=False, replayed=100_000, letters=1_000_000, requests=100)
SECTIONS = {"replay": measure_replay, "pages": measure_pages}


def main(arguments: list[str], about: str) -> int:
    """Measure, and return the exit status."""
    return command.run(arguments, about, prog="bench/dlq.py", sections=SECTIONS, plans=(QUICK, FULL), prepare=_prepare)


def _prepare(world: World, _plan: Plan) -> None:
    """Let this process be one of the product; nobody else confirms its large replays, and nothing is copied."""
    world.env |= {"DLQ_SECOND_PERSON_ABOVE": "1000000", "DLQ_COPIES": "false"}
    os.environ.update(world.env)
    world.manage("collectstatic", "--noinput", "--verbosity", "0")
    import django

    django.setup()
