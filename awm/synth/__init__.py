"""One module per step of the pipeline, with its prompt in `prompts/`; what they share is in `loop/`."""
