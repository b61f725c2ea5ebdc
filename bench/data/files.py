"""Files that can be trusted: official ones by known checksums, generated and own ones by a list beside them.

A folder's files are accepted in one of three ways:
- OFFICIAL: every file has the checksum published for it;
- GENERATED: `dlbench-generated.json` beside them lists their SHA-256: a stand-in, and every result says so;
- OWN: `SHA256SUMS` beside them (the format of sha256sum) lists them: a site's own selection, and every result says so.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile

from bench.errors import DataError

OFFICIAL, GENERATED, OWN = "official", "generated", "own"
MARKER = "dlbench-generated.json"
SUMS = "SHA256SUMS"
_BLOCK = 1 << 20
# A stand-in is smaller by far, and what somebody else put into a shared cache may be a hole of any size.
_MOST_MARKER_BYTES, _MOST_STAND_IN_BYTES = 1 << 20, 8 << 30


def opened(path):
    """A file, open to be read. Raises IOError for a pipe or a device, which a reader may wait for without end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise IOError(errno.EINVAL, "it is no file", path)
    return open(path, "rb")


def checksum(path, algorithm):
    """Hexadecimal digest of a file ("md5" | "sha256"). MD5 is an identity here, not a protection."""
    try:
        digest = hashlib.new(algorithm, **({"usedforsecurity": False} if algorithm == "md5" else {}))
    except TypeError:  # Python < 3.9 does not know the argument
        digest = hashlib.new(algorithm)
    try:
        with opened(path) as file:
            for block in iter(lambda: file.read(_BLOCK), b""):
                digest.update(block)
    except (IOError, OSError) as error:
        raise DataError("%s cannot be read (%s): make it readable, or name another folder" % (path, error.strerror))
    return digest.hexdigest()


def read_bytes(path):
    try:
        with opened(path) as file:
            return file.read()
    except (IOError, OSError) as error:
        raise DataError("%s cannot be read (%s): make it readable, or name another folder" % (path, error.strerror))


def held(folder):
    """A clause of what lies in a folder, for the error of a file that does not: at most six names of 40 characters each."""
    try:
        names = sorted(name[:40] for name in os.listdir(folder) if not name.startswith("."))
    except (IOError, OSError):
        names = []
    more = " and %d more" % (len(names) - 6) if len(names) > 6 else ""
    return "it holds %s%s" % (", ".join(names[:6]), more) if names else "it is empty"


def vouch(folder, official, algorithm, source):
    """How the files of `folder` are known: OFFICIAL, GENERATED or OWN.

    official: file name -> checksum. source: what to download, for the error. Raises DataError for a missing or
    unknown file.
    """
    for name in sorted(official):
        if not os.path.isfile(os.path.join(folder, name)):
            if os.path.isdir(os.path.join(folder, name)):
                raise DataError("%s is a folder in %s: move the file that lies in it there instead" % (name, folder))
            raise DataError("%s is missing in %s (%s): unpack %s there again" % (name, folder, held(folder), source))
    for list_name, origin, reader in ((MARKER, GENERATED, _marker_sums), (SUMS, OWN, _sums)):
        path = os.path.join(folder, list_name)
        if os.path.exists(path):
            _check(folder, sorted(official), reader(path), "sha256", "the list in " + list_name)
            return origin
    names = sorted(official)
    fix = "download %s again; if it is your own selection on purpose, say so with `sha256sum %s > %s` in its folder"
    _check(folder, names, official, algorithm, "the official one", fix % (source, " ".join(names), SUMS))
    return OFFICIAL


def _check(folder, names, sums, algorithm, expected, fix="make the files or that list again"):
    for name in names:
        path = os.path.join(folder, name)
        if name not in sums:
            raise DataError("%s is not in %s: %s" % (path, expected, fix))
        actual = checksum(path, algorithm)
        if actual != sums[name]:
            message = "%s has the %s %s, but %s is %s: %s"
            raise DataError(message % (path, algorithm.upper(), actual, expected, sums[name], fix))


