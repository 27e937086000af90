"""Topics and groups of the returns pipeline. Importing this module declares the topics."""

from django.conf import settings

from relay.facade import declare_topic
from relay.types import TopicSpec

CLAIMS = f"{settings.DEMO_NAME_PREFIX}claim-events"
REFUNDS = f"{settings.DEMO_NAME_PREFIX}refund-events"
NOTICES = f"{settings.DEMO_NAME_PREFIX}notify-events"

CLAIM_WORKERS = f"{settings.DEMO_NAME_PREFIX}claim-workers"
REFUND_WORKERS = f"{settings.DEMO_NAME_PREFIX}refund-workers"
MAIL_WORKERS = f"{settings.DEMO_NAME_PREFIX}mail-workers"

declare_topic(TopicSpec(name=CLAIMS, partitions=6, max_bytes=200_000))
declare_topic(TopicSpec(name=REFUNDS, partitions=3, max_bytes=50_000))
declare_topic(TopicSpec(name=NOTICES, partitions=2, max_bytes=50_000))
