"""`manage.py smoke`: try the promises on a scratch stack and print one JSON line.

5,000 events of 200 keys, published in concurrent transactions through two relays into two consumers, while some
transactions roll back and relays and consumers are killed. Then Kafka and the database are read and counted.
Progress goes to stderr, the JSON line to stdout.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.demo.smoke.stack import SmokeStack
from console.stack.data_dir import DataDir, make_scratch_folder, open_data_dir, take_lock
from console.stack.errors import StackError
from console.stack.programs import BASE_DIR, manage
from console.stack.progress import Progress
from console.stack.stack import OUTSIDE, Options

RUN_WITHIN_S = 420  # well above what it takes: a slow machine should get its answer, too
SESSION_TIMEOUT_MS = "6000"  # a killed consumer's partitions go to the other one after this


class Command(BaseCommand):
    """Exit 0 only if lost, double_effects, order_inversions and rolled_back_seen are 0 and every count agrees."""

    help = __doc__ or ""
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seed", type=int, default=1, help="which schedule of keys, rollbacks and poison")
        parser.add_argument("--keep", action="store_true", help="keep the scratch folder of a run that passed, too")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        began = time.time()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        scratch = make_scratch_folder("smoke-")
        try:
            code = _run(open_data_dir(scratch), seed=options["seed"], began=began)
        except StackError as error:
            raise CommandError(f"{error} The folder is kept: {scratch}.") from error
        if code:
            self.stderr.write(f"The smoke run failed; its data and logs are kept: {scratch}.")
            sys.exit(code)
        if not options["keep"]:
            shutil.rmtree(scratch, ignore_errors=True)


def _run(data: DataDir, *, seed: int, began: float) -> int:
    """Start the stack, run inside it, stop it; the exit status of the run."""
    # Nothing of a real installation: its own services, even where the environment names others.
    own = {name: value for name, value in os.environ.items() if name in settings.ENV_SET_OUTSIDE - set(OUTSIDE)}
    env = {**own, "SIGNALBOX_SMOKE": "1", "CONSUMER_SESSION_TIMEOUT_MS": SESSION_TIMEOUT_MS}
    stack = SmokeStack(data, Options(outside=env, prefer_ports=False), Progress(sys.stderr))
    with take_lock(data):
        try:
            stack.start()
            return _run_inside(data, env, seed=seed, began=began)
        finally:
            stack.stop(lambda: False)


def _run_inside(data: DataDir, env: dict[str, str], *, seed: int, began: float) -> int:
    inside = {**env, "SIGNALBOX_DATA_DIR": str(data.root), "DJANGO_SETTINGS_MODULE": "console.settings.run"}
    command = manage("smoke_run", "--seed", str(seed), "--began", str(began))
    try:
        done = subprocess.run(command, cwd=BASE_DIR, env=inside, timeout=RUN_WITHIN_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise StackError(f"The run did not end within {RUN_WITHIN_S} s.") from error
    return done.returncode
