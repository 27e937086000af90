"""The outbox, its checkpoints, runners, ranges, deferred keys and holds."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("relay", "0001_ops")]
    operations: list[object] = []
