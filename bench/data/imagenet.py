"""ImageNet (ILSVRC 2012), its pictures stored once at 256 x 256: folders of classes, or tar shards; and a stand-in in folders.

A folder holds `train` and `val`, in each a folder a class, in each the pictures; the classes are counted in alphabetical order.
Or it holds WebDataset's shards, train-*.tar and val-*.tar: of each key a picture and a .cls with the class's number. Pictures are .png,
.npy (uint8, 256 x 256 x 3) or .jpg. A shard is read where it lies: nothing is unpacked, and its headers are checked. A picture stays a file
until a mini-batch needs it.

The stand-in's classes are gratings: each has its own direction and width of stripes, at a random place and in random colours under
noise, so that a network of convolutions tells them apart and a linear one, to which every pixel's mean is the same, does not.
"""

import hashlib
import io
import os
import tarfile

import numpy as np

from bench import rules
from bench.data import files, jpeg, png
from bench.data.pictures import Part, Pictures, spaced
from bench.errors import DataError

NAME = "imagenet"
CLASSES = 1000
GENERATOR = 1
STORED = 256
TRAIN, TEST = "train", "val"
SUFFIXES = (".png", ".npy", ".jpg", ".jpeg")
ADVICE = "store every picture once at 256 x 256, as JPEG, 8-bit RGB PNG or .npy"
ARCHIVE = "ILSVRC2012_img_%s.tar"  # the official one of a part
KAGGLES = ("ILSVRC", "Data", "CLS-LOC")  # the folders around both parts
UNPACK = {
    TRAIN: "mkdir train && tar -xf TAR -C train && cd train && "
    'for part in *.tar; do mkdir "${part%.tar}" && tar -xf "$part" -C "${part%.tar}" && rm "$part"; done',
    TEST: "mkdir val && tar -xf TAR -C val",
}
MOST_BYTES = 1 << 24  # of a picture's file: one of 256 x 256 pixels has 200 kB at the most
MOST_PICTURES = 1 << 22  # of a part: ImageNet has 1 281 167


# -- reading ---------------------------------------------------------------------------------------------------------


def load(folder, train_items, test_items, seed, cache):
    """The Pictures of a folder, or of a stand-in if it is None: at most these numbers, evenly spaced. Raises DataError."""
    if folder is not None:
        return _of_folder(str(folder), train_items, test_items)
    written = [min(items, MOST_DRAWN) for items in (train_items, test_items)]
    at = files.stand_in(cache, NAME, GENERATOR, seed, written[0], written[1], write_stand_in)
    whole = _of_folder(at, train_items, test_items)
    repeated = [_again(part, items) for part, items in ((whole.train, train_items), (whole.test, test_items))]
    few = train_items > MOST_DRAWN
    name = NAME + (" (%d pictures again and again)" % MOST_DRAWN if few else "")
    return whole._replace(name=name, source="generated", train=repeated[0], test=repeated[1])


def _of_folder(folder, train_items, test_items):
    read_all = _shards if _shard_paths(folder, TRAIN) else _folders
    train, test, classes = read_all(folder)
    parts = []
    for what, listed, items in ((TRAIN, train, train_items), (TEST, test, test_items)):
        if not listed:
            at = os.path.join(folder, what)
            if os.path.isdir(at) and any(name.lower().endswith(SUFFIXES) for name in _names(at)):
                message = (
                    "%s has its pictures in no folder of a class (%s): move each into the folder of its class, as in %s"
                )
                raise DataError(message % (at, files.held(at), os.path.join(folder, TRAIN)))
            message = "%s has no pictures (%s) in folders of their classes; %s: fill it, or name another folder"
            raise DataError(message % (at, ", ".join(SUFFIXES), files.held(at)))
        if len(listed) > MOST_PICTURES:
            raise DataError(
                "%s has more than %d pictures: this is not ImageNet; name another folder" % (folder, MOST_PICTURES)
            )
        listed = spaced(items, listed)
        parts.append(
            Part(
                [which for which, _ in listed], np.array([label for _, label in listed], np.int32), read_picture, STORED
            )
        )
    name = NAME if classes in (None, CLASSES) else "%s (%d of %d classes)" % (NAME, classes, CLASSES)
    return Pictures(name, "files", _digest(parts), parts[0], None, parts[1])


def _again(part, items):
    """A part of `items` items, whose pictures repeat if there are fewer."""
    places = np.arange(items) % len(part.pictures)
    return part._replace(pictures=[part.pictures[place] for place in places], labels=part.labels[places])


def _digest(parts):
    """SHA-256 over names and labels of what is used; the pictures' own bytes are read when their mini-batch comes."""
    sha256 = hashlib.sha256()
    for part in parts:
        for path, offset, size in part.pictures:
            name = "/".join(path.replace(os.sep, "/").rsplit("/", 2)[-2:])
            sha256.update(("%s %s %s\n" % (name, offset, size)).encode("utf-8", "surrogateescape"))
        sha256.update(part.labels.tobytes())
    return sha256.hexdigest()


