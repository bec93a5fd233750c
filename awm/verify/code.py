"""The verdict of a verifier's code. Mode `code`: no LLM is asked."""

from awm.env.verdict import code_verdict, read_verdict, verdict_problem

__all__ = ["code_verdict", "read_verdict", "verdict_problem"]
