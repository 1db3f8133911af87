"""Pictures of 20 kinds, and what Pillow makes of them:

    images.py FOLDER FILE    writes FOLDER/KIND.I.png or .jpg, ten of a kind

FILE gets, behind each file's name: /whole [3, H, W], the picture as it is to be decoded, upright, transparent pixels
over white; /scaled, /bicubic, /nearest [3, S, S], the whole one scaled; /cropped [3, S, S], by torchvision's rule for
Resize and CenterCrop; /part [3, S, S], a part cut out, then scaled; /grey [1, H, W], in mode L; for a JPEG also
/reduced [3, S, S], decoded at 1/2, 1/4 or 1/8 with both sides still three times S, then scaled. Pillow clips samples
of 16 bits, and compares the transparent sample of 2 or 4 bits with others: there the samples that were written count,
of 16 bits the upper 8. Exits with 77 where Pillow is missing.
"""
import io
import pathlib
import struct
import sys
import zlib

try:
    import numpy as np
    import torch
    from PIL import Image, ImageOps
except ImportError as error:
    print(error)
    sys.exit(77)

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
EACH = 10
ORIENTATION = 0x112


def texture(rng, height, width, channels):
    """Smooth shapes with noise on them."""
    y, x = np.mgrid[:height, :width]
    a, b = rng.uniform(0.05, 0.3, 2)
    shapes = [128 + 70 * np.sin(a * x + c) * np.cos(b * y - c) for c in range(channels)]
    return (np.stack(shapes, -1) + rng.uniform(-30, 30, (height, width, channels))).astype(np.uint8)


def exif(orientation, order):
    """EXIF data with two tags in the byte order `order`."""
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 8)
    make = struct.pack(order + "HHI", 0x10F, 2, 4) + b"abc\0"
    turn = struct.pack(order + "HHIHHI", ORIENTATION, 3, 1, orientation, 0, 0)
    return head + struct.pack(order + "H", 2) + make + turn


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples, depth):
    """Rows of samples [H, W, C] as PNG packs them, each with filter 0."""
    rows = b""
    for row in samples.reshape(len(samples), -1):
        bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, -depth:]
        rows += b"\0" + (row.astype(">u2").tobytes() if depth == 16 else np.packbits(bits.reshape(-1)).tobytes())
    return rows


def png(samples, depth, colour, interlaced, chunks, late):
    height, width = samples.shape[:2]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in (ADAM7 if interlaced else ((0, 0, 1, 1),))]
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced)))
    data = chunk(b"IDAT", zlib.compress(b"".join(packed(part, depth) for part in parts if part.size)))
    return b"\x89PNG\r\n\x1a\n" + head + chunks + data + late + chunk(b"IEND", b"")


def colour_chunks(i, colour):
    """Chunks that ask for other colours than the samples."""
    gammas = [chunk(b"gAMA", struct.pack(">I", gamma)) for gamma in (45455, 100000, 35000)]
    profile = chunk(b"iCCP", b"icc\0\0" + zlib.compress(bytes(range(256))))
    bits = chunk(b"sBIT", b"\5" * {GREY: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}.get(colour, 3))
    primaries = chunk(b"cHRM", struct.pack(">8I", *range(30000, 38000, 1000)))
    return (b"", gammas[0], gammas[1], chunk(b"sRGB", b"\0"), profile, bits, gammas[2] + primaries)[i % 7]


def over_white(image):
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def from_samples(samples, depth, colour, transparent):
    """The picture by what was written."""
    upper = samples >> 8 if depth == 16 else samples * 255 // ((1 << depth) - 1)
    colours = upper[..., :3] if colour in (RGB, RGB_ALPHA) else np.repeat(upper[..., :1], 3, -1)
    alpha = upper[..., -1] if colour in (GREY_ALPHA, RGB_ALPHA) else np.full(samples.shape[:2], 255)
    if transparent is not None:
        alpha = np.where((samples == transparent).all(-1), 0, 255)
    return over_white(Image.fromarray(np.dstack([colours, alpha]).astype(np.uint8), "RGBA"))


def make_png(rng, i, depths, colour, transparent=False):
    depth = depths[i % len(depths)]
    height, width = rng.integers(1, 40, 2)
    entries = int(rng.integers(2, min(1 << depth, 200) + 1)) if colour == PALETTE else 1 << depth
    samples = rng.integers(0, entries, (height, width, CHANNELS[colour]), dtype=np.int64)
    chunks, key = colour_chunks(i, colour), None
    if colour == PALETTE:
        chunks += chunk(b"PLTE", rng.bytes(3 * entries))
        chunks += chunk(b"tRNS", rng.bytes(int(rng.integers(1, entries + 1)))) if transparent else b""
    elif transparent:
        key = samples[0, 0]
        chunks += chunk(b"tRNS", key.astype(">u2").tobytes())
    turn = chunk(b"eXIf", exif(i % 8 + 1, "<>"[i % 2])) if i % 3 == 0 else b""
    early, late = (turn, b"") if i // 3 % 2 else (b"", turn)
    file = png(samples, depth, colour, i % 2 == 1, chunks + early, late)
    image = Image.open(io.BytesIO(file))
    image.load()
    pillow_differs = depth == 16 or key is not None and depth in (2, 4)
    whole = from_samples(samples, depth, colour, key) if pillow_differs else over_white(image)
    whole.getexif()[ORIENTATION] = image.getexif().get(ORIENTATION, 1)
    return file, ImageOps.exif_transpose(whole), None


