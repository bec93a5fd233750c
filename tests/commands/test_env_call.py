"""`awm env call`: one call on a fresh copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SLUG = "lending_library"


def test_a_result_is_shown(run_awm):
    done = run_awm("env", "call", SLUG, "list_loans", '{"status": "open"}')
    assert "Dracula" in done.stdout
    assert "2026-03-09" in done.stdout
    assert done.stderr == ""


def test_arguments_may_be_left_out(run_awm):
    assert len(json.loads(run_awm("env", "call", SLUG, "list_loans", "--json").stdout)["value"]) == 3


def test_json_has_the_result_and_what_changed(run_awm, project: Path):
    before = (project / "data/databases/lending_library.db").read_bytes()
    answer = json.loads(run_awm("env", "call", SLUG, "renew_loan", '{"loan_id": 1}', "--json").stdout)
    assert (answer["kind"], answer["value"]["due_on"], answer["notes"]) == ("ok", "2026-03-23", [])
    assert answer["changes"]["loans"]["changed"][0]["after"] == {"due_on": "2026-03-23", "renewals": 1}
    assert (project / "data/databases/lending_library.db").read_bytes() == before


def test_what_changed_is_shown_too(run_awm):
    output = run_awm("env", "call", SLUG, "renew_loan", '{"loan_id": 1, "weeks": "1"}').stdout
    assert "changed" in output
    assert "renewals: 1" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((SLUG, "renew_loan", '{"loan_id": 77}'), "awm: tool_error: no loan 77 of yours"),
        ((SLUG, "renew_loan", '{"loan_id": "x"}'), "awm: invalid_arguments: argument 'loan_id': input should be a"),
        ((SLUG, "renew_loan"), "awm: invalid_arguments: argument 'loan_id' is missing; this tool takes: loan_id,"),
        ((SLUG, "renew_loan", "[1]"), "awm: invalid_arguments: the arguments must be an object"),
        ((SLUG, "renew_loan", "{loan_id: 1}"), "awm: the arguments are no JSON (Expecting property name"),
        ((SLUG, "renew_loan", "[" * 100_000), "awm: the arguments are no JSON ("),
        ((SLUG, "renew_loan", '{"loan_id": ' + "9" * 5000 + "}"), "awm: the arguments are no JSON (Exceeds the limit"),
        ((SLUG, "burn_book", "{}"), "awm: unknown_tool: unknown tool 'burn_book'; the tools are: list_loans,"),
        (("no_such", "x"), "awm: no environment 'no_such' in data; there are: lending_library"),
        (("../scenarios/faulty", "fine"), "awm: "),
        (("faulty", "crash"), "awm: the environment's fault: crash: KeyError: 'x' (line 23 of the tool module)"),
        (("faulty", "odd"), "awm: the environment's fault: unserialisable: "),
        (("faulty", "die"), "awm: faulty: the episode is over, because its environment failed: the process of the"),
        (("faulty", "hang\x1b[2J"), "awm: unknown_tool: unknown tool 'hang\\x1b[2J'; the tools are:"),
    ],
)
def test_what_goes_wrong_is_one_line(run_awm, arguments, said):
    done = run_awm("env", "call", *arguments, status=1)
    assert done.stdout == ""
    assert done.stderr.startswith(said), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_failure_as_json_is_data(run_awm):
    answer = json.loads(run_awm("env", "call", SLUG, "renew_loan", '{"loan_id": 2}', "--json", status=1).stdout)
    assert (answer["kind"], answer["message"]) == ("tool_error", "loan 2 can't be renewed")
    assert answer["changes"] == {}


def test_a_sandbox_in_no_known_mode_is_one_line(run_awm):
    done = run_awm("env", "call", SLUG, "list_loans", status=1, AWM_SANDBOX="on")
    assert done.stderr == "awm: AWM_SANDBOX=on is no mode of the sandbox; take one of auto, strict, nofs, off\n"


def test_results_cannot_reach_the_terminal(run_awm):
    output = run_awm("env", "call", "faulty", "show").stdout
    assert "\\x1b]0;owned\\x07[red]not red[/red]" in output
    assert "\\u202egnp" in output
    assert not set(output) & {"\x1b", "\x07", "\u202e"}


def test_outside_of_a_built_project_it_says_what_to_run(run_awm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from typer.testing import CliRunner

    from awm.cli import app

    result = CliRunner().invoke(app, ["env", "call", SLUG, "list_loans"])
    assert result.exit_code == 1
    assert "data/environments: not found; run `dvc repro environments` first" in result.output
