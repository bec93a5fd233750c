"""Agent World Model as a versioned data pipeline: executable environments for tool-using agents."""

__version__ = "0.1.0"
