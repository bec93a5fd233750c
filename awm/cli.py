"""The command `awm`: look at what the pipeline has built, run it, and keep what was paid for."""

from __future__ import annotations

import typer

from awm.commands import doctor, env, importing
from awm.commands.command import plain_errors
from awm.config import load_params
from awm.llm.recording import Recording, RecordingEntry, write_entries
from awm.serve import commands as serving
from awm.store import Layout, StoreError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Executable environments for tool-using agents.")
llm = typer.Typer(no_args_is_help=True, help="Keep and replay the answers of LLMs.")
app.add_typer(env.app, name="env")
app.add_typer(llm, name="llm")
app.command("doctor")(doctor.doctor)
app.command("import")(importing.import_environments)
app.command("serve")(serving.serve)


@app.command("params")
@plain_errors
def check_params() -> None:
    """Check params.yaml: an unknown or ill-typed key is one line and exit status 1."""
    load_params()


@llm.command("record")
@plain_errors
def record() -> None:
    """Copy the answers that the last run used (data/llm) into data/recordings, so that anyone can replay it offline."""
    layout = Layout()
    root = layout.data / "llm"
    if not root.is_dir():
        raise StoreError(f"{root}: not found; run `dvc repro` first")
    total = 0
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        by_scenario: dict[str, list[RecordingEntry]] = {}
        for entry in Recording.load(folder).entries():
            by_scenario.setdefault(entry.item.split("/")[0], []).append(entry)
        for scenario, entries in by_scenario.items():
            write_entries(layout.data / "recordings" / folder.name / f"{scenario}.jsonl", entries)
            total += len(entries)
    print(f"{total} answers written to {layout.data / 'recordings'}; set llm.provider to 'recorded' to replay them")


if __name__ == "__main__":
    app()
