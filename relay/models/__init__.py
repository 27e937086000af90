"""Tables of the relay app: the outbox and its checkpoints, lag samples, and what every app writes (ops, policies)."""

from relay.models.lag import AllowedLag, LagGroup, LagLatest, LagPass
from relay.models.ops import Incident, ProcessHeartbeat, Sweep
from relay.models.policy import PolicyVersion

__all__ = [
    "AllowedLag",
    "Incident",
    "LagGroup",
    "LagLatest",
    "LagPass",
    "PolicyVersion",
    "ProcessHeartbeat",
    "Sweep",
]
