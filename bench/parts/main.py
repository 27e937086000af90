"""The parts of the relay's bench."""

from bench.parts import command
from bench.parts.check import measure_check
from bench.parts.latency import measure_celery, measure_drain_wal, measure_latency
from bench.parts.peers import measure_peers
from bench.parts.plan import FULL, QUICK, Plan
from bench.parts.publishing import measure_publish
from bench.parts.rates import make_source, measure_burdens, measure_rates
from bench.parts.services import World
from bench.parts.writers import measure_doorbell

# In this order: what leaves many rows behind comes last.
SECTIONS = {
    "rates": measure_rates,
    "peers": measure_peers,
    "publish": measure_publish,
    "drain-wal": measure_drain_wal,
    "latency": measure_latency,
    "celery": measure_celery,
    "check": measure_check,
    "doorbell": measure_doorbell,
    "burdens": measure_burdens,
}


def main(arguments: list[str], about: str) -> int:
    """Measure, and return the exit status."""
    return command.run(
        arguments, about, prog="bench/relay.py", sections=SECTIONS, plans=(QUICK, FULL), prepare=_prepare
    )


def _prepare(world: World, plan: Plan) -> None:
    make_source(world, max(plan.rows, plan.peer_rows))
