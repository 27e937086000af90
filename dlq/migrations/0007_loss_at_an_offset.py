"""A person may let a group go on at an offset after a loss."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """A nullable column, and the wider list of choices."""

    dependencies = [("dlq", "0006_attempts")]

    operations = [
        migrations.AddField("dataloss", "chosen_offset", models.BigIntegerField(null=True)),
        migrations.AlterField(
            "dataloss",
            "choice",
            models.CharField(
                max_length=10,
                blank=True,
                choices=[("first", "first"), ("end", "end"), ("offset", "offset"), ("stay", "stay")],
            ),
        ),
        migrations.RemoveConstraint("dataloss", "dlq_data_loss_known_choice"),
        migrations.AddConstraint(
            "dataloss",
            models.CheckConstraint(
                condition=Q(choice__in=["", "first", "end", "offset", "stay"]), name="dlq_data_loss_known_choice"
            ),
        ),
        migrations.AddConstraint(
            "dataloss",
            models.CheckConstraint(
                condition=Q(choice="offset", chosen_offset__gte=0)
                | ~Q(choice="offset") & Q(chosen_offset__isnull=True),
                name="dlq_data_loss_chosen_offset",
            ),
        ),
    ]