# A picture is (path, offset, size): where its bytes lie in a shard, or None and None for all of a file.


def _folders(folder):
    """([(picture, label)] of train, of val, the number of classes): each class a folder. Raises DataError."""
    classes = _classes(os.path.join(folder, TRAIN))
    if len(classes) > CLASSES:
        message = "%s has %d folders, and the network tells %d classes apart: leave the classes in it and nothing else"
        raise DataError(message % (os.path.join(folder, TRAIN), len(classes), CLASSES))
    unknown = [name for name in _classes(os.path.join(folder, TEST)) if name not in classes]
    if unknown:
        message = "%s is no class of %s: sort the validation pictures into the folders of their classes"
        raise DataError(message % (os.path.join(folder, TEST, unknown[0]), os.path.join(folder, TRAIN)))
    parts = []
    for what in (TRAIN, TEST):
        listed = []
        for label, name in enumerate(classes):
            at = os.path.join(folder, what, name)
            names = _names(at) if os.path.isdir(at) else []
            listed += [
                ((os.path.join(at, name_of_file), None, None), label)
                for name_of_file in names
                if name_of_file.lower().endswith(SUFFIXES)
            ]
        parts.append(listed)
    return parts[0], parts[1], len(classes)


def _classes(at):
    """The names of the folders in a folder, in order."""
    if not os.path.isdir(at):
        folder = os.path.dirname(at)
        message = (
            "%s is missing (%s): put ImageNet's classes there, a folder each, or shards %s-*.tar and %s-*.tar beside it"
        )
        raise DataError(_as_downloaded(folder, os.path.basename(at)) or message % (at, files.held(folder), TRAIN, TEST))
    return [name for name in _names(at) if os.path.isdir(os.path.join(at, name)) and _has_files(os.path.join(at, name))]


def _has_files(at):
    """A folder without a file is no class: a disk has its lost+found, and an archive made on a Mac its __MACOSX."""
    try:
        with os.scandir(at) as entries:
            return any(entry.is_file() and not entry.name.startswith(".") for entry in entries)
    except OSError:
        return True  # whoever reads it says why it cannot be read


def _as_downloaded(folder, what):
    """A sentence on a part of ImageNet that lies in a folder as it is downloaded, and what to do with it; None where none does."""
    for skipped in range(len(KAGGLES)):
        inner = os.path.join(folder, *KAGGLES[skipped:])
        if os.path.isdir(os.path.join(inner, what)):
            return "%s holds ImageNet as Kaggle packs it: name %s instead; %s" % (folder, inner, ADVICE)
    archive = os.path.join(folder, ARCHIVE % what)
    if not os.path.isfile(archive):
        return None
    message = (
        "%s is ImageNet as it is downloaded, and is not read: unpack it with `%s` in %s; "
        "then move the pictures of val into the folders of their classes, and %s"
    )
    return message % (archive, UNPACK[what].replace("TAR", ARCHIVE % what), folder, ADVICE)


def _names(at):
    """The names in a folder, sorted; without hidden ones, such as the `._NAME` that a Mac leaves beside NAME."""
    try:
        return sorted(name for name in os.listdir(at) if not name.startswith("."))
    except (IOError, OSError) as error:
        raise DataError("%s cannot be read (%s): name the folder that ImageNet lies in" % (at, error.strerror))


def _shard_paths(folder, what):
    names = [name for name in _names(folder) if name.startswith(what + "-") and name.endswith(".tar")]
    return [os.path.join(folder, name) for name in names]


def _shards(folder):
    """([(picture, label)] of train, of val, None): in the order of the shards. Raises DataError."""
    parts = []
    for what in (TRAIN, TEST):
        paths = _shard_paths(folder, what)
        if not paths:
            raise DataError("%s has no %s-*.tar: put the shards of both parts there" % (folder, what))
        parts.append([picture for path in paths for picture in read_shard(path)])
    return parts[0], parts[1], None


def read_shard(path):
    """[((path, offset, size), label)] of a shard's pictures, in its order; the pictures' bytes are not read. Raises DataError."""
    pictures, labels = [], {}

    def wrong(member, message):
        return DataError("%s: %s %s; make the shard again" % (path, member[:80], message))

    try:
        with files.opened(path) as file, tarfile.open(path, "r:", file) as tar:
            for member in iter(tar.next, None):
                tar.members = []  # it would keep them all
                key, suffix = os.path.splitext(member.name)
                if os.path.basename(key).startswith("._"):
                    continue
                if not member.isreg() or member.issparse():
                    if not member.isdir():
                        raise wrong(member.name, "is no plain file")
                elif member.size > MOST_BYTES:
                    raise wrong(member.name, "has %d bytes, and at most %d are read" % (member.size, MOST_BYTES))
                elif suffix.lower() in SUFFIXES:
                    pictures.append((key, member.name, (path, member.offset_data, member.size)))
                elif suffix == ".cls":
                    labels[key] = tar.extractfile(member).read(16)
            tar.fileobj.seek(tar.offset)
            # tarfile stops at a bad header as it stops at the end, so the end is checked.
            if tar.fileobj.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                raise wrong("after its last file", "it is damaged or cut short")
    except (tarfile.TarError, EOFError, IOError, OSError, ValueError) as error:
        raise DataError("%s is no readable tar file (%s): make the shard again, without compression" % (path, error))
    for key, name, _ in pictures:
        label = labels[key] = rules.whole(labels.get(key, b"").strip().decode("ascii", "replace"))
        if label is None or label >= CLASSES:
            raise wrong(name, "has no class from 0 to %d in %s.cls beside it" % (CLASSES - 1, key[:80]))
    return [(place, labels[key]) for key, _, place in pictures]


