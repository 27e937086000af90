"""The door of the relay app: other apps call what is listed here and nothing else of it."""

from relay.errors import (
    AlreadyPaused,
    BadKey,
    BadPolicy,
    BadReason,
    BadRewind,
    BadWaitingQuery,
    GroupActive,
    NotPaused,
    NotWaiting,
    RewindError,
    RewindUnavailable,
    StalePolicy,
    TooManyPauses,
    UnknownTopic,
)
from relay.events import find_row, get_event_trace, get_outbox_state
from relay.incidents import (
    acknowledge_incident,
    close_incident,
    close_other_incidents,
    list_open_incidents,
    list_recent_incidents,
    open_incident,
)
from relay.ingress import check_ingress
from relay.kafka.backlog import Backlog, open_backlog
from relay.kafka.consumer import ConsumerConfigError, ConsumerUnavailable, check_consumer_settings, open_consumer
from relay.kafka.raw import ForeignRecordNotSent, TopicNotRead, produce_foreign_record, read_whole_topic
from relay.keys import label_key
from relay.lag import collect_lag, set_allowed_lag
from relay.lag_queries import get_allowed_lag, get_lag_history, get_lag_overview, get_lag_state, get_lag_troubles
from relay.policies import (
    get_relay_policy,
    list_policy_versions,
    list_current_policies,
    list_relay_policies,
    save_policy,
    set_ingress_hold,
    set_relay_policy,
)
from relay.processes import (
    HeartbeatThread,
    forget_old_processes,
    list_processes,
    process_name,
    product_version,
    record_heartbeat,
    record_stop,
)
from relay.publishing import publish, publish_many
from relay.queries import get_relay_status
from relay.rewind import apply_rewind, preview_rewind, read_committed, read_group_members
from relay.samples import get_relay_history, sample_relay
from relay.services import ensure_topics, pause_relay, resume_relay
from relay.steering import (
    list_pauses,
    list_skipped,
    pause_key,
    pause_topic,
    resume_key,
    resume_topic,
    retry_now,
    retry_topic_now,
    skip_row,
)
from relay.sweeps import last_finished_age_s, list_sweeps, run_if_due
from relay.topics import declare_topic, get_topic, list_topics
from relay.waiting import list_waiting

__all__ = [
    "AlreadyPaused",
    "Backlog",
    "BadKey",
    "BadPolicy",
    "BadReason",
    "BadRewind",
    "BadWaitingQuery",
    "ConsumerConfigError",
    "ConsumerUnavailable",
    "ForeignRecordNotSent",
    "GroupActive",
    "HeartbeatThread",
    "NotPaused",
    "NotWaiting",
    "RewindError",
    "RewindUnavailable",
    "StalePolicy",
    "TooManyPauses",
    "TopicNotRead",
    "UnknownTopic",
    "acknowledge_incident",
    "apply_rewind",
    "check_consumer_settings",
    "check_ingress",
    "close_incident",
    "close_other_incidents",
    "collect_lag",
    "declare_topic",
    "ensure_topics",
    "find_row",
    "forget_old_processes",
    "get_allowed_lag",
    "get_event_trace",
    "get_lag_history",
    "get_lag_overview",
    "get_lag_state",
    "get_lag_troubles",
    "get_outbox_state",
    "get_relay_history",
    "get_relay_policy",
    "get_relay_status",
    "get_topic",
    "label_key",
    "last_finished_age_s",
    "list_open_incidents",
    "list_pauses",
    "list_policy_versions",
    "list_current_policies",
    "list_processes",
    "list_recent_incidents",
    "list_relay_policies",
    "list_skipped",
    "list_sweeps",
    "list_topics",
    "list_waiting",
    "open_backlog",
    "open_consumer",
    "open_incident",
    "pause_key",
    "pause_relay",
    "pause_topic",
    "preview_rewind",
    "process_name",
    "produce_foreign_record",
    "product_version",
    "publish",
    "publish_many",
    "read_committed",
    "read_group_members",
    "read_whole_topic",
    "record_heartbeat",
    "record_stop",
    "resume_key",
    "resume_relay",
    "resume_topic",
    "retry_now",
    "retry_topic_now",
    "run_if_due",
    "sample_relay",
    "save_policy",
    "set_allowed_lag",
    "set_ingress_hold",
    "set_relay_policy",
    "skip_row",
]
