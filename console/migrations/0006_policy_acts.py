"""Acts on retry policies, and their permission."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0005_dead_letter_acts'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='auditentry',
            options={'default_permissions': (), 'permissions': [('view_console', 'See every page and its live changes'), ('acknowledge_incident', 'Take an open incident'), ('pause_relay', 'Pause the relay: nothing is published until it is resumed'), ('resume_relay', 'Resume the relay'), ('pause_topic', 'Pause and resume one topic, or one key of it, while the others go on'), ('retry_rows', 'Let the relay try waiting rows again now'), ('skip_row', 'Skip an outbox row for good, so that its key goes on without it'), ('set_relay_policy', 'Set how failed rows of a topic are treated, and its ingress hold'), ('set_retry_policy', 'Set how often and when consumers try failed records again'), ('set_allowed_lag', 'Set the lag that a consumer group may have'), ('rewind_group', 'Rewind a consumer group: move its committed offsets'), ('switch_group', 'Stop and start the consumers of a group of Signalbox'), ('settle_data_loss', 'Choose where a group goes on after records were lost to it'), ('replay_dead_letters', 'Preview and replay dead letters; pause, resume and cancel a replay; change its rate'), ('release_key', 'Release a quarantined key: replay its records in order'), ('discard_dead_letters', 'Discard dead letters, and restore them'), ('close_breaker', 'Close the breaker of a handler: its records are tried again at once'), ('manage_api_tokens', 'Make and revoke API tokens')]},
        ),
        migrations.AlterField(
            model_name='auditentry',
            name='action',
            field=models.CharField(choices=[('relay.paused', 'Paused the relay'), ('relay.resumed', 'Resumed the relay'), ('relay.topic_paused', 'Paused a topic'), ('relay.topic_resumed', 'Resumed a topic'), ('relay.key_paused', 'Paused a key'), ('relay.key_resumed', 'Resumed a key'), ('relay.key_retried', 'Retried a key'), ('relay.topic_retried', "Retried a topic's waiting keys"), ('relay.row_skipped', 'Skipped an outbox row'), ('relay.policy_set', "Set a topic's relay policy"), ('relay.ingress_set', "Set a topic's ingress hold"), ('policy.set', 'Set a retry policy'), ('policy.withdrawn', 'Withdrew a retry policy'), ('policy.rolled_back', 'Rolled a policy back'), ('lag.allowed_set', 'Set the allowed lag'), ('lag.rewound', 'Ordered a rewind'), ('lag.rewind_failed', 'A rewind failed in part'), ('lag.group_stopped', 'Stopped the consumers'), ('lag.group_started', 'Started the consumers'), ('lag.data_loss_settled', 'Chose where to go on after a data loss'), ('dlq.replay_started', 'Started a replay'), ('dlq.replay_paused', 'Paused a replay'), ('dlq.replay_resumed', 'Resumed a replay'), ('dlq.replay_cancelled', 'Cancelled a replay'), ('dlq.replay_rate_set', 'Changed the rate of a replay'), ('dlq.key_released', 'Released a quarantined key'), ('dlq.discarded', 'Discarded dead letters'), ('dlq.restored', 'Restored a dead letter'), ('dlq.breaker_closed', 'Closed a breaker'), ('dlq.second_asked', 'Asked a second person'), ('dlq.second_refused', 'Refused as the second person'), ('dlq.second_withdrawn', 'Withdrew what a second person was asked'), ('api.token_made', 'Made an API token'), ('api.token_revoked', 'Revoked an API token'), ('incident.acknowledged', 'Took an incident')], max_length=60),
        ),
    ]