def read_picture(picture):
    """uint8 (256, 256, 3) of a picture. Raises DataError."""
    path, offset, size = picture
    try:
        with files.opened(path) as file:
            file.seek(offset or 0)
            content = file.read(MOST_BYTES + 1 if size is None else size)
    except (IOError, OSError) as error:
        raise DataError("%s cannot be read (%s): make it readable, or name another folder" % (path, error.strerror))
    where = path if offset is None else "%s at byte %d" % (path, offset)
    if len(content) > MOST_BYTES:
        raise DataError("%s has more than %d bytes; %s" % (where, MOST_BYTES, ADVICE))
    try:
        pixels = png.decode(content) if content.startswith(png.SIGNATURE) else _decode_other(content)
    except png.PictureError as error:
        raise DataError("%s %s; %s" % (where, error, ADVICE))
    if pixels.shape[:2] != (STORED, STORED):
        raise DataError("%s is %d x %d pixels; %s" % ((where,) + pixels.shape[1::-1] + (ADVICE,)))
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


def _decode_other(content):
    """uint8 (256, 256, 3) of an .npy or a JPEG, by what the bytes are and not by their name. Raises PictureError."""
    if content.startswith(b"\x93NUMPY"):
        return _read_npy(content)
    if content.startswith(jpeg.SIGNATURE):
        return jpeg.decode(content, STORED)
    raise png.PictureError("is no PNG, no .npy and no JPEG")


def _read_npy(content):
    stream = io.BytesIO(content)
    try:
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read[np.lib.format.read_magic(stream)](stream)
    except Exception as error:  # a damaged header makes NumPy raise exceptions of many types
        raise png.PictureError("has a damaged .npy header (%s)" % str(error)[:80])
    if (shape, fortran, dtype) != ((STORED, STORED, 3), False, np.dtype(np.uint8)):
        raise png.PictureError("is %s %s" % (dtype, shape) + (", columns first" if fortran else ""))
    pixels = content[stream.tell() :]
    if len(pixels) != STORED * STORED * 3:
        raise png.PictureError("has %d bytes of pixels and not %d" % (len(pixels), STORED * STORED * 3))
    return np.frombuffer(pixels, np.uint8).reshape(shape)


# -- the stand-in ----------------------------------------------------------------------------------------------------

MOST_DRAWN = 2048  # of a part; a longer one has them again and again
DIRECTIONS, WIDTHS = 5, (6.0, 11.0, 20.0, 36.0)  # of the stripes, the widths in pixels: 20 classes


def write_stand_in(folder, train_items, test_items, seed):
    """Write `train` and `val` of a stand-in with these numbers of pictures, as many of one class as of another."""
    random = np.random.RandomState(seed)
    for what, items in ((TRAIN, train_items), (TEST, test_items)):
        for label in range(DIRECTIONS * len(WIDTHS)):
            os.makedirs(os.path.join(folder, what, _class_name(label)))
        for index in range(items):
            label = index % (DIRECTIONS * len(WIDTHS))
            with open(os.path.join(folder, what, _class_name(label), "%06d.png" % index), "wb") as file:
                file.write(png.write(draw(random, label)))


def _class_name(label):
    return "class-%03d" % label


def draw(random, label):
    """uint8 (256, 256, 3): stripes between two colours at a random place, under noise."""
    direction, width = label % DIRECTIONS, WIDTHS[label // DIRECTIONS]
    angle = np.pi * (direction + random.uniform(-0.2, 0.2)) / DIRECTIONS
    y, x = np.mgrid[:STORED, :STORED].astype(np.float32)
    phase = (x * np.cos(angle) + y * np.sin(angle)) * (np.pi / width) + random.uniform(0, 2 * np.pi)
    stripes = (0.5 + 0.5 * np.sin(phase))[:, :, None]
    one, other = random.uniform(0, 255, (2, 3))
    picture = stripes * one + (1.0 - stripes) * other + random.normal(0.0, 20.0, (STORED, STORED, 1))
    return np.clip(picture, 0, 255).astype(np.uint8)
