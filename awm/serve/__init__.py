"""Environments for others: MCP servers (`awm.serve.mcp`) and an OpenEnv server (`awm.serve.openenv`).

They need packages that nothing else of `awm` needs: the extras `serve` and `openenv`.
"""
