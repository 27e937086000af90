"""One more kind of incident: the quarantine is full."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("relay", "0010_long_policy_subjects"),
    ]

    operations = [
        migrations.AlterField(
            model_name="incident",
            name="kind",
            field=models.CharField(
                choices=[
                    ("relay_silent", "relay_silent"),
                    ("relay_unsent_old", "relay_unsent_old"),
                    ("relay_cluster_down", "relay_cluster_down"),
                    ("relay_topic_failed", "relay_topic_failed"),
                    ("relay_topic_remade", "relay_topic_remade"),
                    ("relay_row_failed", "relay_row_failed"),
                    ("relay_order_broken", "relay_order_broken"),
                    ("relay_restored", "relay_restored"),
                    ("relay_duplicate_id", "relay_duplicate_id"),
                    ("relay_partitions_low", "relay_partitions_low"),
                    ("lag_stopped", "lag_stopped"),
                    ("lag_stalled", "lag_stalled"),
                    ("lag_behind", "lag_behind"),
                    ("lag_rewound", "lag_rewound"),
                    ("lag_unreadable", "lag_unreadable"),
                    ("data_loss", "data_loss"),
                    ("dead_letters_growing", "dead_letters_growing"),
                    ("quarantine_full", "quarantine_full"),
                    ("consumer_crashing", "consumer_crashing"),
                    ("breaker_open", "breaker_open"),
                    ("dead_letter_copy_failed", "dead_letter_copy_failed"),
                    ("process_lost", "process_lost"),
                    ("beat_silent", "beat_silent"),
                    ("valkey_down", "valkey_down"),
                ],
                max_length=40,
            ),
        ),
    ]
