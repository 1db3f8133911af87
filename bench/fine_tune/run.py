#!/usr/bin/env python3
"""What weights from elsewhere are worth: torchvision's resnet18 is trained by torch on 500 characters (pretrain.py),
then `tandem train` learns 200 others, from these weights and from scratch, the same settings, in turn.

    run.py --pairs 3 --target 0.8

Prints for each run the step and the seconds at which the held-out fonts were first classified as well as the target.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "train_glyphs"))
import glyphs  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--learned", type=int, default=500, help="characters that torch learns first")
    add("--classes", type=int, default=200, help="characters after these, to fine-tune on")
    add("--size", type=int, default=48)
    add("--pretrain-steps", type=int, default=600)
    add("--steps", type=int, default=170, help="of each run of tandem")
    add("--every", type=int, default=1, help="epochs between two tests")
    add("--target", type=float, default=0.8, help="top-1 on fonts held out")
    add("--ranks", type=int, default=2)
    add("--pairs", type=int, default=3, help="seeds")
    add("--folder", default=str(ROOT / "build/bench/fine_tune"), help="pictures, weights and runs; kept")
    add("settings", nargs="*", help="settings of tandem for both, after --")
    return parser.parse_args()


def run(command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}")


def draw(folder, classes, size):
    """FOLDER/train and FOLDER/test, each with a sub-folder a character: black on white, one picture a font."""
    from PIL import Image

    if folder.exists():
        return
    for name, file, face in glyphs.FONTS:
        path = glyphs._find(file)
        if path is None:
            continue
        for label, ink in glyphs._render(path, face, classes, size):
            place = folder / ("test" if name in glyphs.TEST_FONTS else "train") / classes[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(255 - ink).save(place / f"{name}.png")


def train(options, name, seed, more):
    """(step, seconds) at the target, or None, and the last accuracy."""
    out = Path(options.folder) / f"{name}_{seed}"
    run(["rm", "-rf", out])
    run([ROOT / "build/tandem", "train", f"data=images:{options.folder}/others", "model=resnet18",
         f"data.size={options.size}", "data.mean=imagenet", "data.std=imagenet", f"train.steps={options.steps}",
         f"eval.every={options.every}", f"ranks={options.ranks}", f"seed={seed}", "report.compare=false",
         f"out={out}", *options.settings, *more])
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    tests = [line for line in log if line["event"] == "test"]
    reached = next(((test["step"], round(test["ts"] - log[0]["ts"], 1)) for test in tests
                    if test["top1"] >= options.target), None)
    return reached, tests[-1]["top1"]


def main():
    options = arguments()
    folder = Path(options.folder)
    characters = glyphs.characters(options.learned + options.classes)
    draw(folder / "learned", characters[:options.learned], options.size)
    draw(folder / "others", characters[options.learned:], options.size)
    weights = folder / "resnet18.safetensors"
    if not weights.exists():
        run([sys.executable, HERE / "pretrain.py", "--images", folder / "learned", "--size", options.size, "--steps",
             options.pretrain_steps, "--out", weights])
    ratios = []
    for seed in range(1, options.pairs + 1):
        tuned, tuned_last = train(options, "tuned", seed, [f"model.weights={weights}"])
        scratch, scratch_last = train(options, "scratch", seed, [])
        print(f"seed {seed}: from weights {tuned}, at the end {tuned_last:.3f}; from scratch {scratch}, at the end "
              f"{scratch_last:.3f}", file=sys.stderr)
        if tuned and scratch:
            ratios.append(scratch[1] / tuned[1])
    if ratios:
        print(f"from scratch / from weights, seconds to {options.target}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
