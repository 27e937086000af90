"""The Celery application. Two workers: `-Q relay` runs relay runners, `-Q console` runs everything else."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings.run")

app = Celery("signalbox")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
