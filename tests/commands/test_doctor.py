"""`awm doctor`, as people and programs run it."""

from __future__ import annotations

import json


def test_for_people(run_awm):
    done = run_awm("doctor")
    assert "a worker may not open a socket" in done.stdout
    assert "refused (EPERM)" in done.stdout
    assert done.stdout.splitlines()[-1] == "generated code is isolated on this machine"


def test_for_programs(run_awm):
    found = json.loads(run_awm("doctor", "--json").stdout)
    assert (found["ok"], found["isolated"]) == (True, True)
    assert {"name", "state", "found", "advice"} == set(found["checks"][0])


def test_the_exit_status_says_when_code_is_not_isolated(run_awm):
    done = run_awm("doctor", status=1, AWM_SANDBOX="off")
    assert "off: generated code runs with your own rights" in done.stdout
    assert "unset AWM_SANDBOX to isolate generated code" in done.stdout
