"""The configure step on made-up machines. Nothing is built."""
import subprocess

import tree

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
        self.write("site/torch/include/torch/headeronly/version.h",
                   "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n#define TORCH_VERSION_PATCH 0\n")
        self.write("site/nvidia/nccl/include/nccl.h", "#include <cuda_runtime.h>\n")
        self.write("site/nvidia/cu13/include/cuda_runtime.h", '#include "part_of_a_toolkit/host.h"\n')
        return f"-DTANDEM_TORCH_DIR={self.root}/site/torch"

    def test_nccl_is_compiled_where_all_headers_of_cuda_are(self):
        torch = self.wheel()
        self.configured(torch, "-DTANDEM_BUILD_TESTS=ON")
        self.assertFalse(self.has_target("nccl_compiles"))
        self.write("site/nvidia/cu13/include/part_of_a_toolkit/host.h", "")
        self.configured(torch)
        self.assertTrue(self.has_target("nccl_compiles"))

    def test_a_build_for_cuda_names_the_headers_it_lacks(self):
        status, words = self.configure(self.wheel(), "-DTANDEM_CUDA=ON")
        self.assertEqual(status, 1)
        self.assertIn("TANDEM_CUDA=ON needs", words)
        self.assertIn("tools/requirements-test.txt", words)


if __name__ == "__main__":
    tree.unittest.main()
