"""What can be wrong with a replay that a person asks for; each text says what to do. Nothing was changed.

ReplayError <- BadSelection | UnknownReplay | StaleReplay | NotStartable
"""

from uuid import UUID


class ReplayError(Exception):
    """Base of what a person is told about replays."""


class BadSelection(ReplayError):
    """The selection cannot be replayed as a whole: empty, too large, or of several groups."""


class UnknownReplay(ReplayError):
    """There is no such preview, replay or quarantined key, or it is forgotten."""


class StaleReplay(ReplayError):
    """Somebody, or the replay itself, changed it since the page was made; the text says what it is now."""


class NotStartable(ReplayError):
    """The preview cannot be started: expired, nothing in it runs, or too many replays are open."""


class AlreadyStarted(NotStartable):
    """The preview was started before, as this replay."""

    def __init__(self, text: str, job_id: UUID) -> None:
        super().__init__(text)
        self.job_id = job_id


class NeedsSecondPerson(NotStartable):
    """So many dead letters need a second person who agrees."""
