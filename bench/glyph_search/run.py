#!/usr/bin/env python3
"""A search of architectures on glyphs beside random ones: three searches of the second order, what each found and
eight random genotypes of the same size are trained alike, three times each, and tested on fonts none of them has seen.

    run.py [--jobs 2] [--json FILE] [--docs DIR] [--quick]

The fonts are in three parts: the search's weights learn from TRAIN, its alphas from VALIDATION; the trainings take
both, and their accuracy is that on TEST. The search's weights have 15 epochs before the alphas begin to move.

One thread a job; about 65 minutes with --jobs 1 on an idle core. Parts that are done are kept in --runs and skipped;
one that was cut off goes on from its last epoch.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TRAIN = "noto-sans,noto-sans-bold,uming,gkai,bkai,gbsn,bsmi,ipa-gothic"
VALIDATION = "microhei,droid,babelstone,cwtex-kai"
TEST = "ukai,zenhei,noto-serif,noto-serif-bold,hanazono,ipa-mincho"
OPERATIONS = ("max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3",
              "dil_conv_5x5")  # those of DARTS without none
NODES, EDGES = 4, 2
COMMON = {"data": "glyphs", "data.classes": 100, "data.size": 16, "model.cells": 3, "threads": 1, "train.clip": 5,
          "train.lr": 0.05, "train.weight_decay": 3e-4, "train.schedule": "cosine", "report.compare": "false"}
SEARCH = {**COMMON, "data.train_fonts": TRAIN, "data.test_fonts": VALIDATION, "model": "search:darts",
          "model.channels": 4, "train.batch": 32, "train.epochs": 26, "eval.every": 2, "search.order": 2,
          "search.share": 1, "search.warmup": 15, "search.lr": 3e-3}  # 26 - 15 epochs of 23 steps: 253 of the alphas
TRAINING = {**COMMON, "data.train_fonts": f"{TRAIN},{VALIDATION}", "data.test_fonts": TEST, "model.channels": 8,
            "head": "linear", "train.batch": 64, "train.steps": 1000, "eval.every": 0}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--searches", type=int, default=3, help="seeds of the search")
    add("--random", type=int, default=8, help="random genotypes")
    add("--trainings", type=int, default=3, help="of each genotype")
    add("--jobs", type=int, default=2, help="at a time, one thread each")
    add("--runs", default="", help="folder of the parts, kept; default build/bench/glyph_search")
    add("--tandem", default=str(ROOT / "build/tandem"), help="the program")
    add("--json", default="", help="write everything here; - for stdout")
    add("--docs", default="", help="copy the cells and the page of the first search here")
    add("--quick", action="store_true", help="a few steps of everything, to see that it works: two minutes")
    return parser.parse_args()


def shorten(options):
    """What --quick leaves: its parts have other settings, so that they are never taken for those of a whole run."""
    options.searches, options.random, options.trainings = 1, 2, 2
    SEARCH.update({"train.epochs": 2, "train.steps": 30, "search.warmup": 1})
    TRAINING["train.steps"] = 60


def write(path, value):
    """In one piece or not at all."""
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


def random_genotype(seed):
    """Each node has two different inputs and two operations, all as likely as each other."""
    draw = random.Random(seed)

    def cell():
        return [(draw.choice(OPERATIONS), value) for node in range(NODES)
                for value in sorted(draw.sample(range(2 + node), EDGES))]

    concat = list(range(2, 2 + NODES))
    return f"Genotype(normal={cell()}, normal_concat={concat}, reduce={cell()}, reduce_concat={concat})"


class Part:
    """One run of the program. The name of its file has a hash of all settings, and of a genotype's text."""

    def __init__(self, options, name, verb, settings, genotype=None):
        self.options, self.name, self.verb, self.genotype = options, name, verb, genotype
        self.settings = {**settings, **({"genotype": genotype} if genotype else {})}
        digest = hashlib.sha256(json.dumps([verb, self.settings], sort_keys=True).encode()).hexdigest()[:8]
        self.folder = Path(options.runs) / f"{name}-{digest}"
        self.file = self.folder.with_suffix(".json")

    def words(self):
        settings = {**self.settings, "out": self.folder, "resume": "auto"}
        if settings.pop("genotype", None):
            text = self.folder.with_suffix(".txt")
            text.write_text(self.genotype + "\n")
            settings["model"] = f"genotype:{text}"
        return [f"{key}={value}" for key, value in settings.items()]

    def done(self):
        if self.file.exists():
            part = json.loads(self.file.read_text())
            if part["settings"] == self.settings:
                return part
        result = self.folder.with_suffix(".result")
        command = [self.options.tandem, self.verb, *self.words(), "--json", str(result)]
        begin = time.monotonic()
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode != 0:
            raise SystemExit(f"{self.name} ended with {ended.returncode}:\n{ended.stdout[-2000:]}")
        return self.keep(json.loads(result.read_text()), time.monotonic() - begin)

    def keep(self, result, wall):
        # The network and its classifier, float32: what the rank that has all of it holds.
        parameters = result["memory"]["ranks"][0]["train"]["categories"]["parameters"] // 4
        part = {"name": self.name, "settings": self.settings, "genotype": self.genotype or result["genotype"],
                "top1": result["top1"], "test_images": result["test_images"], "parameters": parameters,
                "steps": result["steps"], "seconds": round(result["total_seconds"], 1), "wall": round(wall, 1)}
        write(self.file, part)
        print(f"{self.name}: top-1 {100 * part['top1']:.1f} %, {part['seconds']:.0f} s", file=sys.stderr, flush=True)
        return part


