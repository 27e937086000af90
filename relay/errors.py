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
└── LagError: a question or an order about lag that cannot be
    ├── BadAllowedLag
    └── BadHistoryRange
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
