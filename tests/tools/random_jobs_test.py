import tree

# Answers as `tandem train` does: a result in which `peak` bytes are held, and the losses.
PROGRAM = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
alone = not any(word.startswith("ranks=") for word in words) and "launch" not in words
{body}
rank = {{"train": {{"peak_bytes": {peak}, "predicted_peak_bytes": 100}}}}
result = {{"losses": {losses}, "memory": {{"ranks": [rank]}}}}
open(words[words.index("--json") + 1], "w").write(json.dumps(result))
"""


class RandomJobs(tree.TreeTest):
    def run_jobs(self, *words, body="", peak=100, losses="[1.0, 0.5]"):
        self.write("program", PROGRAM.format(body=body, peak=peak, losses=losses), executable=True)
        run = tree.subprocess.run([tree.ROOT / "tools/random_jobs", self.root / "program", "--jobs", "12", *words],
                                  capture_output=True, text=True, check=False)
        return run.returncode, run.stdout.splitlines()

    def test_good_jobs_pass(self):
        status, lines = self.run_jobs()
        self.assertEqual((status, len(lines)), (0, 1))
        self.assertRegex(lines[0], r"^12 jobs: 12 trained, of which \d+ were compared with one rank; 0 refused; 0 at ")

    def test_refusals_are_counted_by_their_text(self):
        body = "print(f'error: ranks is {len(words)}, wanted 1 (rank 0 of 2)', file=sys.stderr); sys.exit(78)"
        status, lines = self.run_jobs(body=body)
        self.assertEqual((status, lines[0]), (0, "   12 refused  ranks is N, wanted N"))
        self.assertTrue(lines[-1].endswith(" 12 refused; 0 at fault"), lines)

    def test_faults_are_told_with_their_command(self):
        for body, seconds, told in (("sys.exit(70)", "60", "ends with 70: "),
                                    ("import os; os.kill(os.getpid(), 11)", "60", "ends with -11: "),
                                    ("import signal; signal.pause()", "0.5", "takes longer than 0.5 s")):
            status, lines = self.run_jobs("--jobs", "2", "--seconds", seconds, body=body)
            self.assertEqual(status, 1)
            self.assertTrue(lines[0].startswith(f"FAULT  {self.root}/program "), lines)
            self.assertEqual(lines[1].strip(), told.strip())

    def test_a_peak_above_the_predicted_one_is_a_fault(self):
        status, lines = self.run_jobs(peak=101)
        self.assertEqual(status, 1)
        self.assertIn("  rank 0 holds 101 bytes, predicted 100", lines)

    def test_losses_are_compared_with_those_of_one_rank(self):
        status, lines = self.run_jobs("--jobs", "60", losses="[1.0, 0.5 if alone else 0.5000001]")
        self.assertEqual(status, 1)
        self.assertIn("  the loss of step 2 is 0.5000001, with one rank 0.5", lines)

    def test_the_same_seed_gives_the_same_jobs(self):
        body = "print('error: ' + ' '.join(word for word in words if '=' in word[:20] and word[:4] != 'out='), " \
               "file=sys.stderr); sys.exit(70)"
        one = self.run_jobs("--seed", "4", body=body)
        self.assertEqual(one, self.run_jobs("--seed", "4", body=body))
        self.assertNotEqual(one, self.run_jobs("--seed", "5", body=body))


if __name__ == "__main__":
    tree.unittest.main()
