"""Characters drawn from the machine's CJK fonts with Pillow: one uint8 array of images, kept as a file.

The same fonts, characters and order as Tandem's `data=glyphs`: GB 2312 level 1 in the standard's order, then the rest
of U+4E00-9FA5. Pixels differ a little (Pillow hints the outlines), shapes and numbers do not.
"""
import pathlib

import numpy as np

# name, file, face of mainland China in a collection; the order of tandem/data/font_table.cpp
FONTS = [
    ("noto-sans", "NotoSansCJK-Regular.ttc", 2),
    ("noto-serif", "NotoSerifCJK-Regular.ttc", 2),
    ("zenhei", "wqy-zenhei.ttc", 0),
    ("microhei", "wqy-microhei.ttc", 0),
    ("ukai", "ukai.ttc", 0),
    ("uming", "uming.ttc", 0),
    ("gkai", "gkai00mp.ttf", 0),
    ("bkai", "bkai00mp.ttf", 0),
    ("gbsn", "gbsn00lp.ttf", 0),
    ("bsmi", "bsmi00lp.ttf", 0),
    ("babelstone", "BabelStoneHan.ttf", 0),
    ("droid", "DroidSansFallbackFull.ttf", 0),
    ("ipa-gothic", "ipag.ttf", 0),
    ("ipa-mincho", "ipam.ttf", 0),
    ("cwtex-kai", "cwkai.ttf", 0),
    ("hanazono", "HanaMinA.ttf", 0),
]
TEST_FONTS = ("ukai", "zenhei", "noto-serif")
FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", str(pathlib.Path.home() / ".local/share/fonts"))


def characters(count):
    """The first `count` classes."""
    level1 = [bytes([row, cell]).decode("gb2312") for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF)
              if not (row == 0xD7 and cell > 0xF9)]
    assert len(level1) == 3755
    rest = sorted({chr(code) for code in range(0x4E00, 0x9FA6)} - set(level1))
    if not 2 <= count <= len(level1) + len(rest):
        raise SystemExit(f"--classes is {count}, wanted 2..{len(level1) + len(rest)}")
    return (level1 + rest)[:count]


def _find(name):
    for folder in FOLDERS:
        for path in pathlib.Path(folder).rglob(name):
            return path
    return None


def _draw(font, character, size):
    """The character's bounding box in the middle of a size x size image; None when there is nothing to see."""
    mask = font.getmask(character, mode="L")
    width, height = mask.size
    if width == 0 or height == 0:
        return None
    ink = np.asarray(mask, dtype=np.uint8).reshape(height, width)[:size, :size]
    image = np.zeros((size, size), np.uint8)
    top, left = (size - ink.shape[0]) // 2, (size - ink.shape[1]) // 2
    image[top:top + ink.shape[0], left:left + ink.shape[1]] = ink
    return image


def _render(path, face, classes, size):
    from PIL import ImageFont

    font = ImageFont.truetype(str(path), size=0.9 * size, index=face, layout_engine=ImageFont.Layout.BASIC)
    absent = _draw(font, "\U0010FFFF", size)  # what the font shows for a character that it lacks
    for label, character in enumerate(classes):
        image = _draw(font, character, size)
        if image is None or (absent is not None and np.array_equal(image, absent)):
            continue
        yield label, image


def load(num_classes, size, cache):
    """(train images, train labels, test images, test labels): [n, size, size] uint8 and [n] int64, memory-mapped."""
    folder = pathlib.Path(cache) / f"{num_classes}x{size}"
    names = [f"{part}_{what}.npy" for part in ("train", "test") for what in ("images", "labels")]
    if not all((folder / name).exists() for name in names):
        folder.mkdir(parents=True, exist_ok=True)
        classes = characters(num_classes)
        parts = {"train": ([], []), "test": ([], [])}
        for name, file, face in FONTS:
            path = _find(file)
            if path is None:
                print(f"font {name} ({file}) is not installed: left out")
                continue
            images, labels = parts["test" if name in TEST_FONTS else "train"]
            for label, image in _render(path, face, classes, size):
                images.append(image)
                labels.append(label)
        for part, (images, labels) in parts.items():
            if not images:
                raise SystemExit(f"no font for {part}: install the packages that docs/data.md names")
            np.save(folder / f"{part}_images.npy", np.stack(images))
            np.save(folder / f"{part}_labels.npy", np.array(labels, np.int64))
    return [np.load(folder / name, mmap_mode="r") for name in names]
