"""What happened to the programs between two looks, in words."""

from collections.abc import Iterable

from console.stack.supervisor import ProgramState

DOWN = {"BACKOFF", "FATAL"}


class Watch:
    """Remembers which process each program ran in when it was last seen running."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._down: set[str] = set()

    def compare(self, states: Iterable[ProgramState]) -> dict[str, str]:
        """Return program -> what happened to it since the last look."""
        said = {state.name: self._compare(state) for state in states}
        return {name: words for name, words in said.items() if words}

    def _compare(self, state: ProgramState) -> str:
        if state.state in DOWN:
            news = state.name not in self._down
            self._down.add(state.name)
            return "does not stay up; it is tried again" if news else ""
        if state.state != "RUNNING":
            return ""
        self._down.discard(state.name)
        before = self._running.get(state.name, state.pid)
        self._running[state.name] = state.pid
        return f"died and was started again; its process is now {state.pid}" if before != state.pid else ""
