"""The frames of a foreign stack trace: file, line and function, never the messages between them. Pure."""

import re

LINE_LIMIT = 500
_JAVA = re.compile(
    r"\s*at ([A-Za-z_$][\w$.<>/@-]{0,300})\(([\w$-]{1,100}\.(?:java|kt|scala|groovy)):([0-9]{1,7})\)\s*", re.ASCII
)
_PYTHON = re.compile(r'\s*File "[^"]{0,300}?([\w.-]{1,100}\.py)", line ([0-9]{1,7}), in ([\w<>]{1,100})\s*', re.ASCII)
_CAUSE = "Caused by:"


def foreign_frames(stack: str, limit: int) -> list[str]:
    """Return at most `limit` frames nearest to the failure, outermost first, of a Java or Python trace's root cause."""
    lines = [line[:LINE_LIMIT] for line in stack.splitlines()]
    causes = [number for number, line in enumerate(lines) if line.lstrip().startswith(_CAUSE)]
    java = [frame for line in lines[causes[-1] if causes else 0 :] if (frame := _java(line))]
    if java:
        return java[:limit][::-1]
    return [frame for line in lines if (frame := _python(line))][-limit:]


def _java(line: str) -> str:
    found = _JAVA.fullmatch(line)
    return f"{found[2]}:{found[3]} {found[1]}" if found else ""


def _python(line: str) -> str:
    found = _PYTHON.fullmatch(line)
    return f"{found[1]}:{found[2]} {found[3]}" if found else ""
