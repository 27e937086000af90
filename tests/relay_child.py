"""A relay in a process of its own that kills itself at the n-th time of a step: python -m tests.relay_child read 2.

With RELAY_CHILD_SIGNAL=STOP it only stops itself there.
"""

import os
import signal
import sys

import django


def main():
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings.test"
    django.setup()
    from relay.runner import Runner

    step, left = sys.argv[1], [int(sys.argv[2])]
    how = signal.Signals[f"SIG{os.environ.get('RELAY_CHILD_SIGNAL', 'KILL')}"]

    def on_step(name):
        if name == step:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), how)

    runner = Runner(name="child", kind="process", on_step=on_step)
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    print("ready", flush=True)
    runner.run()


if __name__ == "__main__":
    main()
