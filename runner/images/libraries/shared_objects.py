"""Facts of a shared library, read from its bytes: the names that it needs, the folders where it looks, the names that it may open."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

# Program headers and tags of the dynamic section: the System V ABI, chapter 5.
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29

# A name that dlopen takes; %d and %s stand for a version that is put in.
_NAME = re.compile(rb"lib[\w+-]+(?:\.[\w+-]+)*\.so(?:\.(?:\d+|%d|%s))*")
_LONGEST = 80


@dataclass(frozen=True, kw_only=True)
class SharedObject:
    soname: str
    needed: tuple[str, ...]
    # folders by RUNPATH or RPATH, as they stand in the file: "$ORIGIN/../lib"
    folders: tuple[str, ...]
    # names of libraries that stand in the file as a whole string, without those that it needs and its own
    named: tuple[str, ...]


def read(data: bytes) -> SharedObject | None:
    """The facts of an ELF file of 64 bits; None for another file and for one without a dynamic section."""
    if data[:5] != b"\x7fELF\x02":
        return None
    (start,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    headers = [struct.unpack_from("<IIQQQQ", data, start + size * number) for number in range(count)]
    loaded = [(address, offset, length) for kind, _, offset, address, _, length in headers if kind == _LOAD]
    dynamic = next(((offset, length) for kind, _, offset, _, _, length in headers if kind == _DYNAMIC), None)
    if dynamic is None or not loaded:
        return None
    tags: list[tuple[int, int]] = list(struct.iter_unpack("<QQ", data[dynamic[0] : dynamic[0] + dynamic[1] // 16 * 16]))
    tags = tags[: next((at for at, (tag, _) in enumerate(tags) if tag == 0), len(tags))]
    address = next(value for tag, value in tags if tag == _STRTAB)
    table = next(offset + address - base for base, offset, length in loaded if base <= address < base + length)

    def strings(wanted: int) -> list[str]:
        begins = [table + value for tag, value in tags if tag == wanted]
        return [data[begin : data.index(b"\0", begin)].decode() for begin in begins]

    needed, own = strings(_NEEDED), strings(_SONAME)
    paths = strings(_RUNPATH) or strings(_RPATH)
    return SharedObject(
        soname=own[0] if own else "",
        needed=tuple(needed),
        folders=tuple(folder for path in paths for folder in path.split(":") if folder),
        named=tuple(sorted(_names(data) - set(needed) - set(own))),
    )


def _names(data: bytes) -> set[str]:
    """The whole strings that are a library's name. `find` is some ten times as fast as a pattern over gigabytes."""
    names = set()
    at = data.find(b".so")
    while at >= 0:
        begin = data.rfind(b"\0", max(0, at - _LONGEST), at) + 1
        end = data.find(b"\0", at, at + _LONGEST)
        if begin and end > 0 and _NAME.fullmatch(data, begin, end):
            names.add(data[begin:end].decode())
        at = data.find(b".so", at + 3)
    return names
