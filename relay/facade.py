"""The door of the relay app: other apps call what is listed here and nothing else of it."""

from relay.incidents import (
    acknowledge_incident,
    close_incident,
    close_other_incidents,
    list_open_incidents,
    list_recent_incidents,
    open_incident,
)
from relay.keys import label_key
from relay.processes import (
    HeartbeatThread,
    forget_old_processes,
    list_processes,
    process_name,
    product_version,
    record_heartbeat,
    record_stop,
)
from relay.sweeps import last_finished_age_s, run_if_due

__all__ = [
    "HeartbeatThread",
    "acknowledge_incident",
    "close_incident",
    "close_other_incidents",
    "forget_old_processes",
    "label_key",
    "last_finished_age_s",
    "list_open_incidents",
    "list_processes",
    "list_recent_incidents",
    "open_incident",
    "process_name",
    "product_version",
    "record_heartbeat",
    "record_stop",
    "run_if_due",
]
