"""A new kind of incident needs no migration from here on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes nothing in the database."""

    dependencies = [("relay", "0011_quarantine_full")]

    operations = [migrations.AlterField("incident", "kind", models.CharField(max_length=40))]