def run(options, parts):
    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(Part.done, parts))


def trainings(options, name, genotype):
    return [Part(options, f"{name}_training{seed}", "train", {**TRAINING, "seed": seed}, genotype)
            for seed in range(1, options.trainings + 1)]


def summary(name, parts):
    return {"name": name, "genotype": parts[0]["genotype"], "parameters": parts[0]["parameters"],
            "top1": [part["top1"] for part in parts], "mean": statistics.mean(part["top1"] for part in parts),
            "seconds": round(sum(part["seconds"] for part in parts), 1)}


def grouped(parts, trainings_of_each):
    groups = [parts[i:i + trainings_of_each] for i in range(0, len(parts), trainings_of_each)]
    return [summary(group[0]["name"].split("_")[0], group) for group in groups]


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def compare(found, drawn):
    """Genotypes are the samples: a standard error has their spread, in which that of the trainings is contained."""
    ours, others = [one["mean"] for one in found], [one["mean"] for one in drawn]
    error = (spread(ours) ** 2 / len(ours) + spread(others) ** 2 / len(others)) ** 0.5
    within = statistics.mean(spread(one["top1"]) ** 2 for one in found + drawn) ** 0.5
    return {"searched_mean": statistics.mean(ours), "searched_spread": spread(ours),
            "random_mean": statistics.mean(others), "random_spread": spread(others), "random_best": max(others),
            "improvement": statistics.mean(ours) - statistics.mean(others), "standard_error": error,
            "spread_of_trainings": within,
            "beaten": {one["name"]: sum(one["mean"] > other for other in others) for one in found}}


def print_table(searches, found, drawn, result, images):
    print(f"{'genotype':10} {'top-1':>7} {'trainings':>21} {'parameters':>11} {'seconds':>8}  beats of {len(drawn)}")
    for one in found + drawn:
        runs = " ".join(f"{100 * top1:.1f}" for top1 in one["top1"])
        beats = result["beaten"].get(one["name"], "")
        print(f"{one['name']:10} {100 * one['mean']:6.2f}% {runs:>21} {one['parameters']:11,} {one['seconds']:8.0f}  "
              f"{beats}")
    for kind in ("searched", "random"):
        mean, deviation = 100 * result[f"{kind}_mean"], 100 * result[f"{kind}_spread"]
        print(f"{kind:10} {mean:6.2f}% +- {deviation:.2f} (standard deviation over genotypes)")
    print(f"best random {100 * result['random_best']:.2f}%, "
          f"improvement over random {100 * result['improvement']:+.2f} +- {100 * result['standard_error']:.2f} "
          f"(standard error); trainings of one genotype deviate by {100 * result['spread_of_trainings']:.2f}")
    one = (result["random_mean"] * (1 - result["random_mean"]) / images) ** 0.5
    print(f"{images} test images, equal for all: their number gives an accuracy a standard error of {100 * one:.2f}")
    print("searches: " + ", ".join(f"{part['seconds']:.0f} s, top-1 {100 * part['top1']:.1f}% of "
                                   f"{part['test_images']} validation images" for part in searches))


def copy(folder, docs):
    Path(docs).mkdir(parents=True, exist_ok=True)
    for name in ("normal.svg", "reduce.svg", "search.html"):
        target = Path(docs) / f"glyph_search_{name}"
        shutil.copyfile(folder / name, target)
        print(f"{target}: {target.stat().st_size:,} bytes")


def main():
    options = arguments()
    if options.quick:
        shorten(options)
    options.runs = str(Path(options.runs or ROOT / "build/bench/glyph_search").resolve())
    Path(options.runs).mkdir(parents=True, exist_ok=True)
    searches = [Part(options, f"search{seed}", "search", {**SEARCH, "seed": seed})
                for seed in range(1, options.searches + 1)]
    of_random = [part for seed in range(1, options.random + 1)
                 for part in trainings(options, f"random{seed}", random_genotype(seed))]
    done = run(options, searches + of_random)
    ended, drawn = done[:len(searches)], grouped(done[len(searches):], options.trainings)
    of_found = [part for i, search in enumerate(ended, 1)
                for part in trainings(options, f"found{i}", search["genotype"])]
    done = run(options, of_found)
    found = grouped(done, options.trainings)
    result = compare(found, drawn)
    print_table(ended, found, drawn, result, done[0]["test_images"])
    everything = {"search": SEARCH, "training": TRAINING, "searches": ended, "found": found, "random": drawn, **result,
                  "test_images": done[0]["test_images"]}
    if options.json == "-":
        print(json.dumps(everything, indent=1))
    elif options.json:
        write(Path(options.json), everything)
    if options.docs:
        copy(searches[0].folder, options.docs)


if __name__ == "__main__":
    main()
