"""tools/on_gpu_machine on machines that lack what it needs. Nothing is built or downloaded."""
import os
import shutil
import subprocess

import tree


class OnGpuMachine(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.write("tools/dev/.keep", "")  # makes the folder
        for name in ("on_gpu_machine", "dev/phase.bash"):
            shutil.copy(tree.ROOT / "tools" / name, self.root / "tools" / name)

    def run_stage(self, *words, **variables):
        """(status, last line of stderr)"""
        environment = {**os.environ, "OUT": str(self.root / "out"), **variables}
        run = subprocess.run([self.root / "tools/on_gpu_machine", *words], capture_output=True, text=True, check=False,
                             env=environment)
        return run.returncode, (run.stderr.splitlines() or [""])[-1]

    def test_the_stages(self):
        wanted = "wanted pack, info, build, tests, train, speed or all"
        self.assertEqual(self.run_stage("bild"), (64, f"error: the stage is 'bild', {wanted}"))
        self.assertEqual(self.run_stage(), (64, f"error: the stage is '', {wanted}"))
        self.assertEqual(self.run_stage("build", "tests"), (64, f"error: the stage is 'build tests', {wanted}"))

    def test_packages_that_cannot_be_had_are_one_line(self):
        self.write("bin/apt-get", "#!/bin/sh\necho 'E: Failed to fetch x'\necho 'E: more'\nexit 100\n",
                   executable=True)
        path = f"{self.root}/bin:{os.environ['PATH']}"
        self.assertEqual(self.run_stage("pack", PATH=path),
                         (69, "error: the packages cannot be downloaded: E: Failed to fetch x"))

    def test_a_build_without_packages_says_where_they_come_from(self):
        self.assertEqual(self.run_stage("build"),
                         (69, "error: build-gpu-packages/ holds no packages: run tools/on_gpu_machine pack on a "
                              "machine with a network, and carry it here"))

    def test_tests_without_a_build_with_cuda(self):
        self.assertEqual(self.run_stage("tests"), (69, "error: there is no build with CUDA in build-gpu/"))

    def test_what_python_it_runs_for_losses_is_compiled(self):
        for name in ("gpu_losses", "gpu_speed"):
            compile((tree.ROOT / "tools" / name).read_text(), name, "exec")
