"""Indexes for the list of dead letters in every state and order: each begins with the state."""

from django.db import migrations, models
from django.db.models import F, Q

_NEWEST = (F("parked_at").desc(), F("id").desc())


def _by(*columns: str, name: str, condition: Q | None = None) -> migrations.AddIndex:
    index = models.Index(*(F(column) for column in ("state", *columns)), *_NEWEST, name=name, condition=condition)
    return migrations.AddIndex(model_name="deadletter", index=index)


class Migration(migrations.Migration):
    dependencies = [("dlq", "0010_copies")]

    operations = [
        *(
            migrations.RemoveIndex(model_name="deadletter", name=f"dlq_dl_{name}")
            for name in ("recent", "group", "topic", "type", "error", "fingerprint", "key")
        ),
        _by("group", name="dlq_dl_by_group"),
        _by("topic", name="dlq_dl_by_topic"),
        _by("event_type", name="dlq_dl_by_type"),
        _by("error_class", name="dlq_dl_by_error"),
        _by("fingerprint", name="dlq_dl_by_fingerprint"),
        _by("key_label", name="dlq_dl_by_key"),
        _by(name="dlq_dl_replayed", condition=Q(replays__gt=0)),
        _by(name="dlq_dl_needs_human", condition=Q(needs_human=True)),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(F("state"), F("attempts").desc(), *_NEWEST, name="dlq_dl_by_tries"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["state", "topic", "partition", "offset", "id"], name="dlq_dl_by_place"),
        ),
    ]
