"""Lag samples and allowed lag."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("relay", "0002_outbox")]
    operations: list[object] = []
