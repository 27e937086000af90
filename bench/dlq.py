"""Measure dead letters against their bars: `python bench/dlq.py [--quick] [--json] [--only NAME,...]`.

Starts PostgreSQL, Valkey and Kafka of its own on loopback, and stops them. The replay is a ratio within one run, so
that another machine may be compared; pages are timed in the server. `docs/performance.md` says what was seen.

Exit status: 0 = everything was measured, also when a bar was missed; 1 = something could not be measured (such a line
has no value and says why); 2 = wrong arguments.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.parts.dead_letters import main  # noqa: E402 - the checkout must be on the path first

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __doc__))
