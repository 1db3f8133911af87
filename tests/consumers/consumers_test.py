"""Other projects that use Tandem: installed, by pkg-config, as a subdirectory, fetched. No network is used.

CTest sets TANDEM_BINARY_DIR (a finished build), TANDEM_TORCH, TANDEM_COMPILER and TANDEM_LAUNCHER (the compiler's
cache). Each project is built at the same place below the binary folder, so that the cache finds what it holds.
"""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = pathlib.Path(os.environ["TANDEM_BINARY_DIR"])
TORCH = os.environ["TANDEM_TORCH"]
COMPILER = os.environ["TANDEM_COMPILER"]
LAUNCHER = os.environ.get("TANDEM_LAUNCHER", "")
WORK = BINARY / "consumers"
PREFIX = WORK / "prefix"
ANSWER = "sum 10, mean AP 1\n"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("TANDEM_", "CMAKE_"))}


def run(*command, **variables):
    """(status, stdout and stderr)"""
    done = subprocess.run(list(map(str, command)), check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**ENVIRONMENT, **variables})
    return done.returncode, done.stdout


class Consumer(unittest.TestCase):
    maxDiff = None

    def answer(self, *command, **variables):
        """The words of a command that must succeed."""
        status, words = run(*command, **variables)
        self.assertEqual(status, 0, f"{' '.join(map(str, command))}\n{words}")
        return words

    def configure(self, name, *switches):
        """(status, words) of the first configure step of a project, whose build folder is WORK / name."""
        shutil.rmtree(WORK / name, ignore_errors=True)
        return run("cmake", "-G", "Ninja", "-S", HERE / name, "-B", WORK / name, "-DCMAKE_BUILD_TYPE=Release",
                   f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DCMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}", *switches)

    def build(self, name, *switches):
        """The words of the configure step."""
        status, words = self.configure(name, *switches)
        self.assertEqual(status, 0, words)
        self.answer("cmake", "--build", WORK / name, "-j", "2")
        return words


