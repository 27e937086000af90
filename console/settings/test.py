"""Settings of the test run: the same product on a stack that the test run starts (tests/stack.py)."""

import os

os.environ.setdefault("SIGNALBOX_DEMO", "1")
os.environ.setdefault("SECRET_KEY", "only for tests")
# A test that parks is not about the copy, unless it says so (tests/copies.py).
os.environ.setdefault("DLQ_COPIES", "false")
os.environ["SIGNALBOX_DATA_DIR"] = os.path.devnull  # a stack that `manage.py up` runs is none of our business

from tests.stack import ensure_services

os.environ.update(ensure_services())

from console.settings.base import *  # noqa: F403
from console.settings.base import DATABASES, STORAGES

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_ROOT = None
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
WHITENOISE_AUTOREFRESH = True
# People who share a kept stack each name their own test database.
DATABASES["default"]["TEST"] = {"NAME": f"test_signalbox_{os.environ.get('SIGNALBOX_TEST_NAME', 'main')}"}
