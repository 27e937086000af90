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
└── TopicSetupError: the broker refused to create a declared topic
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