class Installed(Consumer):
    """What is installed is moved before it is used: it may be anywhere."""

    @classmethod
    def setUpClass(cls):
        for folder in (PREFIX, WORK / "staged"):
            shutil.rmtree(folder, ignore_errors=True)
        status, words = run("cmake", "--install", BINARY, "--prefix", WORK / "staged")
        assert status == 0, words
        (WORK / "staged").rename(PREFIX)

    def test_a_project_finds_the_package(self):
        words = self.build("installed", f"-DCMAKE_PREFIX_PATH={PREFIX}",
                           "-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON")
        self.assertRegex(words, r"-- tandem \S+, torch \S+: /.* \(from the torch of Tandem's build\)\n")
        for program in ("folders", "everything"):
            self.assertEqual(self.answer(WORK / "installed" / program), ANSWER)

    def test_a_compiler_alone_builds_the_program_of_the_page(self):
        """examples/own_model.cpp, which docs/library.md shows, as the page says to compile and to run it."""
        path = {"PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")}
        flags = self.answer("pkg-config", "--cflags", "--libs", "tandem", **path).split()
        program, folders = WORK / "own_model", [WORK / "by_threads", WORK / "by_processes"]
        self.answer(COMPILER, "-std=c++20", ROOT / "examples/own_model.cpp", "-o", program, *flags)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        words = self.answer(program, folders[0])
        self.assertRegex(words, r"^loss 0\.\d{10,}\nsteps 0 to 60, top-1 0\.[89]\d+\n$")
        launcher = (PREFIX / "bin/tandem", "launch", "-n", "2", "--")
        self.assertEqual(self.answer(*launcher, program, folders[1]), words)
        tested = words.splitlines()[1].replace("0 to", "60 to", 1)
        for command in ((program,), (*launcher, program)):
            self.assertEqual(self.answer(*command, folders[0]), tested + "\n")
        self.assertEqual(len({self.answer("sha256sum", file).split()[0] for folder in folders
                              for file in folder.glob("step_00000060/rank_0001.safetensors")}), 1)
        shutil.rmtree(folders[0] / "step_00000060")  # as a run that was stopped after step 40
        self.assertEqual(self.answer(*launcher, program, folders[0]),
                         words.replace("steps 0 to 60", "steps 40 to 60"))

    def test_the_program_runs_where_it_is_installed(self):
        self.assertRegex(self.answer(PREFIX / "bin/tandem", "info"), r"^tandem +\d")

    def test_public_headers_and_what_they_include_are_installed(self):
        headers = list((PREFIX / "include").rglob("*.h"))
        wanted = {str(header.relative_to(ROOT)) for header in ROOT.glob("tandem/**/*.h")
                  if len(header.relative_to(ROOT).parts) <= 3}
        self.assertGreater(len(wanted), 100)
        for header in headers:
            wanted.update(re.findall(r'^ *# *include "([^"]+)"', header.read_text(), re.MULTILINE))
        self.assertEqual(sorted(wanted - {str(header.relative_to(PREFIX / "include")) for header in headers}), [])

    def fault(self, switch):
        """CMake's error, on one line."""
        status, words = self.configure("installed", f"-DCMAKE_PREFIX_PATH={PREFIX}", switch)
        self.assertEqual((status, words.count("CMake Error")), (1, 1), words)
        return " ".join(words.split())

    def test_a_torch_of_another_version_is_told(self):
        torch = WORK / "other_torch"
        (torch / "include/torch/headeronly").mkdir(parents=True, exist_ok=True)
        (torch / "lib").mkdir(exist_ok=True)
        (torch / "lib/libtorch_cpu.so").touch()
        numbers = {"MAJOR": 9, "MINOR": 1, "PATCH": 2}
        (torch / "include/torch/headeronly/version.h").write_text(
            "".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in numbers.items()))
        self.assertRegex(self.fault(f"-DTANDEM_TORCH_DIR={torch}"),
                         r"other_torch holds torch 9\.1\.2 \(from TANDEM_TORCH_DIR\)\. Tandem was built with torch "
                         r"2\.\d+\.\d+ of /.*/torch\. Name the folder of this version with -DTANDEM_TORCH_DIR=")

    def test_a_folder_without_torch_is_told(self):
        self.assertIn("/nowhere holds no torch (from TANDEM_TORCH_DIR). Tandem was built with torch ",
                      self.fault("-DTANDEM_TORCH_DIR=/nowhere"))

    def test_a_component_that_is_no_folder_is_told(self):
        self.assertIn("The component is 'con', wanted tandem or one of: base kernels ", self.fault("-DCOMPONENTS=con"))


class Sources(Consumer):
    def check(self, name, *switches):
        """Builds a project, which takes from Tandem what it links and no more, and installs nothing of it."""
        words = self.build(name, *switches)
        self.assertEqual(len(re.findall(r"^-- torch \S+: /.* \(from .*\)$", words, re.MULTILINE)), 1, words)
        self.assertEqual(self.answer(WORK / name / "folders"), ANSWER)
        built = {file.name for file in (WORK / name).rglob("libtandem_*")}
        folders = ("base", "comm", "evaluation", "flight", "rendezvous", "storage")
        self.assertEqual(built, {f"libtandem_{folder}.a" for folder in folders})
        self.assertEqual([file for file in (WORK / name).rglob("tandem") if file.is_file()], [])  # the program
        self.assertEqual(self.answer("cmake", "--install", WORK / name, "--prefix", WORK / name / "prefix").strip(),
                         '-- Install configuration: "Release"')

    def test_a_subdirectory(self):
        self.check("subdirectory", f"-DCMAKE_PREFIX_PATH={TORCH}/share/cmake")

    def test_fetched_sources(self):
        self.check("fetched", f"-DTANDEM_TORCH_DIR={TORCH}", f"-DFETCHCONTENT_SOURCE_DIR_TANDEM={ROOT}")


if __name__ == "__main__":
    unittest.main()
