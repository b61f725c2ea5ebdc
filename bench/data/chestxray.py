"""NIH ChestX-ray14 (Wang et al. 2017): the table and the pictures, resized once to 264 x 264; and a stand-in in the same layout.

A folder holds Data_Entry_2017.csv, or NIH's later table of other labels, Data_Entry_2017_v2020.csv, and, in it or in its `images`, the
pictures that the table names. Patients are split by their number in order, as the published study did: 70 % train, 10 % validation, 20 %
test of 30 805. A picture stays a file until a mini-batch needs it.

The stand-in's findings are blobs: each of the 14 has its own place, size and grain, on lungs of random light and noise, so that a
network of convolutions finds them and a linear one, to which light and place are confounded, finds less.
"""

import csv
import hashlib
import io
import os

import numpy as np

from bench import rules
from bench.data import files, png
from bench.data.pictures import Part, Pictures, spaced
from bench.errors import DataError

NAME = "chestxray"
GENERATOR = 1
TABLE = "Data_Entry_2017.csv"
LATER_TABLE = "Data_Entry_2017_v2020.csv"
COLUMNS = ("Image Index", "Finding Labels", "Patient ID")
FINDINGS = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema", "Fibrosis", "Hernia", "Infiltration", "Mass",
    "Nodule", "Pleural_Thickening", "Pneumonia", "Pneumothorax",
)  # fmt: skip
NOTHING = "No Finding"
PATIENTS = 30805
TRAIN, VALIDATION = 21563, 3080  # patients 1 to 21 563, and the next 3 080; the rest are for the test
STORED = 264
RESIZE = "resize every picture once to 264 x 264, bilinear"

# Labels of a Part are (N, 14) float32, 0 or 1, findings in alphabetical order.


# -- reading ---------------------------------------------------------------------------------------------------------


def load(folder, train_items, test_items, seed, cache):
    """The Pictures of a folder, or of a stand-in if it is None: at most these numbers, evenly spaced. Raises DataError."""
    if folder is None:
        folder = files.stand_in(cache, NAME, GENERATOR, seed, train_items, test_items, write_stand_in)
    folder = str(folder)
    table = LATER_TABLE if os.path.isfile(os.path.join(folder, LATER_TABLE)) else TABLE
    if table == LATER_TABLE and os.path.isfile(os.path.join(folder, TABLE)):
        raise DataError("%s holds %s and %s, whose labels differ: leave one of them" % (folder, TABLE, LATER_TABLE))
    rows = read_table(os.path.join(folder, table))
    validation_items = test_items // 2
    parts = [
        _part(folder, table, rows, *limits)
        for limits in (
            (1, TRAIN, train_items),
            (TRAIN + 1, TRAIN + VALIDATION, validation_items),
            (TRAIN + VALIDATION + 1, PATIENTS, test_items),
        )
    ]
    for part, what in ((parts[0], "train"), (parts[2], "test")):
        if not part.pictures:
            raise DataError(
                "%s: Patient ID: no patient is of the %s part; use the whole table"
                % (os.path.join(folder, table), what)
            )
    source = "generated" if os.path.exists(os.path.join(folder, files.MARKER)) else "files"
    few = source == "generated" and train_items > MOST_PICTURES
    name = NAME + (" (labels of 2020)" if table == LATER_TABLE else "")
    return Pictures(
        name + (" (%d pictures again and again)" % MOST_PICTURES if few else ""), source, _digest(parts), *parts
    )


