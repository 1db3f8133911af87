"""A small tree of files in a temporary folder, and a way to run one of the tools on it."""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text, executable=False):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if executable:
            file.chmod(0o755)

    def run_tool(self, name, *arguments):
        """(status, lines of stdout, stderr)"""
        run = subprocess.run([ROOT / "tools" / name, self.root, *arguments],
                             capture_output=True, text=True, check=False)
        return run.returncode, run.stdout.splitlines(), run.stderr