def make_jpeg(rng, i, mode="RGB", edit=lambda file, i: file, **options):
    """A large one if i is even."""
    height, width = rng.integers(20, 150, 2) if i % 2 else rng.integers(150, 320, 2)
    stored, buffer = texture(rng, height, width, {"L": 1, "RGB": 3, "CMYK": 4}[mode]), io.BytesIO()
    image = Image.fromarray(stored[..., 0] if mode == "L" else stored, mode)
    image.save(buffer, "JPEG", quality=(75, 90, 95)[i % 3], **options)
    file = edit(buffer.getvalue(), i)
    whole = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")
    return file, whole, Image.open(io.BytesIO(file))


def with_exif(file, i):
    """An EXIF segment behind JFIF's."""
    data = b"Exif\0\0" + exif((i // 2 + 4 * (i % 2)) % 8 + 1, "<>"[i // 2 % 2])
    return file[:20] + b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data + file[20:]


def without_adobe(file, i):
    at = file.index(b"\xff\xee")
    return file[:at] + file[at + 16:] if i % 2 else file


def as_ycck(file, i):
    """The same samples, said to be YCCK: Adobe's transform 2."""
    at = file.index(b"Adobe") + 11
    return file[:at] + b"\2" + file[at + 1:]


KINDS = {
    "grey_few_bits": lambda rng, i: make_png(rng, i, (1, 2, 4), GREY),
    "grey_8": lambda rng, i: make_png(rng, i, (8,), GREY),
    "grey_16": lambda rng, i: make_png(rng, i, (16,), GREY),
    "rgb_8": lambda rng, i: make_png(rng, i, (8,), RGB),
    "rgb_16": lambda rng, i: make_png(rng, i, (16,), RGB),
    "palette": lambda rng, i: make_png(rng, i, (1, 2, 4, 8), PALETTE),
    "palette_transparent": lambda rng, i: make_png(rng, i, (1, 2, 4, 8), PALETTE, True),
    "grey_transparent": lambda rng, i: make_png(rng, i, (1, 2, 4, 8, 16), GREY, True),
    "rgb_transparent": lambda rng, i: make_png(rng, i, (8, 16), RGB, True),
    "grey_alpha": lambda rng, i: make_png(rng, i, (8, 16), GREY_ALPHA),
    "rgb_alpha": lambda rng, i: make_png(rng, i, (8, 16), RGB_ALPHA),
    "jpeg_grey": lambda rng, i: make_jpeg(rng, i, "L", progressive=i % 4 == 0),
    "jpeg_444": lambda rng, i: make_jpeg(rng, i, subsampling=0),
    "jpeg_422": lambda rng, i: make_jpeg(rng, i, subsampling=1, optimize=True),
    "jpeg_420": lambda rng, i: make_jpeg(rng, i, subsampling=2, restart_marker_blocks=i),
    "jpeg_progressive": lambda rng, i: make_jpeg(rng, i, subsampling=i % 3, progressive=True),
    "jpeg_rgb": lambda rng, i: make_jpeg(rng, i, keep_rgb=True),
    "jpeg_exif": lambda rng, i: make_jpeg(rng, i, edit=with_exif, progressive=i % 4 == 0),
    "jpeg_cmyk": lambda rng, i: make_jpeg(rng, i, "CMYK", without_adobe, subsampling=i % 3),
    "jpeg_ycck": lambda rng, i: make_jpeg(rng, i, "CMYK", as_ycck, progressive=i % 3 == 0),
}


def planes(image):
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def scaled(image, size, resampling=Image.Resampling.BILINEAR):
    return planes(image.resize((size, size), resampling))


def cropped(image, size):
    """torchvision.transforms.functional: resize(size), then center_crop(size)."""
    short, long = min(image.size), max(image.size)
    sides = [size if side == short else int(size * long / short) for side in image.size]
    left, top = (int(round((side - size) / 2.0)) for side in sides)
    return planes(image.resize(sides, Image.Resampling.BILINEAR).crop((left, top, left + size, top + size)))


def part(image, size):
    """torchvision.transforms.functional.resized_crop()."""
    width, height = image.size
    left, top = width // 5, height // 7
    box = (left, top, left + max(1, width // 2), top + max(1, height * 2 // 3))
    return scaled(image.crop(box), size)


def reduced(image, size):
    """As Image.thumbnail() does with a reducing_gap of 3."""
    orientation = image.getexif().get(ORIENTATION, 1)
    _, box = image.draft(image.mode, (3 * size, 3 * size))
    small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box)
    small.getexif()[ORIENTATION] = orientation
    return planes(ImageOps.exif_transpose(small))


def make(folder):
    rng, answer = np.random.default_rng(7), {}
    for kind, make_one in KINDS.items():
        for i in range(EACH):
            file, whole, jpeg = make_one(rng, i)
            name, size = f"{kind}.{i}." + ("jpg" if jpeg else "png"), 8 + 3 * i
            (folder / name).write_bytes(file)
            answer |= {f"{name}/whole": planes(whole), f"{name}/scaled": scaled(whole, size)}
            answer[f"{name}/bicubic"] = scaled(whole, size, Image.Resampling.BICUBIC)
            answer[f"{name}/nearest"] = scaled(whole, size, Image.Resampling.NEAREST)
            answer[f"{name}/cropped"] = cropped(whole, size)
            answer[f"{name}/part"] = part(whole, size)
            answer[f"{name}/grey"] = np.asarray(whole.convert("L"))[None].copy()
            if jpeg:
                answer[f"{name}/reduced"] = reduced(jpeg, size)
    return answer


def main():
    folder, file = sys.argv[1:]
    torch.save({name: torch.from_numpy(array) for name, array in make(pathlib.Path(folder)).items()}, file)


if __name__ == "__main__":
    main()
