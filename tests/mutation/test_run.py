#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The mutation check itself: in a small tree it catches, it reports a survivor, and it refuses a list that rotted."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).with_name("run")

CODE = """int Larger(int a, int b) { return a > b ? a : b; }
int Twice(int a) { return 2 * a; }
"""
# A program without gtest's main but with its output would do too; this is what the real ones are.
TEST = """#include <gtest/gtest.h>
#include <cstdio>
int Larger(int a, int b);
TEST(Larger, IsTheSecondWhereThatIsMore) { EXPECT_EQ(Larger(1, 2), 2); }
TEST(Larger, IsTheFirstWhereThatIsMore) { EXPECT_EQ(Larger(2, 1), 2); }
"""
LIST = """
[tests]
"transport/larger.cc" = ["larger_test"]
"""
# A program of its own, and what it is called with.
PROGRAM = """
last = ["many"]
[programs.many]
sources = ["tests/many/*.cc"]
headers = ["tests/own/words.h"]
include = ["tests/own"]
arguments = ["2"]
"""
WORDS = """int Look(int a);
"""
MAIN = """#include <cstdlib>
#include "words.h"
int main(int argc, char** argv) { return argc == 2 ? Look(std::atoi(argv[1])) : 3; }
"""
LOOK = """#include <cstdio>
#include "words.h"
int Twice(int a);
int Look(int a) {
  if (Twice(a) == 2 * a) return 0;
  std::printf("many: it is %d, must be %d; repeat: many %d\\n", Twice(a), 2 * a, a);
  return 1;
}
"""
CAUGHT = ("caught", "return a > b ? a : b;", "return a;")
ENDLESS = ("endless", "return a > b ? a : b;", "while (a != b + 7) asm volatile(\"\"); return a;")
SURVIVOR = ("survivor", "return a > b ? a : b;", "return b < a ? a : b;")
UNSEEN = ("unseen", "return 2 * a;", "return 3 * a;")
BROKEN = ("broken", "return a > b ? a : b;", "return c;")


def entry(name, old, new, file="transport/larger.cc"):
    return f"[[mutant]]\nname = '{name}'\nfile = '{file}'\nold = '''{old}'''\nnew = '''{new}'''\nbreaks = 'it'\n"


class SmallTree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("transport/larger.cc", CODE)
        self.write("tests/transport/larger_test.cc", TEST)

    def write(self, path, text):
        goal = self.root / path
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal.write_text(text, encoding="utf-8")

    def run_list(self, *mutants, options=()):
        self.write("tests/mutation/mutants.toml", LIST + "".join(entry(*mutant) for mutant in mutants))
        return subprocess.run([RUN, "--root", self.root, *options], capture_output=True, text=True, check=False)

    def assert_refused(self, run, *parts):
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertFalse((self.root / "build").exists())
        for part in parts:
            self.assertIn(part, run.stderr)

    @unittest.skipUnless(shutil.which("ninja"), "ninja is missing: apt-get install ninja-build")
    def test_a_caught_mutant_is_named_with_its_test_and_a_mutant_that_changes_nothing_is_a_survivor(self):
        run = self.run_list(CAUGHT, SURVIVOR, UNSEEN, BROKEN, ENDLESS, options=["--time-limit", "2"])
        self.assertEqual(run.returncode, 1, run.stderr)
        table = run.stdout.split("seconds  caught by")[1]
        lines = {line.split()[0]: line for line in table.splitlines() if line[:1].isalpha()}
        self.assertIn("larger_test Larger.IsTheSecondWhereThatIsMore", lines["caught"])
        self.assertIn("SURVIVES", lines["survivor"])
        self.assertIn("SURVIVES", lines["unseen"])
        self.assertIn("does not compile", lines["broken"])
        self.assertIn("does not end", lines["endless"])
        self.assertIn("2 of 5 mutants caught", run.stdout)
        self.assertEqual((self.root / "transport/larger.cc").read_text(encoding="utf-8"), CODE)
        # What is caught alone is a success.
        alone = subprocess.run([RUN, "--root", self.root, "--only", "caught"], capture_output=True, text=True,
                               check=False)
        self.assertEqual(alone.returncode, 0, alone.stderr)

    @unittest.skipUnless(shutil.which("ninja"), "ninja is missing: apt-get install ninja-build")
    def test_a_test_that_fails_without_a_mutant_proves_nothing(self):
        self.write("tests/transport/larger_test.cc", TEST.replace("Larger(2, 1), 2", "Larger(2, 1), 3"))
        run = self.run_list(CAUGHT)
        self.assertEqual(run.returncode, 1)
        self.assertIn("fails without a mutant", run.stderr)
        self.assertNotIn("caught by", run.stdout)

    @unittest.skipUnless(shutil.which("ninja"), "ninja is missing: apt-get install ninja-build")
    def test_a_program_of_several_files_is_asked_last_and_catches_what_the_others_let_through(self):
        self.write("tests/own/words.h", WORDS)
        self.write("tests/many/main.cc", MAIN)
        self.write("tests/many/look.cc", LOOK)
        self.write("tests/mutation/mutants.toml", PROGRAM + LIST + entry(*CAUGHT) + entry(*UNSEEN))
        run = subprocess.run([RUN, "--root", self.root], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("1/2 caught: larger_test", run.stdout)
        self.assertIn("2/2 unseen: many it is 6, must be 4 (", run.stdout)

    def test_a_program_whose_files_are_gone_is_refused(self):
        self.write("tests/mutation/mutants.toml", PROGRAM + LIST + entry(*CAUGHT))
        run = subprocess.run([RUN, "--root", self.root, "--check"], capture_output=True, text=True, check=False)
        self.assert_refused(run, "programs.many: no file tests/many/*.cc")

    def test_a_text_that_is_no_longer_found_is_refused(self):
        self.assert_refused(self.run_list(CAUGHT, ("gone", "return a < b;", "return a;")), "gone: its text is found 0")

    def test_a_text_that_is_found_twice_is_refused(self):
        self.assert_refused(self.run_list(("twice", "return ", "return 1 + ")), "twice: its text is found 2 times")

    def test_a_file_or_a_test_that_does_not_exist_is_refused(self):
        self.assert_refused(self.run_list((*CAUGHT, "transport/gone.cc")), "caught: no test for it")
        self.write("tests/mutation/mutants.toml", LIST.replace("larger_test", "gone_test") + entry(*CAUGHT))
        run = subprocess.run([RUN, "--root", self.root, "--check"], capture_output=True, text=True, check=False)
        self.assert_refused(run, "no test program gone_test")

    def test_a_name_that_stands_twice_is_refused(self):
        self.assert_refused(self.run_list(CAUGHT, CAUGHT), "the name stands twice")

    def test_only_an_unknown_mutant_is_refused(self):
        self.assert_refused(self.run_list(CAUGHT, options=["--only", "gone"]), "--only gone: no such mutant")


if __name__ == "__main__":
    unittest.main()
