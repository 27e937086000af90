"""`manage.py up`: run the whole stack on this machine until Ctrl-C."""

import errno
import json
import os
import shutil
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.stack.data_dir import DataDir, make_scratch_folder, open_data_dir, take_lock
from console.stack.errors import StackError
from console.stack.progress import Progress
from console.stack.stack import Options, Stack


class Command(BaseCommand):
    """Start PostgreSQL, Valkey, Kafka and every process of Signalbox; stop them all at Ctrl-C."""

    help = "Run the whole stack on this machine; Ctrl-C stops it, and the data stays."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--data-dir", type=Path, help="where the data is kept (default: .signalbox)")
        parser.add_argument("--port", type=int, help="the page's port (default: the one before, or 8000 when free)")
        parser.add_argument("--no-demo", action="store_true", help="without the returns pipeline and its traffic")
        parser.add_argument(
            "--scratch", action="store_true", help="on a new temporary folder and free ports; removed at the end"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["scratch"] and options["data_dir"]:
            raise CommandError("--scratch makes a folder of its own: leave --data-dir out.")
        path = (
            make_scratch_folder("scratch-")
            if options["scratch"]
            else options["data_dir"] or settings.SIGNALBOX_DATA_DIR
        )
        try:
            self._run(path, options)
        except StackError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise CommandError(f"The disk of {path} is full. Free some space and start again.") from error
        finally:
            if options["scratch"]:
                shutil.rmtree(path, ignore_errors=True)

    def _run(self, path: Path, options: dict[str, Any]) -> None:
        data = open_data_dir(path)
        with take_lock(data):
            outside = {name: value for name, value in os.environ.items() if name in settings.ENV_SET_OUTSIDE}
            wish = Options(
                outside=outside,
                demo=not options["no_demo"] and outside.get("SIGNALBOX_DEMO") not in {"0", "false", "False"},
                web_port=options["port"],
                prefer_ports=not options["scratch"],
            )
            self._run_locked(data, wish)

    def _run_locked(self, data: DataDir, wish: Options) -> None:
        self.stdout.write(f"Signalbox on {data.root}")
        progress = Progress(sys.stdout)
        interrupts = _Interrupts()
        stack = Stack(data, wish, progress)
        try:
            stack.start()
            self._print_logins(stack)
            stack.watch()
        except KeyboardInterrupt:
            progress.note("")
        finally:
            interrupts.hold()
            progress.note("Stopping; a second Ctrl-C kills what has not ended yet.")
            stack.stop(hurry=interrupts.has_more)
            progress.note(f"Stopped. The data stays in {data.root}.")

    def _print_logins(self, stack: Stack) -> None:
        logins: dict[str, str | None] = json.loads(stack.data.logins.read_text())
        lines = [f"  {name:<10}{password or '(its owner changed the password)'}" for name, password in logins.items()]
        text = "\n".join(
            ["", f"Open {stack.url}", *lines, "", f"Logs: {stack.data.logs}  Ctrl-C stops everything.", ""]
        )
        self.stdout.write(text)
        self.stdout.flush()


class _Interrupts:
    """Turn the first SIGINT, SIGTERM or SIGHUP into KeyboardInterrupt; count what comes after it."""

    def __init__(self) -> None:
        self._held = False
        self._more = 0
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, self._take)

    def hold(self) -> None:
        """From now on interrupts are only counted."""
        self._held = True

    def has_more(self) -> bool:
        """Tell whether another interrupt came while stopping."""
        return self._more > 0

    def _take(self, _number: int, _frame: object) -> None:
        if self._held:
            self._more += 1
            return
        self._held = True
        raise KeyboardInterrupt
