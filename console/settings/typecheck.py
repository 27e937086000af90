"""Settings for mypy: the product with its demo, so that the demo's models are typed too."""

import os

os.environ["SIGNALBOX_DEMO"] = "1"

from console.settings.base import *  # noqa: F403
