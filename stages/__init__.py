"""One script per DVC stage. Run them from the project's top folder, through `dvc repro`."""
