"""Key labels with this installation's secret."""

from django.conf import settings

from relay.domain import keys


def label_key(key: bytes | None) -> str:
    """Return what may be shown of `key`; see `relay.domain.keys.label_key`."""
    return keys.label_key(key, settings.SIGNALBOX_KEY_LABEL_SECRET)
