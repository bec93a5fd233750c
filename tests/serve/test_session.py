"""A session of a server, without a server."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from awm.env.environment import Environment
from awm.serve.session import Session, SessionOver
from awm.serve.text import as_text
from serve.library_server import descendants


async def test_a_call_that_is_given_up_runs_to_its_end(environment: Environment) -> None:
    session = Session(environment.episode)
    with anyio.move_on_after(0.01) as scope:
        await session.call("take_time", {})

    assert scope.cancel_called
    assert (await session.call("renew_loan", {"loan_id": 1})).value["renewals"] == 1
    session.close()


async def test_a_failure_of_the_environment_is_told_to_every_call(environment: Environment) -> None:
    session = Session(environment.episode)
    said = []
    for tool in ("end_worker", "list_loans", "list_loans"):
        with pytest.raises(SessionOver) as caught:
            await session.call(tool, {})
        said.append(str(caught.value))

    assert len(set(said)) == 1
    session.close()


async def test_an_environment_that_does_not_start_is_told_too(environment: Environment) -> None:
    broken = Environment(
        "broken", source="def nothing(", snapshot=b"", clock="2026-03-02 09:00:00", sandbox=environment.sandbox
    )
    with pytest.raises(SessionOver, match="syntax"):
        await Session(broken.episode).call("nothing", {})


async def test_a_closed_session_has_no_process(environment: Environment) -> None:
    _ = environment.tools
    before = descendants()
    session = Session(environment.episode)
    session.close()
    session = Session(environment.episode)
    await session.call("list_loans", {})
    assert descendants() - before
    session.close()
    session.close()

    await asyncio.sleep(0.2)
    assert not descendants() - before
    with pytest.raises(SessionOver, match="closed"):
        await session.call("list_loans", {})


TEXTS = [
    ("Größe", False, "Größe"),
    ("Größe", True, '"Größe"'),
    ({"a": [1, None, True]}, False, '{"a":[1,null,true]}'),
    (None, False, "null"),
]


@pytest.mark.parametrize(("value", "quoted", "text"), TEXTS)
def test_results_as_text(value: object, quoted: bool, text: str) -> None:
    assert as_text(value, quoted=quoted) == text
