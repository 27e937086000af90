"""Composition root: settings, web, operator actions, audit. Imports the domain apps, never the other way."""

from console.celery import app as celery_app

__all__ = ["celery_app"]
