"""`python -m console.stack.supervise CONFIG`: supervisord in the foreground that ends when its parent does.

Linux sends it SIGTERM when `up` is killed, so a `kill -9` of `up` still stops the whole stack in order. Elsewhere
the next `up` ends what is left.
"""

import ctypes
import os
import signal
import sys

from supervisor import supervisord

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become supervisord."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died in between: no signal will come
            sys.exit(1)
    supervisord.main(["--nodaemon", "--configuration", sys.argv[1]])


if __name__ == "__main__":
    main()
