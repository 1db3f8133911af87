"""The path of a new user: pictures, train, eval elsewhere, predict, embed, Python; folders move in between.

new_user.py TANDEM SOURCES
"""

import csv
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy
from PIL import Image, ImageDraw
from safetensors import safe_open

TANDEM, SOURCES = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
CLASSES = ["circle", "cross", "square", "triangle"]
EACH = 50  # pictures a class that are predicted


def draw(name, numbers):
    """A dark shape on a light ground, anywhere, in one of several formats and sizes."""
    width, height = numbers.choice([(80, 60), (64, 64), (60, 90)])
    image = Image.new("RGB", (width, height), tuple(numbers.randint(150, 255) for _ in range(3)))
    pen, ink = ImageDraw.Draw(image), tuple(numbers.randint(0, 110) for _ in range(3))
    r = numbers.randint(14, 24)
    x, y = numbers.randint(r, width - r), numbers.randint(r, height - r)
    if name == "circle":
        pen.ellipse([x - r, y - r, x + r, y + r], fill=ink)
    elif name == "square":
        pen.rectangle([x - r, y - r, x + r, y + r], fill=ink)
    elif name == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=ink)
    else:
        pen.line([x - r, y - r, x + r, y + r], fill=ink, width=6)
        pen.line([x + r, y - r, x - r, y + r], fill=ink, width=6)
    return image


def write_pictures(folder, each, seed):
    numbers = random.Random(seed)
    for name in CLASSES:
        place = pathlib.Path(folder) / name
        place.mkdir(parents=True)
        for i in range(each):
            draw(name, numbers).save(place / f"{i:03}.{'jpg' if i % 2 else 'png'}", quality=92)


def tandem(*words):
    """The result of a subcommand."""
    ended = subprocess.run([TANDEM, *words, "--json", "result"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    with open("result") as file:
        return json.load(file)


def train():
    write_pictures("pictures", 100, 1)
    trained = tandem("train", "data=images:pictures", "model=resnet18", "data.size=32", "ranks=2", "train.batch=32",
                     "train.epochs=8", "train.lr=0.02", "data.affine=0", "checkpoint.best=top1", "out=RUN")
    os.rename("pictures", "elsewhere")
    os.rename("RUN", "moved")
    return trained


def test_elsewhere():
    held_out = tandem("eval", "moved", "data=images:elsewhere")
    assert held_out["test_images"] == 80, held_out["test_images"]
    write_pictures("new", EACH, 2)
    tested = tandem("eval", "moved/checkpoints/best", "data=images:new", "ranks=1")
    assert tested["test_images"] == len(CLASSES) * EACH
    assert [one["name"] for one in tested["classes"]] == CLASSES
    assert sum(one["right"] for one in tested["classes"]) == round(tested["top1"] * tested["test_images"])
    assert numpy.trace(numpy.array(tested["confusion"])) == round(tested["top1"] * tested["test_images"])
    assert tested["top1"] > 0.7, tested["top1"]  # by chance: 0.25
    return tested


def predict(tested):
    found = tandem("predict", "moved/checkpoints/best", "new", "--csv", "p.csv")["predictions"]
    right = sum(one["classes"][0]["name"] == pathlib.Path(one["path"]).parent.name for one in found)
    assert right == round(tested["top1"] * tested["test_images"]), right
    with open("p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [rows[i]["path"] for i in range(0, len(rows), len(CLASSES))] == [one["path"] for one in found]
    return found


def embed(found):
    told = tandem("embed", "moved/checkpoints/best", "data=images:new", "out=f.safetensors")
    tandem("embed", "moved/checkpoints/best", "new", "out=f.npy", "ranks=3")
    with safe_open("f.safetensors", "np") as file:
        features, labels = file.get_tensor("features"), file.get_tensor("labels")
        paths = json.loads(file.get_tensor("paths").tobytes())
    assert features.shape == (told["count"], told["dim"]) and paths == [one["path"] for one in found]
    assert labels.tolist() == [CLASSES.index(pathlib.Path(path).parent.name) for path in paths]
    assert numpy.allclose(numpy.load("f.npy"), features, rtol=1e-4, atol=1e-4)


def go_on_in_python(found):
    """The code of the page, with the merged file alone."""
    ended = subprocess.run([TANDEM, "reshard", "moved/checkpoints/best", "merge=model.safetensors"], timeout=60)
    assert ended.returncode == 0
    page = (SOURCES / "docs" / "use.md").read_text()
    names = {}
    exec(re.search("```python\n(.*?)```", page, re.S).group(1), names)
    most = 0
    for one in found:
        name, score = names["predict"](one["path"])
        best, second = one["classes"][:2]
        most = max(most, abs(score - best["score"]))
        assert name == best["name"] or best["score"] - second["score"] < 0.05, (one, name, score)
    assert most < 0.05, most
    return most


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        train()
        tested = test_elsewhere()
        found = predict(tested)
        embed(found)
        most = go_on_in_python(found)
        print(f"top-1 {tested['top1']:.3f}, {len(found)} pictures; scores in Python differ by at most {most:.4f}")
        os.chdir("/")


main()
