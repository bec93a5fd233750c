"""The one loop that all steps share: propose, check by running, feed back what failed, at most `max_attempts` times.

A repair shows the LLM its problems and the parts of its answer that they concern, and takes back only the
parts that change.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from awm.llm.client import LLM
from awm.llm.errors import AnswerError, EmptyAnswer, ItemError, NotRecorded, RefusedAnswer, TruncatedAnswer
from awm.llm.parsing import MalformedAnswer
from awm.llm.request import LLMRequest, Message, Usage
from awm.models import Artifact
from awm.synth.loop.prompt import load_prompt
from awm.synth.loop.step import CheckFailure, Item, Problem, Step

__all__ = ["Attempt", "LoopResult", "run_loop"]

MAX_PROBLEMS = 12
MAX_MESSAGE = 700
MAX_EXCERPT = 1500

_TOO_MUCH = (RecursionError, MemoryError, UnicodeError, OverflowError)
"""What Python itself raises for text nested or long beyond reason: the answer's fault, not the stage's."""


@dataclass(frozen=True)
class Attempt:
    """One answer and what came of it. `problems` is empty for the answer that passed."""

    number: int
    content: str
    usage: Usage
    problems: tuple[Problem, ...]


@dataclass
class LoopResult:
    """Outcome of the loop for one item: an artifact, or the reason why there is none."""

    artifact: Artifact | None = None
    attempts: list[Attempt] = field(default_factory=list)
    prompts: dict[int, str] = field(default_factory=dict)
    """Hash of the prompt of each attempt that was asked for."""
    reason: str = ""
    detail: str = ""
    final: bool = True
    """False when the failure was the provider's, so that the next run must try again."""


async def run_loop(step: Step[Any], item: Item, llm: LLM, max_attempts: int) -> LoopResult:
    """Ask until the check passes or the attempts are used up.

    ProviderError and AnswerPending pass through: they concern the whole stage.
    """
    result = LoopResult()
    previous: Any = None
    for number in range(1, max_attempts + 1):
        request = _request(step, item, number, result.attempts, previous)
        result.prompts[number] = request.prompt_sha256
        try:
            answer = await llm.ask(request)
        except NotRecorded as error:
            return _give_up(result, "not_recorded", str(error))
        except ItemError as error:
            result.final = False
            return _give_up(result, "provider", str(error))
        except AnswerError as error:
            problems = [_answer_problem(error), *_open_problems(result, previous)]
            result.attempts.append(Attempt(number, error.answer.content, error.answer.usage, tuple(problems)))
            continue
        before = previous
        previous, problems = await asyncio.to_thread(_read_and_check, step, item, answer.content, before)
        if problems and previous is before:
            problems += _open_problems(result, before)
        result.attempts.append(Attempt(number, answer.content, answer.usage, tuple(problems)))
        if not problems:
            result.artifact = step.artifact(previous, item)
            return result
    last = result.attempts[-1].problems
    # A time limit is wall clock: a busy machine may pass it where a quiet one does not.
    result.final = not any(problem.reason == "timeout" for problem in last)
    return _give_up(result, last[0].reason, "; ".join(problem.message for problem in last[:3]))


def _open_problems(result: LoopResult, previous: Any) -> tuple[Problem, ...]:
    """What the last readable answer still has wrong with it, when the newest answer couldn't be read."""
    return result.attempts[-1].problems if result.attempts and previous is not None else ()


def _give_up(result: LoopResult, reason: str, detail: str) -> LoopResult:
    """An item without a recorded further answer failed for the reason of its last check, where there was one."""
    if reason == "not_recorded" and result.attempts:
        last = result.attempts[-1].problems
        reason, detail = last[0].reason, "; ".join([*(problem.message for problem in last[:3]), detail])
    result.reason, result.detail = reason, detail
    return result


def _read_and_check(step: Step[Any], item: Item, content: str, previous: Any) -> tuple[Any, list[Problem]]:
    """The answer in its parts and its problems; an answer that can't be read leaves the previous one in place."""
    try:
        answer = step.read(content, item, previous)
    except MalformedAnswer as error:
        return previous, [_answer_problem(error)]
    except CheckFailure as failure:
        return previous, failure.problems
    except _TOO_MUCH as error:
        return previous, [Problem("malformed", f"The answer can't be read ({type(error).__name__}); write it plainly.")]
    try:
        return answer, step.check(answer, item)
    except CheckFailure as failure:
        return answer, failure.problems
    except _TOO_MUCH as error:
        return answer, [
            Problem("malformed", f"The answer can't be checked ({type(error).__name__}); write it plainly.")
        ]


def _answer_problem(error: AnswerError | MalformedAnswer) -> Problem:
    match error:
        case TruncatedAnswer():
            return Problem("truncated", "The answer was cut off at the output limit. Answer again, more compactly.")
        case EmptyAnswer():
            return Problem("empty", str(error))
        case RefusedAnswer():
            return Problem("refused", f"The answer was refused: {error}")
        case _:
            return Problem("malformed", str(error))


def _request(step: Step[Any], item: Item, number: int, attempts: Sequence[Attempt], previous: Any) -> LLMRequest:
    """The first request is the prompt; a repair adds the concerned parts of the last answer and its problems."""
    system, user = load_prompt(step.prompt).render(**step.variables(item))
    messages = [Message(role="system", content=system), Message(role="user", content=user)]
    if attempts:
        messages += _repair_messages(step, attempts[-1], previous)
    return LLMRequest(
        step=step.name,
        item=item.id,
        attempt=number,
        messages=tuple(messages),
        response_schema=_schema(step),
        response_name=step.name if step.answer_model else None,
    )


def _schema(step: Step[Any]) -> dict[str, Any] | None:
    return _model_schema(step.answer_model) if step.answer_model else None


@functools.cache
def _model_schema(model: Any) -> dict[str, Any]:
    schema: dict[str, Any] = model.model_json_schema()
    return schema


def _repair_messages(step: Step[Any], last: Attempt, previous: Any) -> list[Message]:
    shown = last.problems[:MAX_PROBLEMS]
    parts = list(dict.fromkeys(problem.part for problem in shown if problem.part))
    excerpt = last.content[:MAX_EXCERPT] if previous is None else step.excerpt(previous, parts)
    _, user = load_prompt("repair").render(
        problems=[_numbered(problem) for problem in shown],
        more=len(last.problems) - len(shown),
        parts=parts if previous is not None else [],
        whole=previous is None,
        kind="json" if step.answer_model else "code",
    )
    return [Message(role="assistant", content=excerpt or "(no answer)"), Message(role="user", content=user)]


def _numbered(problem: Problem) -> str:
    text = problem.message if len(problem.message) <= MAX_MESSAGE else problem.message[:MAX_MESSAGE] + " …"
    return f"[{problem.part}] {text}" if problem.part else text
