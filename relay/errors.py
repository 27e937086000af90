"""Errors of the relay.

RelayError
├── PublishError: the caller of `publish()` must change something; nothing was written
│   ├── NotInTransaction
│   ├── UnknownTopic
│   ├── RecordTooLarge
│   ├── BadKey
│   ├── BadHeaders
│   └── BadPayload
├── TopicConflict: a topic was declared twice, differently
├── TopicSetupError: the broker refused to create a declared topic
├── AsideDied: the process that asks group coordinators gave no answer; the next question may
├── RelayActError: what a person asked of the relay cannot be done; nothing was changed
│   ├── AlreadyPaused, NotPaused
│   ├── TooManyPauses
│   ├── NotWaiting: the row or key does not wait in a way that this act ends
│   └── BadReason: who does it, or why, is missing or cannot be kept
├── PolicyError: a policy was not saved
│   ├── BadPolicy
│   └── StalePolicy: somebody saved another version meanwhile
├── BadWaitingQuery: a filter, cursor or limit of the waiting rows cannot be
└── LagError: a question or an order about lag that cannot be
    ├── BadAllowedLag
    ├── BadHistoryRange
    └── RewindError <- BadRewind | GroupActive | RewindUnavailable
"""


class RelayError(Exception):
    """Root of the relay's errors."""


class PublishError(RelayError):
    """An event cannot be published as it is; the text says what to do. Nothing was written."""


class NotInTransaction(PublishError):
    """`publish()` was called outside a database transaction."""


class UnknownTopic(PublishError):
    """The topic was never declared in this installation."""


class RecordTooLarge(PublishError):
    """Key, value and headers together are above the topic's limit."""


class BadKey(PublishError):
    """The key has a type or value that cannot be an ordering key."""


class BadHeaders(PublishError):
    """A header has a name or value that cannot be sent."""


class BadPayload(PublishError):
    """The payload cannot be serialised, or does not fit its JSON Schema."""


class TopicConflict(RelayError):
    """The same topic name was declared with other values."""


class TopicSetupError(RelayError):
    """A declared topic could not be created on the broker."""


class LagError(RelayError):
    """A question or an order about lag cannot be; the text says what may."""


class BadAllowedLag(LagError):
    """The allowed lag, its group or its actor has a value that cannot be."""


class BadHistoryRange(LagError):
    """The time range or the number of points of a lag history cannot be."""


class RewindError(LagError):
    """A rewind cannot be planned or applied; the text says why. Nothing was changed."""


class BadRewind(RewindError):
    """A value of the wish cannot be."""


class GroupActive(RewindError):
    """The group has members, so its offsets are theirs."""


class RewindUnavailable(RewindError):
    """The broker did not answer."""


class AsideDied(RelayError):
    """The process that asks group coordinators ended or was silent; what was asked for may have happened."""


class RelayActError(RelayError):
    """An act on the relay cannot be done as things are; the text says why. Nothing was changed."""


class AlreadyPaused(RelayActError):
    """Somebody paused it before."""


class NotPaused(RelayActError):
    """There is no pause to end."""


class TooManyPauses(RelayActError):
    """`RELAY_PAUSES_MAX` topics and keys are paused."""


class NotWaiting(RelayActError):
    """The row or key does not wait, or not in a way that this act ends."""


class BadReason(RelayActError):
    """The actor or the reason is empty, too long, or holds a character that cannot be kept."""


class PolicyError(RelayError):
    """A policy was not saved; the text says why."""


class BadPolicy(PolicyError):
    """A value of the policy cannot be."""


class StalePolicy(PolicyError):
    """The version that the change was made from is no longer the newest."""


class BadWaitingQuery(RelayError):
    """A filter, cursor or limit of the waiting rows cannot be."""
