"""A policy is named by what it is for: a group, a topic and an event type may be long together."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('relay', '0009_incident_kinds'),
    ]

    operations = [
        migrations.AlterField(
            model_name='policyversion',
            name='subject',
            field=models.CharField(max_length=1500),
        ),
    ]