def _marker_sums(path):
    return _marked(path, "files")


def _marked(path, field):
    """A field of a marker: file -> what it says of it, as text. Its numbers are never made: one of a million digits takes minutes."""
    try:
        with opened(path) as file:
            content = file.read(_MOST_MARKER_BYTES + 1)
        if len(content) > _MOST_MARKER_BYTES:
            raise ValueError("it has more than %d bytes" % _MOST_MARKER_BYTES)
        values = json.loads(content.decode("utf-8"), parse_int=str)[field]
        return {str(name): str(value) for name, value in values.items()}
    except (IOError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError("%s is damaged (%s): remove its folder, and it is generated again" % (path, error))


def _sums(path):
    sums = {}
    for number, line in enumerate(read_bytes(path).decode("utf-8-sig", "replace").splitlines(), 1):
        digest, _, name = line.strip().partition(" ")
        if line.strip() and (len(digest) != 64 or not name):
            raise DataError("%s, line %d, is not `<sha256>  <file>`: make it with sha256sum" % (path, number))
        name = name.strip().lstrip("*")
        sums[name[2:] if name.startswith("./") else name] = digest.lower()
    return sums


def stand_in(cache, name, generator, seed, train_items, test_items, write):
    """The folder of a generated stand-in, made now if the cache does not hold it whole.

    It holds what write(folder, train_items, test_items, seed) puts there, and a marker with the facts and every file's SHA-256 and size.
    It is made aside and renamed, so a reader sees it whole or not at all, and several cells may make it at once. A damaged one is
    made again.
    """
    key = "%s-generated-v%d-seed%d-%d-%d" % (name, generator, seed, train_items, test_items)
    facts = {"name": name, "generator": generator, "seed": seed, "train_items": train_items, "test_items": test_items}
    target = os.path.join(cache, key)
    if _whole(target):
        return target
    try:
        if not os.path.isdir(cache):
            os.makedirs(cache, exist_ok=True)
        aside = tempfile.mkdtemp(prefix=".%s." % key, dir=cache)
        try:
            write(aside, train_items, test_items, seed)
            _mark(aside, facts)
            _put(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except (IOError, OSError) as error:
        message = "%s cannot be written (%s): set DLBENCH_CACHE to a writable folder with 1 GB free, or give --data"
        raise DataError(message % (cache, error.strerror or error))
    return target


def _mark(folder, facts):
    paths = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    sums = {os.path.relpath(path, folder).replace(os.sep, "/"): checksum(path, "sha256") for path in sorted(paths)}
    marker = dict(facts, files=sums, sizes=_sizes(folder, sums))
    with io.open(os.path.join(folder, MARKER), "w", encoding="utf-8") as file:
        file.write(json.dumps(marker, indent=1, sort_keys=True) + "\n")
    os.chmod(folder, 0o755)  # mkdtemp makes it private; another user's cell may read it


def _sizes(folder, names):
    return {name: os.path.getsize(os.path.join(folder, name)) for name in names}


def _put(aside, target):
    try:
        os.rename(aside, target)
    except OSError:
        if _whole(target):  # another cell was faster
            return
        broken = tempfile.mkdtemp(prefix=".broken.", dir=os.path.dirname(target))
        os.rename(target, os.path.join(broken, "old"))
        shutil.rmtree(broken, ignore_errors=True)
        os.rename(aside, target)


def _whole(folder):
    marker = os.path.join(folder, MARKER)
    if not os.path.isfile(marker):
        return False
    try:
        sums = _marker_sums(marker)
        sizes = _sizes(folder, sums)
        # Before a file is read: its size may be any.
        if sum(sizes.values()) > _MOST_STAND_IN_BYTES or _marked(marker, "sizes") != {
            n: str(s) for n, s in sizes.items()
        }:
            return False
        return all(checksum(os.path.join(folder, name), "sha256") == value for name, value in sums.items())
    except (DataError, OSError, ValueError):
        return False
