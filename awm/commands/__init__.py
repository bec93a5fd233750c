"""The commands of `awm`, one module for each group; `awm.cli` puts them together."""
