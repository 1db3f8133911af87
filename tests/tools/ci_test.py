"""What CI runs, on a made-up tree: ./dev there writes down its calls and ends as a test says."""
import os
import shutil
import subprocess

import tree


class Ci(tree.TreeTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(tree.ROOT / ".ci", self.root / ".ci")
        self.write("tools/.keep", "")
        shutil.copy(tree.ROOT / "tools/on_bare_machine", self.root / "tools")
        self.write("bin/id", "#!/bin/sh\necho 1000\n", executable=True)  # no root: in place

    def run_ci(self, program=".ci/run", **statuses):
        cases = "".join(f"{name}) exit {status} ;; " for name, status in statuses.items())
        self.write("dev", f'#!/bin/sh\necho "$*"\ncase $1 in {cases} *) exit 0 ;; esac\n', executable=True)
        run = subprocess.run(["bash", self.root / program], capture_output=True, text=True, check=False,
                             stdin=subprocess.DEVNULL, cwd="/",
                             env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        return run.returncode, run.stdout.splitlines(), run.stderr.splitlines()

    def test_quickstart_then_the_checks_then_the_tests(self):
        status, out, error = self.run_ci()
        self.assertEqual((status, out), (0, ["quickstart train.steps=20", "check", "test"]))
        self.assertEqual(error, ["machine    in place, not a bare one: not root", "==> ./dev quickstart train.steps=20",
                                 "==> ./dev check", "==> ./dev test"])

    def test_the_status_is_that_of_the_first_failure_and_all_are_run(self):
        status, out, error = self.run_ci(quickstart=70, test=8)
        self.assertEqual((status, out[1:]), (70, ["check", "test"]))
        self.assertEqual(error[-1], "failed: ./dev quickstart (70), ./dev test (8)")
        self.assertEqual(self.run_ci(check=1)[0], 1)
        self.assertEqual(self.run_ci(test=8)[0], 8)

    def test_a_machine_for_no_command_is_a_usage_error(self):
        status, _, error = self.run_ci("tools/on_bare_machine")
        self.assertEqual((status, error), (64, ["usage: tools/on_bare_machine COMMAND [arguments]"]))

    def test_where_it_may_not_mount_it_works_in_place(self):
        self.write("bin/id", "#!/bin/sh\necho 0\n", executable=True)
        self.write("bin/unshare", "#!/bin/sh\nexit 1\n", executable=True)
        status, out, error = self.run_ci(check=3)
        self.assertEqual((status, len(out)), (3, 3))
        self.assertEqual(error[0], "machine    in place, not a bare one: no right to mount")


if __name__ == "__main__":
    tree.unittest.main()
