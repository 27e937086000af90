"""Tables of the relay app: the outbox and its checkpoints, lag samples, and what every app writes (ops)."""

from relay.models.ops import Incident, ProcessHeartbeat, Sweep

__all__ = ["Incident", "ProcessHeartbeat", "Sweep"]