def read_table(path):
    """[(line, picture, patient, labels)] of the table, in its order. Raises DataError, naming line, field and fix."""
    if not os.path.isfile(path):
        held = files.held(os.path.dirname(path))
        raise DataError("%s is missing (%s): put NIH's table there, beside the folder `images`" % (path, held))
    try:
        reader = csv.DictReader(io.StringIO(files.read_bytes(path).decode("utf-8-sig")), strict=True)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise DataError("%s, line 1: the column %r is missing; use NIH's table as it is" % (path, missing[0]))
        return [_row(path, reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError("%s is no CSV table (%s): download it again" % (path, error))


def _row(path, line, row):
    def wrong(field, value, fix):
        return DataError("%s, line %d: %s: %r; %s" % (path, line, field, str(value)[:60], fix))

    picture, findings, patient = (row[column] for column in COLUMNS)
    if not picture or os.path.basename(picture) != picture or not picture.lower().endswith(".png"):
        raise wrong("Image Index", picture, "it must be the plain name of a .png")
    number = rules.whole(patient or "")
    if number is None or not 1 <= number <= PATIENTS:
        raise wrong("Patient ID", patient, "it must be a whole number from 1 to %d" % PATIENTS)
    labels = np.zeros(len(FINDINGS), np.float32)
    for finding in (findings or "").split("|"):
        if finding in FINDINGS:
            labels[FINDINGS.index(finding)] = 1.0
        elif finding != NOTHING:
            raise wrong("Finding Labels", finding, "it must be %r or of: %s" % (NOTHING, ", ".join(FINDINGS)))
    if labels.any() and NOTHING in findings.split("|"):
        raise wrong("Finding Labels", findings, "there is a finding or there is none")
    return line, picture, number, labels


def _part(folder, table, rows, first, last, items):
    chosen = spaced(items, [row for row in rows if first <= row[2] <= last])
    pictures = []
    for line, picture, _, _ in chosen:
        paths = [os.path.join(folder, "images", picture), os.path.join(folder, picture)]
        path = next((path for path in paths if os.path.isfile(path)), None)
        if path is None:
            message = "%s is missing, which line %d of %s names: put the pictures there, and %s"
            raise DataError(message % (paths[0], line, table, RESIZE))
        pictures.append(path)
    labels = np.array([row[3] for row in chosen], np.float32).reshape(-1, len(FINDINGS))
    return Part(pictures, labels, read_picture, STORED)


def _digest(parts):
    """SHA-256 over names and labels of what is used; the pictures' own bytes are read when their mini-batch comes."""
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update("\n".join(os.path.basename(path) for path in part.pictures).encode("utf-8"))
        sha256.update(part.labels.tobytes())
    return sha256.hexdigest()


def read_picture(path):
    """uint8 (264, 264, 3) of a file. Raises DataError."""
    try:
        pixels = png.decode(files.read_bytes(path))
    except png.PictureError as error:
        raise DataError("%s %s; %s" % (path, error, RESIZE))
    if pixels.shape[:2] != (STORED, STORED):
        raise DataError("%s is %d x %d pixels; %s" % ((path,) + pixels.shape[1::-1] + (RESIZE,)))
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


# -- the stand-in ----------------------------------------------------------------------------------------------------

# The most pictures to draw; a longer table repeats them, as nobody waits for 100 000.
MOST_PICTURES = 2048
SHARE = 0.2  # of the pictures that have a given finding


def write_stand_in(folder, train_items, test_items, seed):
    """Write the table and `images/` of a stand-in: items for training and for the test, and half of the latter for validation."""
    random = np.random.RandomState(seed)
    parts = ((train_items, 1), (test_items // 2, TRAIN + 1), (test_items, TRAIN + VALIDATION + 1))
    lines = ["Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"]
    os.mkdir(os.path.join(folder, "images"))
    for items, first in parts:
        made = []
        for index in range(min(items, MOST_PICTURES)):
            labels = random.uniform(size=len(FINDINGS)) < SHARE
            name = "%08d_%03d.png" % (first + index, 0)
            with open(os.path.join(folder, "images", name), "wb") as file:
                file.write(png.write(draw(random, labels)))
            made.append((name, "|".join(np.array(FINDINGS)[labels]) or NOTHING, first + index))
        for index in range(items):
            lines.append("%s,%s,0,%d,050,F,PA" % made[index % len(made)])
    with io.open(os.path.join(folder, TABLE), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def draw(random, labels):
    """uint8 (264, 264, 3): grey, two dark lungs, and a blob of its own kind for each finding."""
    at = np.arange(STORED, dtype=np.float32)
    picture = np.full((STORED, STORED), random.randint(90, 150), np.float32)
    for middle in (84, 180):
        picture -= 50.0 * _bell(at, 132, 80)[:, None] * _bell(at, middle, 36)
    for finding in np.flatnonzero(labels):
        row, column = divmod(int(finding), 4)
        y, x = 60 + 45 * row + random.randint(-12, 13), 50 + 55 * column + random.randint(-12, 13)
        size = 10 + 2 * (finding % 5)
        grain = 1.0 + np.sin(at * (0.3 + 0.1 * (finding % 7)))
        picture += 45.0 * _bell(at, y, size)[:, None] * (_bell(at, x, size) * grain)
    coarse = random.randint(-8, 9, (STORED // 4, STORED // 4)).repeat(4, axis=0).repeat(4, axis=1)
    grey = np.clip(picture + coarse, 0, 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _bell(at, middle, width):
    return np.exp(-0.5 * ((at - middle) / width) ** 2)
