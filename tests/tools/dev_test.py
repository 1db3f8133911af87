"""./dev on a made-up machine: a copy of the script, and a PATH that holds only what a test puts there."""
import os
import shutil
import subprocess

import tree

SYSTEM = "awk bash cat cut dirname env flock grep head kill mkdir nproc realpath rm sed sleep stty tail tr wc".split()
PRESENT = 'shift 3; for p in "$@"; do printf "%s=installed " "$p"; done\n'  # dpkg-query -W -f FORMAT NAME...
POLICY = 'shift; for p in "$@"; do printf "%s:\\n  Candidate: 1.0\\n" "$p"; done\n'  # apt-cache policy NAME...
PIP = """[ "$1" = -m ] || exit 0
for r in "$@"; do case $r in *==*)
  info=.venv/lib/python3.11/site-packages/$(echo "${r%%==*}" | tr - _)-${r##*==}.dist-info
  mkdir -p "$info" && : >"$info/RECORD" ;; esac; done
"""


class Dev(tree.TreeTest):
    def setUp(self):
        super().setUp()
        shutil.copy(tree.ROOT / "dev", self.root)
        shutil.copytree(tree.ROOT / "tools", self.root / "tools")
        (self.root / "bin").mkdir()
        for name in SYSTEM:
            (self.root / "bin" / name).symlink_to(shutil.which(name))
        self.write("tools/requirements-build.txt", "# two\nnvidia-x==2.0\ntorch==1.0\n")
        self.write(".venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", "")
        self.program(".venv/bin/pip", "")
        self.program("ldd", "")
        self.program("id", "echo 0\n")

    def program(self, name, script):
        self.write(name if "/" in name else f"bin/{name}", "#!/bin/sh\n" + script, executable=True)

    def dev(self, *arguments, **environment):
        run = subprocess.run([self.root / "dev", *arguments], capture_output=True, text=True, check=False,
                             stdin=subprocess.DEVNULL, cwd="/", env={"PATH": str(self.root / "bin"), **environment})
        return run.returncode, run.stdout, run.stderr

    def with_packages(self):
        self.program("dpkg-query", PRESENT)
        self.program("apt-get", "echo called >>apt.calls\n")

    def without_packages(self, apt_get='echo "$*" >>apt.calls\n'):
        self.program("dpkg-query", "exit 1\n")
        self.program("apt-get", apt_get)
        self.program("apt-cache", POLICY)
        self.program(".venv/bin/python", PIP)

    def with_torch(self):
        self.with_packages()
        self.program(".venv/bin/python", PIP)

    def test_help_and_no_command_print_the_usage(self):
        for arguments in ([], ["help"], ["--help"]):
            status, out, _ = self.dev(*arguments)
            self.assertEqual(status, 0)
            self.assertIn("usage: ./dev COMMAND", out)

    def test_unknown_command(self):
        self.assertEqual(self.dev("tset")[0::2], (64, "error: command is 'tset', wanted one of: quickstart, build, "
                                                      "test, bench, check, format, help\n"))

    def test_unknown_bench(self):
        self.write("bench/train_glyphs/run.py", "")
        self.assertEqual(self.dev("bench", "nope")[0::2], (64, "error: bench is 'nope', wanted one of: train_glyphs\n"))

    def test_without_root_and_sudo_the_exact_line_is_told(self):
        self.without_packages()
        self.program("id", "echo 1000\n")
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertRegex(error, r"error: \d+ Debian packages are missing, and neither root nor sudo is here")
        self.assertRegex(error, r"\n    apt-get install --no-install-recommends build-essential .*zlib1g-dev\n")

    def test_a_sudo_that_refuses(self):
        self.without_packages()
        self.program("id", "echo 1000\n")
        self.program("sudo", "exit 1\n")
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("sudo does not let this user install them", error)
        self.assertIn("    apt-get install --no-install-recommends build-essential", error)

    def test_sudo_is_used_when_it_lets_us(self):
        self.without_packages()
        self.program("id", "echo 1000\n")
        self.program("sudo", '[ "$1" != -n ] || exit 0\necho called >>sudo.calls\nexec "$@"\n')
        self.assertIn("installed", self.dev("build")[2])
        self.assertTrue((self.root / "sudo.calls").is_file())
        self.assertIn("install --no-install-recommends build-essential", (self.root / "apt.calls").read_text())

    def test_a_package_that_no_list_holds_is_named(self):
        self.without_packages()
        self.program("apt-cache", POLICY.replace('do ', 'do [ "$p" = libpng-dev ] && continue; '))
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("error: no package list of this system holds: libpng-dev\n    Without a network: connect", error)

    def test_ccache_and_mold_may_lack(self):
        self.without_packages()
        self.program("apt-cache", POLICY.replace('do ', 'do case $p in mold | ccache) continue ;; esac; '))
        self.dev("build")
        installed = (self.root / "apt.calls").read_text()
        self.assertIn(" cmake ", installed)
        self.assertNotIn("mold", installed)

    def test_a_failing_apt_shows_its_words_and_the_line_to_run(self):
        self.without_packages(apt_get="echo 'E: Could not resolve host'; exit 100\n")
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("E: Could not resolve host\n---\nerror: apt could not install all", error)
        self.assertIn("    apt-get install --no-install-recommends build-essential", error)

    def test_without_apt_a_missing_tool_is_named(self):
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("error: c++ is missing, and this system has no apt", error)

    def test_a_venv_that_cannot_be_made(self):
        self.with_packages()
        (self.root / ".venv/bin/pip").unlink()
        self.program("env-python", "echo 'ensurepip is not available'; exit 1\n")
        setup = self.root / "tools/dev/setup.bash"
        setup.write_text(setup.read_text().replace("/usr/bin/python3", str(self.root / "bin/env-python")))
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("ensurepip is not available\n---\nerror: .venv could not be made\n", error)

    def test_a_torch_that_pip_cannot_find_is_named(self):
        self.with_packages()
        self.program(".venv/bin/python", 'case $1$2 in -c) exit 0 ;; -c*) echo Python 3.9 on riscv64; exit 0 ;; esac\n'
                                         "echo 'ERROR: No matching distribution found for torch==1.0'; exit 1\n")
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("error: pip finds no nvidia-x==2.0 torch==1.0 for Python 3.9 on riscv64\n", error)
        self.assertIn("TANDEM_TORCH_DIR=", error)

    def test_a_pip_that_fails_otherwise_shows_its_words(self):
        self.with_packages()
        self.program(".venv/bin/python", '[ "$1" = -c ] && exit\necho "No space left on device"; exit 1\n')
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("No space left on device\n---\nerror: pip could not install nvidia-x==2.0 torch==1.0 ", error)

    def test_an_install_that_was_cut_short_is_done_again(self):
        self.with_torch()
        self.dev("build")
        record = self.root / ".venv/lib/python3.11/site-packages/torch-1.0.dist-info/RECORD"
        record.unlink()
        self.assertIn("1 Python packages installed", self.dev("build")[2])
        self.assertTrue(record.is_file())

    def test_a_wrong_version_is_replaced(self):
        self.with_torch()
        self.dev("build")
        self.write("tools/requirements-build.txt", "nvidia-x==2.0\ntorch==1.1\n")
        self.assertIn("1 Python packages installed", self.dev("build")[2])

    def test_a_named_torch_is_used_and_none_installed(self):
        self.with_packages()
        status, _, error = self.dev("build", TANDEM_TORCH_DIR="/nowhere")
        self.assertEqual(status, 69)
        self.assertIn("error: TANDEM_TORCH_DIR is /nowhere, which holds no lib/libtorch_cpu.so\n", error)
        self.write("mine/lib/libtorch_cpu.so", "")
        self.program("cmake", 'echo "$*" >cmake.call; exit 1\n')
        self.dev("build", TANDEM_TORCH_DIR=str(self.root / "mine"))
        self.assertEqual((self.root / "cmake.call").read_text(),
                         f"--preset release -DTANDEM_TORCH_DIR={self.root / 'mine'}\n")
        self.assertFalse((self.root / ".venv/bin/python").exists())

    def test_libraries_that_torch_lacks_are_named(self):
        self.with_torch()
        self.program("ldd", "echo 'libcudart.so.13 => not found'\n")
        status, _, error = self.dev("build")
        self.assertEqual(status, 69)
        self.assertIn("libcudart.so.13 => not found\nerror: ", error)

    def test_a_configure_that_fails_shows_its_words(self):
        self.with_torch()
        self.program("cmake", "echo 'CMake Error: no compiler'; exit 1\n")
        status, _, error = self.dev("build")
        self.assertEqual(status, 70)
        self.assertIn("CMake Error: no compiler\n---\nerror: CMake could not configure", error)

    def test_a_build_that_fails_shows_its_words(self):
        self.with_torch()
        self.program("cmake", "exit 0\n")
        self.program("ninja", "echo '[1/9] Building a.o'; echo 'FAILED: a.o'; echo 'fatal error: x.h'; exit 1\n")
        status, _, error = self.dev("build", "base")
        self.assertEqual(status, 70)
        self.assertIn("\nFAILED: a.o\nfatal error: x.h\n---\nerror: the build failed", error)
        self.assertNotIn("[1/9]", error)

    def test_a_second_call_installs_and_builds_nothing(self):
        self.with_torch()
        self.program("cmake", f"echo {self.root}/.venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so "
                              ">build/build.ninja\necho called >>cmake.calls\n")
        self.program("ninja",
                     'case "$*" in *-n*) [ ! -e built ] || echo "ninja: no work to do." ;; *) : >built ;; esac\n')
        self.assertEqual(self.dev("build")[0], 0)
        status, _, error = self.dev("build")
        self.assertEqual(status, 0)
        self.assertNotRegex(error, "installed|configure|with .* jobs")
        self.assertIn("tandem up to date", error)
        self.assertFalse((self.root / "apt.calls").exists())
        self.assertEqual((self.root / "cmake.calls").read_text(), "called\n")

    def installed_by(self, *arguments):
        """The packages that ./dev asks apt for on a machine that holds none."""
        self.without_packages()
        (self.root / "apt.calls").unlink(missing_ok=True)
        self.dev(*arguments)
        return (self.root / "apt.calls").read_text().partition(" install ")[2].split()

    def test_the_packages_of_tests_are_asked_for_when_tests_are_built(self):
        for arguments in (["test"], ["build", "all"], ["build", "test_comm"], ["build", "comm", "operator_rank"]):
            self.assertIn("librapidcheck-dev", self.installed_by(*arguments), arguments)
            self.assertIn("libgtest-dev", self.installed_by(*arguments), arguments)

    def test_the_program_asks_for_no_package_of_tests(self):
        self.write("tandem/comm/CMakeLists.txt", "")
        for arguments in (["quickstart"], ["build"], ["build", "comm"], ["build", "example_collectives"], ["check"]):
            installed = self.installed_by(*arguments)
            self.assertIn("ninja-build", installed, arguments)
            for name in ("librapidcheck-dev", "libgtest-dev", "mpich"):
                self.assertNotIn(name, installed, arguments)

    def with_build(self):
        """A cmake that remembers its calls and what a real one leaves: the cache's switch, the torch it found."""
        self.with_torch()
        self.program("cmake", f"""echo "$*" >>cmake.calls
case $* in *TESTS=ON*) echo TANDEM_BUILD_TESTS:STRING=ON >build/CMakeCache.txt ;; esac
echo {self.root}/.venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so >build/build.ninja
""")
        self.program("ninja", "exit 0\n")
        self.program("ctest", "exit 0\n")
        self.program("build/tandem", "exit 0\n")
        shutil.copy(self.root / "tools/requirements-build.txt", self.root / "tools/requirements-test.txt")
        self.write("tools/requirements-check.txt", "")

    def configured_by(self, *arguments):
        """How often CMake ran, and whether it was told to build tests."""
        calls = self.root / "cmake.calls"
        calls.unlink(missing_ok=True)
        self.assertEqual(self.dev(*arguments)[0], 0)
        lines = calls.read_text().splitlines() if calls.exists() else []
        return ["TESTS=ON" in line for line in lines]

    def test_tests_are_configured_once_and_stay(self):
        self.with_build()
        self.assertEqual(self.configured_by("quickstart"), [False])
        self.assertEqual(self.configured_by("quickstart"), [])
        self.assertEqual(self.configured_by("build", "test_comm"), [True])
        for arguments in (["quickstart"], ["test"], ["build", "all"], ["build"]):
            self.assertEqual(self.configured_by(*arguments), [], arguments)

    def test_tests_first_then_quickstart(self):
        self.with_build()
        self.assertEqual(self.configured_by("test"), [True])
        self.assertEqual(self.configured_by("quickstart"), [])

    def test_a_package_that_comes_into_venv_is_seen_by_the_next_configure(self):
        self.with_build()
        self.configured_by("build")
        self.write("tools/requirements-build.txt", "nvidia-x==2.0\ntorch==1.0\nnvidia-y==1.0\n")
        os.utime(self.root / "build/build.ninja", (0, 0))
        self.assertEqual(self.configured_by("build"), [False])
        self.assertEqual(self.configured_by("build"), [])

    def test_quickstart_trains_with_the_settings_given_and_passes_its_status_on(self):
        self.with_torch()
        self.program("cmake", "exit 0\n")
        self.program("ninja", "exit 0\n")
        self.program("build/tandem", 'echo "$*"; exit 80\n')
        status, out, _ = self.dev("quickstart", "train.epochs=1", "--json", "-")
        self.assertEqual(status, 80)
        self.assertEqual(out, "train data=glyphs data.classes=3755 ranks=4 train.epochs=1 --json -\n")

    def test_test_ends_with_the_status_of_ctest(self):
        self.with_torch()
        for name in ("test", "check"):
            self.write(f"tools/requirements-{name}.txt", "")
        for name, script in (("cmake", ""), ("ninja", ""), ("ctest", 'echo "$*"; exit 8\n')):
            self.program(name, script)
        status, out, _ = self.dev("test", "-R", "comm")
        self.assertEqual((status, out), (8, "--test-dir build --output-on-failure -j 3 -R comm\n"))


if __name__ == "__main__":
    tree.unittest.main()
