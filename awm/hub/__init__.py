"""Data sets of environments: reading published ones, writing ours."""
