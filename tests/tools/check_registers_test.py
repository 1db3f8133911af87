"""tools/check_registers on the reports of a stand-in for nvcc."""
import os
import subprocess
import unittest

from tree import ROOT, TreeTest

REPORT = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    0 bytes stack frame, {spill} bytes spill stores, {spill} bytes spill loads
ptxas info    : Used {registers} registers, used 0 barriers
"""
RUN_EACH = "_ZN6tandem7kernels8run_eachINS0_10{body}EEEvlT_"  # run_each<a body of 10 letters>


class CheckRegisters(TreeTest):
    def check(self, *kernels, status=0):
        """For (body, registers, spill) of each kernel."""
        self.write("tandem/kernels/one.cu", "")
        text = "".join(REPORT.format(name=RUN_EACH.format(body=body), registers=registers, spill=spill)
                       for body, registers, spill in kernels)
        self.write("nvcc", f"#!/bin/sh\ncat << END\n{text}END\nexit {status}\n", executable=True)
        return self.run_with(self.root / "nvcc")

    def run_with(self, nvcc):
        run = subprocess.run([ROOT / "tools/check_registers", self.root], capture_output=True, text=True, check=False,
                             env={**os.environ, "NVCC": str(nvcc)})
        return run.returncode, run.stdout.splitlines(), run.stderr

    def test_a_table_by_the_most_registers(self):
        status, lines, errors = self.check(("SwishBody1", 30, 0), ("SwishBody2", 64, 0))
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual([line.split() for line in lines],
                         [["kernel", "registers", "spill"], ["run_each<SwishBody2>", "64", "0"],
                          ["run_each<SwishBody1>", "30", "0"], ["registers", "2", "kernels,", "0", "faults"]])

    def test_a_kernel_above_its_limit_is_named(self):
        status, lines, _ = self.check(("SwishBody1", 65, 0), ("doubleBody", 112, 0))
        self.assertEqual(status, 1)
        self.assertEqual(lines[-2:], ["run_each<SwishBody1> uses 65 registers, wanted 64 or fewer",
                                      "registers  2 kernels, 1 faults"])

    def test_a_kernel_that_spills_is_named(self):
        status, lines, _ = self.check(("SwishBody1", 40, 8))
        self.assertEqual(status, 1)
        self.assertEqual(lines[-2], "run_each<SwishBody1> spills 16 bytes, wanted 0")

    def test_a_source_that_does_not_compile_fails(self):
        status, lines, _ = self.check(status=1)
        self.assertEqual((status, lines), (1, ["registers  a source does not compile"]))

    def test_no_kernel_at_all_fails(self):
        self.assertEqual(self.check()[0], 1)

    def test_without_nvcc_nothing_is_checked(self):
        self.assertEqual(self.run_with("/nowhere/nvcc"), (77, ["registers  no nvcc"], ""))


if __name__ == "__main__":
    unittest.main()
