import tree


class CheckLayers(tree.TreeTest):
    def write(self, path, text, executable=False):
        """A folder of the ladder comes with its page and its tests."""
        super().write(path, text, executable)
        parts = path.split("/")
        if parts[0] == "tandem" and len(parts) > 2:
            super().write(f"docs/{parts[1]}.md", "\n")
            super().write(f"tests/{parts[1]}/CMakeLists.txt", "\n")

    def faults(self):
        status, lines, _ = self.run_tool("check_layers")
        self.assertEqual(status, 1 if lines else 0)
        return lines

    def test_edges_down_the_ladder_pass(self):
        self.write("tandem/base/a.h", "#include <string>\n")
        self.write("tandem/comm/a.cpp", '#include "tandem/comm/detail/b.h"\n#include "tandem/base/a.h"\n')
        self.write("tandem/cli/a.cpp", '#include "tandem/tandem.h"\n#include "tandem/train/a.h"\n')
        self.write("tandem/tandem.h", '#include "tandem/comm/a.h"\n')
        self.write("tandem/comm/CMakeLists.txt",
                   "tandem_library(comm HEADERS a.h SOURCES a.cpp USES base LINKS memory)\n")
        self.assertEqual(self.faults(), [])

    def test_an_edge_up_is_named_with_file_and_line(self):
        self.write("tandem/base/a.cpp", '#include <string>\n#include "tandem/comm/world.h"\n')
        self.assertEqual(self.faults(), ["tandem/base/a.cpp:2: base may not use comm (tandem/comm/world.h); "
                                         "it may use no other folder"])

    def test_neighbours_do_not_know_each_other(self):
        for one, other in (("comm", "memory"), ("models", "classifier"), ("classifier", "train"), ("train", "models"),
                           ("data", "parallel"), ("data", "kernels"), ("parallel", "data"),
                           ("evaluation", "classifier"), ("evaluation", "parallel"), ("train", "evaluation")):
            self.write(f"tandem/{one}/a.cpp", f'# include  "tandem/{other}/x.h"\n')
            self.assertRegex(self.faults()[0], f"^tandem/{one}/a.cpp:1: {one} may not use {other} ")
            (self.root / f"tandem/{one}/a.cpp").unlink()

    def test_a_header_that_nobody_else_includes_belongs_into_a_sub_folder(self):
        self.write("tandem/comm/own.h", "\n")
        self.write("tandem/comm/a.cpp", '#include "tandem/comm/own.h"\n')
        self.write("tests/comm/a_test.cpp", '#include "tandem/comm/own.h"\n')
        self.write("tandem/comm/shown.h", "\n")
        self.write("README.md", '#include "tandem/comm/shown.h"\n')
        self.write("tandem/cli/own.h", "\n")
        self.assertEqual(self.faults(), ["tandem/comm/own.h:1: no other folder includes this header: move it into a "
                                         "sub-folder"])

    def test_a_folder_has_a_page_and_tests(self):
        self.write("tandem/comm/a.cpp", "\n")
        (self.root / "docs/comm.md").unlink()
        self.assertEqual(self.faults(), ["tandem/comm:1: docs/comm.md is missing: a folder has a page and tests of "
                                         "its own"])

    def test_a_comment_is_no_edge(self):
        self.write("tandem/base/a.cpp", '// #include "tandem/comm/world.h"\n')
        self.assertEqual(self.faults(), [])

    def test_the_library_stands_without_tests_and_benches(self):
        self.write("tandem/base/a.cpp", '#include "tests/support/ranks.h"\n')
        self.assertEqual(self.faults(), ["tandem/base/a.cpp:1: tandem/ may not include tests/support/ranks.h, "
                                         "which is no part of the library"])

    def test_sub_folders_belong_to_their_folder(self):
        for sub in ("detail", "local"):
            self.write("tandem/parallel/a.cpp", f'#include "tandem/comm/{sub}/b.h"\n')
            self.assertEqual(self.faults(), [f"tandem/parallel/a.cpp:1: tandem/comm/{sub}/b.h is comm's own: "
                                             f"include a header outside {sub}/"])

    def test_includes_are_written_from_the_root(self):
        self.write("tandem/comm/a.cpp", '#include "a.h"\n')
        self.assertEqual(self.faults(), ['tandem/comm/a.cpp:1: "a.h" is not written from the root, wanted "tandem/..." '
                                         "(third parties: <...>)"])

    def test_the_whole_is_for_those_on_top(self):
        self.write("tandem/comm/a.cpp", '#include "tandem/tandem.h"\n')
        self.assertEqual(self.faults(), ["tandem/comm/a.cpp:1: comm may not include tandem/tandem.h, "
                                         "which holds all folders"])

    def test_kernels_know_no_torch(self):
        self.write("tandem/kernels/a.cu", "#include <cuda_runtime.h>\n#include <ATen/ATen.h>\n")
        self.assertEqual(self.faults(), ["tandem/kernels/a.cu:2: kernels takes pointers, sizes and a stream, "
                                         "and may not include ATen/ATen.h"])

    def test_an_unknown_folder_needs_a_place(self):
        self.write("tandem/utils/a.cpp", "\n")
        self.write("tandem/base/a.cpp", '#include "tandem/misc/a.h"\n')
        self.assertEqual(self.faults(), [
            "tandem/base/a.cpp:1: misc is no folder of the ladder (tandem/misc/a.h)",
            "tandem/utils/a.cpp:1: tandem/utils is no folder of the ladder: add it to tools/check_layers"])

    def test_targets_are_held_to_the_same_ladder(self):
        self.write("tandem/data/CMakeLists.txt",
                   "tandem_library(data\n  SOURCES a.cpp\n  USES base comm\n  LINKS png)\n")
        self.assertEqual(self.faults(), ["tandem/data/CMakeLists.txt:3: data may not use comm (USES); it may use base, "
                                         "storage"])

    def test_no_tandem_folder_is_a_usage_error(self):
        status, _, error = self.run_tool("check_layers")
        self.assertEqual(status, 64)
        self.assertIn("holds no folder tandem/", error)


if __name__ == "__main__":
    tree.unittest.main()
