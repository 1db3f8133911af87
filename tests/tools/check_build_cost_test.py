"""tools/check_build_cost on the records of a made-up build, which a stand-in for ninja prints."""
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "pch.dir/cmake_pch.hxx.gch"


def cost(files, deps, inputs):
    """Its status and words, for files by size, what each object was made from, and the program's inputs."""
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder)
        for name, size in files.items():
            (build / name).write_bytes(b"x" * size)
        lines = [f"{name}: #deps {len(of)}, deps mtime 1 (VALID)\n" + "".join(f"    {file}\n" for file in of)
                 for name, of in deps.items()]
        (build / "deps").write_text("\n".join(lines))
        (build / "inputs").write_text("\n".join(inputs))
        ninja = build / "ninja"
        ninja.write_text('#!/bin/sh\ncat "$2/$4"\n')
        ninja.chmod(ninja.stat().st_mode | stat.S_IXUSR)
        done = subprocess.run([ROOT / "tools/check_build_cost", build], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{build}:{os.environ['PATH']}"})
        return done.returncode, done.stderr


class CheckBuildCost(unittest.TestCase):
    FILES = {"torch.h": 41_000_000, "own.h": 2_000_000, "a.cpp": 1_000_000, HEADER.replace("/", "_"): 9}

    def test_what_the_precompiled_header_holds_counts_once(self):
        deps = {HEADER: ["torch.h"], "a.o": ["a.cpp", "own.h", "torch.h", HEADER], "b.o": ["own.h", HEADER]}
        status, words = cost(self.FILES, deps, ["a.o", "b.o", "a.cpp"])
        self.assertEqual(status, 0, words)
        self.assertIn("cost       46.0 MB read to build the program", words)

    def test_a_unit_that_parses_torch_by_itself_is_too_dear(self):
        deps = {HEADER: ["torch.h"], "a.o": ["a.cpp", "torch.h"], "b.o": ["torch.h"], "c.o": ["own.h", HEADER]}
        status, words = cost(self.FILES, deps, ["a.o", "b.o", "c.o"])
        self.assertEqual(status, 1, words)
        self.assertIn("cost       126.0 MB", words)
        self.assertIn("42.0 MB  a.o", words)

    def test_an_unbuilt_unit_is_told(self):
        status, words = cost(self.FILES, {HEADER: ["torch.h"]}, ["a.o"])
        self.assertEqual(status, 64)
        self.assertRegex(words, r"^cost       not known: the program is not built in .* \(./dev build\)\n$")


if __name__ == "__main__":
    unittest.main()
