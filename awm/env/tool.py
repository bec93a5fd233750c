"""What a tool module may import from us: the type of its connection and the error it raises."""

from sqlite3 import Connection

__all__ = ["Connection", "ToolError"]


class ToolError(Exception):
    """An expected failure of a tool: an unknown id, a rule of the application, a bad argument.

    Its message is what the agent reads, so it says what is wrong in the application's words. Everything the call wrote
    is rolled back.
    """
