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


if __name__ == "__main__":
    tree.unittest.main()
