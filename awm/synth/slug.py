"""Slugs: the one key of a scenario, good as file name, Python name and URL part.

Own code rather than python-slugify: that library reads every Han character as Mandarin (a Japanese name gets a wrong
key that looks right), and its tables come under the Artistic License or the GPL.
"""

from __future__ import annotations

import hashlib
import keyword
import re
import unicodedata
from collections.abc import Iterable

__all__ = ["MAX_LENGTH", "slugify", "unique_slugs"]

MAX_LENGTH = 60
_PREFIX = "scenario"

# Letters that Unicode does not decompose into an ASCII letter and a mark.
_LETTERS = str.maketrans(
    {
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "ł": "l",
        "ħ": "h",
        "\u0131": "i",
        "ŋ": "n",
        "ŧ": "t",
    }
)
_APOSTROPHES = re.compile("['\u2018\u2019\u02bc`]")
_WINDOWS_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
_RESERVED = _WINDOWS_NAMES | {word.lower() for word in (*keyword.kwlist, *keyword.softkwlist)}


def slugify(name: str) -> str:
    """Return the slug of a name: 1 to 60 characters of `[a-z0-9_]`, a letter first, no double or outer underscore.

    Accents are dropped; a name without any ASCII letter or digit becomes `scenario_<8 hex digits of its SHA-256>`. A
    name that would start with a digit, or be a Python keyword or a device name of Windows, gets `scenario_` in front.
    Different names may have the same slug: see `unique_slugs`.
    """
    folded = unicodedata.normalize("NFKD", name.casefold().translate(_LETTERS))
    letters = "".join(character for character in folded if not unicodedata.combining(character))
    slug = re.sub(r"[^a-z0-9]+", "_", _APOSTROPHES.sub("", letters)).strip("_")
    if not slug:
        slug = hashlib.sha256(unicodedata.normalize("NFC", name).encode("utf-8", "replace")).hexdigest()[:8]
        return f"{_PREFIX}_{slug}"
    if slug[0].isdigit() or slug in _RESERVED:
        slug = f"{_PREFIX}_{slug}"
    return _shortened(slug, MAX_LENGTH)


def unique_slugs(names: Iterable[str]) -> list[str]:
    """Return one slug a name, all different: a taken one gets the first of `_2`, `_3`, ... that is free.

    A name's slug depends on the names before it only, so that names added at the end change no key.
    """
    taken: set[str] = set()
    slugs: list[str] = []
    for name in names:
        base = slug = slugify(name)
        number = 2
        while slug in taken:
            slug = f"{_shortened(base, MAX_LENGTH - len(f'_{number}'))}_{number}"
            number += 1
        taken.add(slug)
        slugs.append(slug)
    return slugs


def _shortened(slug: str, length: int) -> str:
    """Cut a slug, between words where that costs less than a third of it."""
    if len(slug) <= length:
        return slug
    cut = slug[: length + 1].rpartition("_")[0]
    return cut if len(cut) * 3 >= length * 2 else slug[:length].rstrip("_")
