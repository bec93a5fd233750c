"""What a verifier may import from us: the type of its connections, the state diff, and a reader of answers."""

from sqlite3 import Connection

from awm.env.diff import state_diff
from awm.env.mention import mentions

__all__ = ["Connection", "mentions", "state_diff"]
