"""Who parked a dead letter: a consumer, or the relay."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("dlq", "0001_consumers")]
    operations = [
        migrations.AddField(
            model_name="deadletter",
            name="origin",
            field=models.CharField(
                choices=[("consumer", "consumer"), ("relay", "relay")], db_default="consumer", max_length=12
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(("origin__in", ["consumer", "relay"])), name="dlq_dead_letter_known_origin"
            ),
        ),
    ]
