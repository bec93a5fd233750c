"""What all steps share: the step protocol, prompts, the repair loop, the runner over items, a stage's report."""
