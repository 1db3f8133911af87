#!/usr/bin/env python3
"""`tandem train` against peer.py, in turn, in one call: ours, peer, ours, peer ...

    run.py --ranks 2 --head sharded --pairs 5

Prints images/s of both (global batch over the median step), the ratio pair by pair and its median, and peak bytes.
The first pair warms the caches and does not count.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--ranks", type=int, default=2)
    add("--classes", type=int, default=3755)
    add("--batch", type=int, default=128, help="of all ranks together")
    add("--steps", type=int, default=60, help="of each run")
    add("--pairs", type=int, default=5)
    add("--head", choices=("replicated", "sharded"), default="sharded", help="the peer's classifier; ours is sharded")
    add("--precision", choices=("float32", "bf16"), default="float32")
    add("--json", default="", help="write the result here; - for stdout")
    add("peer", nargs="*", help="more arguments for peer.py, after --")
    return parser.parse_args()


def run(command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def ours(options, folder):
    result = Path(folder) / "ours.json"
    run([ROOT / "build/tandem", "train", f"data.classes={options.classes}", f"ranks={options.ranks}",
         f"train.batch={options.batch}", f"train.steps={options.steps}", f"train.precision={options.precision}",
         "eval.every=0", "report.compare=false", f"out={folder}/run", "--json", result])
    answer = json.loads(result.read_text())
    peak = sum(rank["peak_bytes"] for rank in answer["memory"]["ranks"])
    return options.batch / answer["step_seconds"], peak


def peer(options, folder):
    result = Path(folder) / "peer.json"
    run([sys.executable, HERE / "peer.py", "--ranks", options.ranks, "--classes", options.classes, "--batch",
         options.batch, "--steps", options.steps - 10, "--warmup", 10, "--head", options.head, "--precision",
         options.precision, "--json", result, *options.peer])
    return json.loads(result.read_text())["images_per_second"]


def main():
    options = arguments()
    pairs = []
    for number in range(options.pairs + 1):
        with tempfile.TemporaryDirectory() as folder:
            own, peak = ours(options, folder)
            other = peer(options, folder)
        counted = "" if number else "  (not counted)"
        line = f"ours {own:8.0f} images/s   peer {other:8.0f} images/s   ratio {own / other:.2f}{counted}"
        print(line, file=sys.stderr)
        if number:
            pairs.append((own, other, own / other))
    result = {"ranks": options.ranks, "classes": options.classes, "batch": options.batch, "peer_head": options.head,
              "images_per_second": statistics.median(pair[0] for pair in pairs),
              "peer_images_per_second": statistics.median(pair[1] for pair in pairs),
              "ratio": statistics.median(pair[2] for pair in pairs), "peak_bytes_all_ranks": peak}
    if options.json == "-":
        print(json.dumps(result, indent=2))
        return
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")
    print(f"median of {len(pairs)} pairs: ours {result['images_per_second']:.0f}, peer "
          f"{result['peer_images_per_second']:.0f} images/s, ratio {result['ratio']:.2f}")


if __name__ == "__main__":
    main()
