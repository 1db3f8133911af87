"""tools/on_gpu_machine on machines that lack what it needs, and with programs that only pretend. Nothing is built,
downloaded or measured."""
import json
import os
import shutil
import subprocess

import tree

SCRIPTS = ("sanitize", "parity", "memory_table", "head", "kernels", "overhead", "speed", "page")
FORMER = "pack, info, build, tests"

# Trains as it is told to in `losses`: a file with a line "device loss"; refuses dp.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
if words.get("parallel") == "?":
    sys.exit("error: parallel is '?', wanted ddp or dp")
if words.get("parallel") == "dp":
    print("error: dp is for threads", file=sys.stderr)
    sys.exit(78)
losses = dict(line.split() for line in (pathlib.Path(__file__).parent / "losses").read_text().splitlines())
if words["device"] not in losses:
    sys.exit("error: no GPU is found")
pathlib.Path(sys.argv[-1]).write_text(json.dumps({"losses": [float(losses[words["device"]])]}))
"""
SANITIZER = """#!/bin/sh
[ "$1" != --help ] || { echo 'memcheck racecheck'; exit 0; }
[ "$2" = memcheck ] || { echo '=== RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)'; exit 86; }
echo '[  PASSED  ] 4 tests.'; echo '=== ERROR SUMMARY: 0 errors'
"""


class OnGpuMachine(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.write("tools/dev/.keep", "")  # makes the folder
        for name in ("on_gpu_machine", "dev/phase.bash"):
            shutil.copy(tree.ROOT / "tools" / name, self.root / "tools" / name)
        shutil.copytree(tree.ROOT / "tools/gpu", self.root / "tools/gpu", ignore=shutil.ignore_patterns("__pycache__"))

    def run_words(self, *words, **variables):
        path = f"{self.root}/bin:{os.environ['PATH']}"
        environment = {**os.environ, "OUT": str(self.root / "out"), "PATH": path, **variables}
        return subprocess.run([self.root / "tools/on_gpu_machine", *words], capture_output=True, text=True, check=False,
                              env=environment)

    def run_stage(self, *words):
        """(status, last line of stderr)"""
        run = self.run_words(*words)
        return run.returncode, (run.stderr.splitlines() or [""])[-1]

    def run_script(self, name):
        """(status, lines of stdout)"""
        run = self.run_words(name)
        return run.returncode, run.stdout.splitlines()

    def write_program(self, losses):
        self.write("build-gpu/tandem", PROGRAM, executable=True)
        self.write("build-gpu/losses", losses)

    def write_python(self, statuses):
        """One that writes down what it runs, and ends as these say."""
        cases = "".join(f"  */{name}) exit {status} ;;\n" for name, status in statuses.items())
        self.write("bin/python3", f'#!/bin/sh\necho "$2 $3 $CUDA_VISIBLE_DEVICES" >>{self.root}/runs\ncase $2 in\n'
                                  f"{cases}esac\n", executable=True)

    def test_the_stages(self):
        wanted = f"wanted {FORMER}, {', '.join(SCRIPTS)}, dry or all"
        self.assertEqual(self.run_stage("bild"), (64, f"error: the stage is 'bild', {wanted}"))
        self.assertEqual(self.run_stage(), (64, f"error: the stage is '', {wanted}"))
        self.assertEqual(self.run_stage("build", "tests"), (64, f"error: the stage is 'build tests', {wanted}"))

    def test_each_stage_of_a_script_has_one_and_help_names_it(self):
        text = self.run_words("--help").stdout
        for name in SCRIPTS:
            self.assertIn(f"\n  {name} ", text)
            compile((tree.ROOT / "tools/gpu" / name).read_text(), name, "exec")

    def test_packages_that_cannot_be_had_are_one_line(self):
        self.write("bin/apt-get", "#!/bin/sh\necho 'E: Failed to fetch x'\necho 'E: more'\nexit 100\n",
                   executable=True)
        self.assertEqual(self.run_stage("pack"),
                         (69, "error: the packages cannot be downloaded: E: Failed to fetch x"))

    def test_a_build_without_packages_says_where_they_come_from(self):
        self.assertEqual(self.run_stage("build"),
                         (69, "error: build-gpu-packages/ holds no packages: run tools/on_gpu_machine pack on a "
                              "machine with a network, and carry it here"))

    def test_stages_without_a_build(self):
        self.assertEqual(self.run_stage("tests"), (69, "error: there is no build with CUDA in build-gpu/"))
        self.assertEqual(self.run_stage("head"), (69, "error: there is no program in build-gpu/"))

    def test_a_dry_run_goes_through_all_scripts_without_a_gpu(self):
        self.write_program("")
        self.write_python({"sanitize": 69, "head": 3, "speed": 4})
        self.assertEqual(self.run_words("dry", CUDA_VISIBLE_DEVICES="0").returncode, 3)
        runs = [line for line in (self.root / "runs").read_text().splitlines() if line.startswith("tools/")]
        places = ["build-gpu/tandem"] * (len(SCRIPTS) - 1) + [f"{self.root}/out"]
        self.assertEqual(runs, [f"tools/gpu/{name} {place} " for name, place in zip(SCRIPTS, places)])
        statuses = (self.root / "out/statuses.txt").read_text().split()
        self.assertEqual(dict(zip(statuses[::2], statuses[1::2])),
                         {"info": "0", **dict.fromkeys(SCRIPTS, "0"), "sanitize": "69", "head": "3", "speed": "4"})

    def test_all_ends_with_the_first_failure_and_still_makes_the_page(self):
        self.write_python({})
        self.assertEqual(self.run_words("all").returncode, 69)  # build: no packages
        self.assertIn("tools/gpu/page", (self.root / "runs").read_text())

    def test_parity_compares_losses_and_tells_what_is_refused(self):
        self.write_program("cuda 2.0\ncpu 2.0\n")
        status, lines = self.run_script("parity")
        self.assertEqual((status, lines[0]), (0, "on a GPU"))
        self.assertEqual(sum(line.endswith("0.0e+00  1e-08: reached") for line in lines), 8)
        self.assertEqual(sum(line.endswith("not run: dp is for threads") for line in lines), 8)
        self.write_program("cuda 2.0\ncpu 2.1\n")
        status, lines = self.run_script("parity")
        self.assertEqual((status, sum(line.endswith("missed") for line in lines)), (1, 8))
        self.write_program("cpu 2.0\n")
        self.assertEqual(self.run_script("parity")[1][0], "no GPU: CPU against CPU")

    def test_sanitizer_or_kernel_tests_that_are_not_here(self):
        self.write_program("")
        self.assertEqual(self.run_script("sanitize"), (
            69, [f"error: {self.root}/build-gpu/ has no test_kernels_gpu: a build with CUDA has it"]))
        self.write("build-gpu/tests/kernels/test_kernels_gpu", "")
        if not shutil.which("compute-sanitizer") and not os.path.exists("/usr/local/cuda"):
            self.assertEqual(self.run_script("sanitize"), (69, ["error: compute-sanitizer is not here"]))

    def test_errors_that_a_sanitizer_reports(self):
        self.write_program("")
        self.write("build-gpu/tests/kernels/test_kernels_gpu", "")
        self.write("bin/compute-sanitizer", SANITIZER, executable=True)
        status, lines = self.run_script("sanitize")
        self.assertEqual(status, 1)
        self.assertRegex(lines[2], r"^memcheck +0 +4 +0  no errors: reached$")
        self.assertRegex(lines[3], r"^racecheck +2 +0 +0  no errors: missed$")
        self.assertRegex(lines[-1], r"^synccheck +not run: this compute-sanitizer does not have it$")

    def test_bad_arguments_are_one_line(self):
        run = subprocess.run([self.root / "tools/gpu/parity", "none"], capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr), (
            64, "error: PROGRAM is 'none', wanted a built program, such as build/tandem\n"))

    def test_the_page_tells_targets_and_what_was_not_run(self):
        rows = [{"cells": ["fsdp", "9.0"], "target": "1.01 or less", "is_reached": True},
                {"cells": ["ddp", "9.9"], "target": "1.01 or less", "is_reached": False},
                {"cells": ["plain", "8.9"], "target": "", "is_reached": None}]
        data = {"title": "Overhead", "machine": "a card", "columns": ["row", "ms"], "rows": rows, "notes": ["so it is"],
                "not_run": [{"name": "pipeline", "why": "refused\nand more"}]}
        self.write("out/overhead.json", json.dumps(data))
        self.write("out/sanitize.txt", "error: compute-sanitizer is not here\n")
        self.write("out/statuses.txt", "sanitize 69\noverhead 0\n")
        self.write("out/tests.txt", "100% tests passed, 0 tests failed out of 6\n")
        self.assertEqual(self.run_script("page")[0], 0)
        lines = (self.root / "out/figures.md").read_text().splitlines()
        for line in ("Of 2 targets 1 are reached and 1 missed; 1 rows and 6 of 7 stages were not run.",
                     "| row | ms | target | reached |", "| fsdp | 9.0 | 1.01 or less | reached |",
                     "| ddp | 9.9 | 1.01 or less | **missed** |", "| plain | 8.9 |  |  |", "So it is.",
                     "- sanitize: compute-sanitizer is not here", "- head: the stage left no figures",
                     "- overhead, pipeline: refused", "100% tests passed, 0 tests failed out of 6",
                     "Stages that did not end with 0: sanitize (69)."):
            self.assertIn(line, lines)
