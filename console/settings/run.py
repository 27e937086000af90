"""Settings of a running Signalbox, read from the environment.

The embedded stack writes `.signalbox/stack.env`; what the environment itself says wins over that file, so a
command in a second terminal (`manage.py demo --rate 20`) reaches the stack that `manage.py up` started.
"""

from console.settings.base import *  # noqa: F403
