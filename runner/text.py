"""Text that comes out of an image, made safe to show on a terminal and in the report.

Names, versions and log lines may hold anything. Escaping for HTML or Markdown is left to who writes it. Here the characters that
act without any markup are made visible: terminal escapes, and the marks that reverse text.
"""

from __future__ import annotations

import re
import unicodedata

# Of one value, in characters.
LONGEST = 600

_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_DOUBTFUL = re.compile(r"[^\x20-\x7e\n\t]")
_PLAIN = re.compile(r"[\x20-\x7e]*\Z")


def visible(text: str, longest: int = LONGEST) -> str:
    """`text` without characters that act: colour codes are dropped; other control, bidirectional, zero-width and private
    characters become their code points; and what is beyond `longest` characters is cut, with a note."""
    whole = len(text)
    # A value may have megabytes: cut it first, and leave room for what is dropped.
    text = text[: longest * 4]
    if not _PLAIN.match(text):
        text = _DOUBTFUL.sub(lambda match: _visible_character(match[0]), _ANSI.sub("", text))
    if whole > longest * 4 or len(text) > longest:
        text = f"{text[:longest]} … [cut: {whole:,} characters in all]".replace(",", " ")
    return text


def _visible_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return character
    if character == "\r":
        return "\n"
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"
