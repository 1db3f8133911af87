"""What the scripts of this folder share: their arguments, the program, and tables that are printed and kept as JSON.

A script is called SCRIPT PROGRAM [ROW ...] [--json FILE]; its figures are written to FILE for tools/gpu/page. The
statuses that all of them have: 0 done, 1 a row failed, 64 bad arguments, 69 something is missing.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

REFUSED = 78  # the program's status for settings that it does not accept


class Refused(Exception):
    """What the program does not accept, in its own line."""


class Failed(Exception):
    """A run that ended badly."""


def stop(status, text):
    print(f"error: {text}", file=sys.stderr)
    sys.exit(status)


def read_arguments(doc, rows=()):
    """(absolute path of PROGRAM, chosen ROWs in the order of `rows`, FILE or None). Ends the script on bad ones."""
    words, path = sys.argv[1:], None
    if words in (["-h"], ["--help"]):
        print(doc.strip())
        sys.exit(0)
    if "--json" in words:
        at = words.index("--json")
        path = words[at + 1] if at + 1 < len(words) else stop(64, "--json has no FILE")
        del words[at:at + 2]
    if not words:
        stop(64, "PROGRAM is missing; " + doc.split("\n\n")[1])
    program, *names = words
    if not os.access(program, os.X_OK) or pathlib.Path(program).is_dir():
        stop(64, f"PROGRAM is '{program}', wanted a built program, such as build/tandem")
    for name in names:
        if name not in rows:
            stop(64, f"the row is '{name}', wanted {', '.join(rows) or 'none: this table has no choice of rows'}")
    return os.path.abspath(program), [row for row in rows if row in names or not names], path


def check(words, status, errors):
    if status == REFUSED:
        raise Refused(errors.strip().partition("\n")[0].removeprefix("error: "))
    if status != 0:
        raise Failed(f"tandem {' '.join(words)} ended with {status}: {errors.strip()[-1500:]}")


def result_of(program, words, launch=(), limit=None):
    """The JSON that a run of the program writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        words = [*launch, *words, *([f"out={folder}/run"] if words[0] == "train" else []), "--json", str(file)]
        try:
            done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"tandem {' '.join(words)} took more than {limit} s") from None
        check(words, done.returncode, done.stderr)
        return json.loads(file.read_text())


class Job:
    """`tandem bench step`: takes steps of a job on noise when it is told to. `limit`: seconds until it is ready."""

    def __init__(self, program, words, limit=300):
        self.words, self.errors = ["bench", "step", "data=synthetic", *words], tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program, *self.words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        try:
            self.answer()
        finally:
            timer.cancel()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            check(self.words, status, self.errors.read())
            raise Failed(f"tandem {' '.join(self.words)} ended without an answer")
        return line

    def step_seconds(self, steps):
        """The mean of so many steps, with what they leave on its way."""
        start = time.perf_counter()
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.answer()
        return (time.perf_counter() - start) / steps

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Table:
    """Prints a row as soon as it is there, and writes all of them to `path`, if it is given."""

    def __init__(self, path, title, machine, columns):
        self.path, self.status = path, 0
        self.data = {"title": title, "machine": machine, "columns": columns, "rows": [], "not_run": [], "notes": []}
        print(machine)
        self.widths = [max(len(column), 9) for column in columns]
        self.widths[0] = max(len(columns[0]), 26)
        self.print_cells(columns)
        self.write()

    def print_cells(self, cells, end=""):
        first, *others = (cell.rjust(width) for cell, width in zip(cells, self.widths))
        print("  ".join([first.strip().ljust(self.widths[0]), *others]) + end, flush=True)

    def row(self, cells, target="", is_reached=None):
        """`is_reached` is None where there is no target, or no GPU to reach it."""
        cells = [str(cell) for cell in cells]
        end = f"  {target}: {'reached' if is_reached else 'missed'}" if is_reached is not None else ""
        self.data["rows"].append({"cells": cells, "target": target, "is_reached": is_reached})
        self.print_cells(cells, end)
        self.write()

    def not_run(self, name, why):
        """A row that the program refuses, or that does not fit."""
        self.data["not_run"].append({"name": name, "why": str(why)})
        print(f"{name:26}  not run: {why}", flush=True)
        self.write()

    def failed(self, name, why):
        self.status = 1
        self.not_run(name, f"FAILED: {why}")

    def note(self, text):
        self.data["notes"].append(text)
        print(text, flush=True)
        self.write()

    def write(self):
        if self.path:
            pathlib.Path(self.path).write_text(json.dumps(self.data, indent=1) + "\n")
