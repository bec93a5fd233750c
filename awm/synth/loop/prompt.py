"""Prompts are files: `prompts/<name>.md`, a system part and a user part, filled in with Jinja.

A name that the file uses and the caller doesn't give is an error, so a renamed field can't silently leave a
hole in a prompt.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2

from awm.config import ConfigError

__all__ = ["Prompt", "load_prompt", "prompt_text"]

SYSTEM_MARK = "<!-- system -->"
USER_MARK = "<!-- user -->"

_JINJA = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
    autoescape=False,
)


@dataclass(frozen=True)
class Prompt:
    """A prompt file, split into its two parts."""

    name: str
    system: jinja2.Template
    user: jinja2.Template

    def render(self, **values: Any) -> tuple[str, str]:
        """System and user text with the values filled in; ConfigError names a value that the file asks for in vain."""
        try:
            return self.system.render(**values).strip(), self.user.render(**values).strip()
        except jinja2.TemplateError as error:
            raise ConfigError(f"{_path(self.name)}: {error}; given are {', '.join(sorted(values))}") from None


def prompt_text(name: str) -> str:
    """The source of a prompt file; ConfigError when it can't be read."""
    try:
        return (resources.files("awm.synth") / "prompts" / f"{name}.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{_path(name)}: can't be read: {error}") from None


def _path(name: str) -> str:
    return f"awm/synth/prompts/{name}.md"


@functools.cache
def load_prompt(name: str) -> Prompt:
    """Read `prompts/<name>.md`; ConfigError when a part is missing or its template is broken."""
    text = prompt_text(name)
    if text.count(SYSTEM_MARK) != 1 or text.count(USER_MARK) != 1:
        raise ConfigError(f"{_path(name)}: needs one line '{SYSTEM_MARK}' and one line '{USER_MARK}'")
    head, user = text.split(USER_MARK)
    try:
        return Prompt(name, _JINJA.from_string(head.split(SYSTEM_MARK)[1]), _JINJA.from_string(user))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{_path(name)}: {error.message}") from None
