import json
import tree


class CheckHeaders(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.write("tandem/base/a.cpp", "\n")
        command = (f"cmake -E env CCACHE_SLOPPINESS=pch_defines ccache /usr/bin/c++ -I{self.root} -O3 -DWIDTH=4 "
                   "-std=gnu++20 "
                   "-Winvalid-pch -include /nowhere/cmake_pch.hxx -o a.o -c tandem/base/a.cpp")
        entry = {"directory": str(self.root), "command": command, "file": str(self.root / "tandem/base/a.cpp")}
        self.write("build/compile_commands.json", json.dumps([entry]))

    def check(self):
        return self.run_tool("check_headers", self.root / "build")

    def test_headers_that_stand_alone_pass_with_the_flags_of_their_folder(self):
        self.write("tandem/base/a.h", "#pragma once\n#include <vector>\nstd::vector<int> f(int (&x)[WIDTH]);\n")
        self.write("tandem/base/detail/b.h", "vector<int> not_checked;\n")
        status, lines, error = self.check()
        self.assertEqual((status, lines), (0, []))
        self.assertIn("1 compiled alone, 0 faults", error)

    def test_a_header_that_leans_on_another_is_named(self):
        self.write("tandem/base/a.h", "#pragma once\nstd::vector<int> f();\n")
        status, lines, _ = self.check()
        self.assertEqual(status, 1)
        self.assertRegex(lines[0], r"^tandem/base/a.h does not compile alone: .*a.h:2:6: error: ")

    def test_a_change_within_reach_is_compiled_again(self):
        self.write("tandem/base/a.h", '#pragma once\n#include "tandem/base/b.h"\nusing A = B;\n')
        self.write("tandem/base/b.h", "#pragma once\nusing B = int;\n")
        self.assertEqual(self.check()[0], 0)
        self.write("tandem/base/b.h", "#pragma once\n")
        status, lines, _ = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(len(lines), 1)

    def test_a_folder_that_is_not_configured_is_a_usage_error(self):
        (self.root / "build/compile_commands.json").unlink()
        status, _, error = self.check()
        self.assertEqual(status, 64)
        self.assertIn("configure first", error)


if __name__ == "__main__":
    tree.unittest.main()
