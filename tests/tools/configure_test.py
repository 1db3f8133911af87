"""The configure step on made-up machines, and in a project that includes Tandem. Nothing is built."""
import json
import pathlib
import shutil
import subprocess

import tree

CONSUMER = f"""cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_subdirectory({tree.ROOT} tandem)
add_executable(consumer main.cpp)
"""
WITHOUT_LIBRARIES_OF_TESTS = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("GTest", "rapidcheck")]


class Configure(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.build = self.root / "build"

    def configure(self, *arguments, source=tree.ROOT):
        """(status, CMake's words)"""
        run = subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", self.build, *arguments], check=False,
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return run.returncode, run.stdout

    def configured(self, *arguments, source=tree.ROOT):
        status, words = self.configure(*arguments, source=source)
        self.assertEqual(status, 0, words)
        return words

    def has_target(self, name):
        return f"\nbuild {name}: phony" in (self.build / "build.ninja").read_text()

    def flags(self):
        """Of one source of a folder of Tandem, and of the consumer's own source."""
        entries = json.loads((self.build / "compile_commands.json").read_text())
        own = [entry["command"] for entry in entries if entry["file"].endswith("main.cpp") and
               pathlib.Path(entry["file"]).parent == self.root]
        tandems = [entry["command"] for entry in entries if "tandem_base.dir" in entry["command"]]
        self.assertEqual(len(own), 1)
        self.assertTrue(tandems)
        return tandems[0].split(), own[0].split()

    def consumer(self, *arguments):
        self.write("CMakeLists.txt", CONSUMER)
        self.write("main.cpp", "int main() {}\n")
        self.configured(*arguments, source=self.root)
        return self.flags()

    def test_a_consumer_without_a_build_type_gets_an_optimised_tandem(self):
        tandem, own = self.consumer()
        self.assertTrue({"-O2", "-O3"} & set(tandem), tandem)
        self.assertIn("-DNDEBUG", tandem)
        self.assertFalse([word for word in own if word.startswith("-O") or word == "-DNDEBUG"], own)

    def test_a_consumer_that_debugs_gets_what_it_asks_for(self):
        for choice in ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-O0"):
            shutil.rmtree(self.build, ignore_errors=True)
            tandem, _ = self.consumer(choice)
            self.assertFalse({"-O1", "-O2", "-O3", "-DNDEBUG"} & set(tandem), tandem)

    def installed_libraries(self, *arguments):
        """The libraries of Tandem that a consumer installs, and whether they are in its target `all`."""
        shutil.rmtree(self.build, ignore_errors=True)
        self.consumer(*arguments)
        scripts = [file.read_text() for file in self.build.rglob("cmake_install.cmake")]
        run = subprocess.run(["ninja", "-C", self.build, "-t", "inputs", "all"], check=True, text=True,
                             stdout=subprocess.PIPE)
        return sum("libtandem_base.a" in script for script in scripts), "libtandem_base.a" in run.stdout

    def test_a_consumer_builds_and_installs_tandem_when_asked(self):
        self.assertEqual(self.installed_libraries(), (0, False))
        self.assertEqual(self.installed_libraries("-DTANDEM_INSTALL=ON"), (1, True))

    def test_the_program_needs_no_library_of_tests(self):
        words = self.configured(*WITHOUT_LIBRARIES_OF_TESTS)
        self.assertIn("-- No tests: GTest is missing (tools/packages-test.txt)\n", words)
        self.assertTrue(self.has_target("tandem_cli"))
        self.assertFalse(self.has_target("test_base"))
        # Installed since: the same folder finds them.
        self.configured(*(switch.replace("=ON", "=OFF") for switch in WITHOUT_LIBRARIES_OF_TESTS))
        self.assertTrue(self.has_target("test_base"))

    def test_tests_that_are_asked_for_name_what_they_lack(self):
        status, words = self.configure("-DTANDEM_BUILD_TESTS=ON", WITHOUT_LIBRARIES_OF_TESTS[1])
        self.assertEqual(status, 1)
        self.assertIn("The tests need rapidcheck: install tools/packages-test.txt, or set", " ".join(words.split()))

    def wheel(self):
        """Made up: torch, and beside it the headers of CUDA and NCCL, of which cuda_runtime.h wants one more."""
        for library in ("libtorch_cpu.so", "libtorch_cuda.so", "libc10.so"):
            self.write(f"site/torch/lib/{library}", "")
        self.write("site/torch/include/torch/csrc/api/include/torch/torch.h", "")
        self.write("site/torch/include/torch/headeronly/version.h",
                   "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n#define TORCH_VERSION_PATCH 0\n")
        self.write("site/nvidia/nccl/include/nccl.h", "#include <cuda_runtime.h>\n")
        self.write("site/nvidia/cu13/include/cuda_runtime.h", '#include "part_of_a_toolkit/host.h"\n')
        return f"-DTANDEM_TORCH_DIR={self.root}/site/torch"

    def test_who_named_the_torch_is_told(self):
        named = self.wheel()
        torch = f"{self.root}/site/torch"
        for switch, who in ((f"{named}/", "TANDEM_TORCH_DIR"), (f"-DCMAKE_PREFIX_PATH={torch}", "CMAKE_PREFIX_PATH"),
                            (f"-DCMAKE_PREFIX_PATH=/nowhere;{torch}/share/cmake", "CMAKE_PREFIX_PATH"),
                            (f"-DTorch_DIR={torch}/share/cmake/Torch", "Torch_DIR")):
            shutil.rmtree(self.build, ignore_errors=True)
            self.assertIn(f"-- torch 2.11.0: {torch} (from {who})\n", self.configured(switch), switch)

    def test_a_torch_that_does_not_serve_is_told(self):
        named = self.wheel()
        self.write("site/torch/include/torch/headeronly/version.h",
                   "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 1\n")
        for switch, fault in ((named, "torch 2.9.1 in .*/site/torch \\(from TANDEM_TORCH_DIR\\) is too old"),
                              ("-DTANDEM_TORCH_DIR=/nowhere", "no torch in /nowhere \\(from TANDEM_TORCH_DIR\\)")):
            status, words = self.configure(switch)
            self.assertEqual(status, 1)
            self.assertRegex(" ".join(words.split()), fault + "; wanted version 2.11 or newer")

    def test_nccl_is_compiled_where_all_headers_of_cuda_are(self):
        torch = self.wheel()
        self.configured(torch, "-DTANDEM_BUILD_TESTS=ON")
        self.assertFalse(self.has_target("comm_gpu_compiles"))
        self.write("site/nvidia/cu13/include/part_of_a_toolkit/host.h", "")
        self.configured(torch)
        self.assertTrue(self.has_target("comm_gpu_compiles"))

    def test_a_build_for_cuda_names_the_headers_it_lacks(self):
        status, words = self.configure(self.wheel(), "-DTANDEM_CUDA=ON")
        self.assertEqual(status, 1)
        self.assertIn("TANDEM_CUDA=ON needs", words)
        self.assertIn("tools/requirements-test.txt", words)


if __name__ == "__main__":
    tree.unittest.main()
