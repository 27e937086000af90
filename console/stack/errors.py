"""StackError: something on this machine is missing or would not start; the text says what to do."""


class StackError(Exception):
    """A part of the embedded stack cannot run. The message is for a person and names the next step."""
