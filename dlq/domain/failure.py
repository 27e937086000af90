"""What is kept of a failure. Pure.

Until redaction lands (issue 5) no exception text is kept, since it may hold payload: only the class, the frames of
own code as file, line and function (no values, no source lines), and the fixed texts of Signalbox's own errors. The
fingerprint is an HMAC over the text, so that it groups without being guessable.
"""

import traceback
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath

from dlq.domain.classify import classify, name_class
from dlq.domain.fingerprint import fingerprint
from dlq.types import FailureClass

HIDDEN = "its text is hidden until redaction rules can be applied to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a dead letter says about why it was parked."""

    failure_class: FailureClass
    error_class: str
    message: str
    stack: str
    fingerprint: str
    attempts: int
    published_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where code lies: frames under `foreign` (the standard library, installed packages, the runtime) are not own."""

    base: str
    foreign: Collection[str]
    frames_limit: int
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One own frame."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


def describe_failure(
    error: BaseException,
    *,
    handler: str,
    attempts: int,
    scene: Scene,
    fixed_text: str | None = None,
    failure_class: FailureClass | None = None,
    published_at: datetime | None = None,
) -> Failure:
    """Describe `error`; `fixed_text` is its text when it is known to hold no payload."""
    frames = own_frames(error, scene)
    place = f" at {frames[-1]}" if frames else ""
    error_class = name_class(error)
    top = f"{frames[-1].file} {frames[-1].function}" if frames else ""
    return Failure(
        failure_class=failure_class or classify(error),
        error_class=error_class,
        message=fixed_text if fixed_text is not None else f"raised{place}; {HIDDEN}",
        stack="\n".join(str(frame) for frame in frames),
        fingerprint=fingerprint(
            handler=handler, error_class=error_class, message=_text(error), frame=top, secret=scene.secret
        ),
        attempts=attempts,
        published_at=published_at,
    )


def own_frames(error: BaseException, scene: Scene) -> list[Frame]:
    """Return the innermost frames of own code, outermost first."""
    found = traceback.extract_tb(error.__traceback__)
    frames = [
        Frame(file=_relative(f.filename, scene.base), line=f.lineno or 0, function=f.name)
        for f in found
        if _is_own(f.filename, scene.foreign)
    ]
    return frames[-scene.frames_limit :]


def _is_own(filename: str, foreign: Collection[str]) -> bool:
    return not filename.startswith("<") and not any(filename.startswith(path) for path in foreign)


def _relative(filename: str, base: str) -> str:
    path = PurePath(filename)
    if path.is_relative_to(base):
        return str(path.relative_to(base))
    return str(PurePath(*path.parts[-3:]))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a foreign __str__ may do anything
        return ""
