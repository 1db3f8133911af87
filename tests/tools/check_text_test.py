import tree


class CheckText(tree.TreeTest):
    def faults(self):
        status, lines, _ = self.run_tool("check_text")
        self.assertEqual(status, 1 if lines else 0)
        return lines

    def test_good_texts_pass(self):
        self.write("tandem/base/a.h", "#pragma once\n" + "x" * 120 + "\n")
        self.write("README.md", "[home](docs/README.md#top) [web](https://example.org/x)" + " y" * 100 + "\n")
        self.write("docs/README.md", "[up](../README.md)\n")
        self.write("docs/figure.png", "")
        (self.root / "docs/figure.png").write_bytes(b"\x89PNG\xff")
        self.assertEqual(self.faults(), [])

    def test_long_lines(self):
        self.write("cmake/a.cmake", "\n" + "x" * 121 + "\n")
        self.assertEqual(self.faults(), ["cmake/a.cmake:2: line has 121 columns, wanted 120 or less"])

    def test_columns_are_characters_not_bytes(self):
        self.write("tandem/base/a.cpp", "·" * 120 + "\n")
        self.assertEqual(self.faults(), [])

    def test_tabs_and_trailing_space(self):
        self.write("dev", "a \n\tb\n")
        self.assertEqual(self.faults(), [f"dev:{line}: tab, or space at the end" for line in (1, 2)])

    def test_reminders(self):
        for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"):
            self.write("tandem/base/a.cpp", f"// {word}: later\n")
            self.assertEqual(self.faults(), [f"tandem/base/a.cpp:1: {word} is a reminder: do it, or open an issue"])

    def test_header_guard(self):
        self.write("tandem/base/a.h", "int f();\n")
        self.assertEqual(self.faults(), ["tandem/base/a.h:1: header without #pragma once"])

    def test_dead_link(self):
        self.write("docs/README.md", "\n[comm](comm.md)\n")
        self.assertEqual(self.faults(), ["docs/README.md:2: link to comm.md, which is not there"])


if __name__ == "__main__":
    tree.unittest.main()
