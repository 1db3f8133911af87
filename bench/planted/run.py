#!/usr/bin/env python3
"""Searches whose answer is known: four operations, each planted so that it knows the label best, and a judge that only
the second order finds right. Prints how often the right operation came first, by which margin, beside random labels.

    run.py [SEEDS] [large]

large: the same with larger batches, by several rules for the rate of the alphas.

One thread; about 20 seconds a search, half an hour in all. The program is tests/search/planted_main.cpp.
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main():
    build = ROOT / "build"
    subprocess.run(["cmake", "--build", str(build), "--target", "planted"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(build / "tests/search/planted"), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
