#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of tidy.py sees its defect, in a small tree that has it, and passes the same tree without it."""

import pathlib
import tempfile
import unittest

import tidy

HEAD = "// SPDX-License-Identifier: Apache-2.0\n// What lives in this file.\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, path, text):
        target = pathlib.Path(self.folder.name, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def assert_one(self, problems, *parts):
        self.assertEqual(len(problems), 1, problems)
        for part in parts:
            self.assertIn(part, problems[0])


class Rooms(Tree):
    def includes(self, path, *targets):
        self.write(path, HEAD + "".join(f"#include {target}\n" for target in targets))
        return tidy.check_rooms(self.folder.name)

    def test_downward_includes_pass(self):
        self.assertEqual(self.includes("transport/a.cc", '"transport/b.h"', "<vector>", "<nmmintrin.h>"), [])
        self.assertEqual(self.includes("dataplane/a.cc", '"transport/b.h"', "<chrono>", "<sys/socket.h>"), [])
        self.assertEqual(self.includes("plugin/a.cc", '"dataplane/b.h"', '"transport/b.h"'), [])
        self.assertEqual(self.includes("testbed/lab/a.bpf.c", '"transport/wire_layout.h"', '"testbed/lab/b.h"'), [])
        self.assertEqual(self.includes("tests/a.cc", '"plugin/b.h"', '"world.h"'), [])

    def test_upward_include_fails(self):
        self.assert_one(self.includes("transport/a.cc", '"dataplane/b.h"'), "transport/a.cc:3", "dataplane/b.h")

    def test_tests_are_seen_by_nobody(self):
        self.assert_one(self.includes("plugin/a.cc", '"tests/b.h"'), "plugin/a.cc:3")

    def test_the_harness_sees_the_plugin_only_by_its_public_header(self):
        self.assertEqual(self.includes("testbed/perf/a.cc", '"plugin/forgive.h"'), [])
        self.assert_one(self.includes("testbed/perf/a.cc", '"plugin/net.h"'), "testbed/perf/a.cc:3")

    def test_the_switch_sees_only_the_layout(self):
        self.assert_one(self.includes("testbed/lab/a.bpf.c", '"transport/wire.h"'), "transport/wire.h")

    def test_the_labs_programs_see_the_parser_of_numbers_and_the_switchs_program_does_not(self):
        self.assertEqual(self.includes("testbed/lab/a.cc", '"dataplane/parse_number.h"'), [])
        self.assert_one(self.includes("testbed/lab/a.bpf.c", '"dataplane/parse_number.h"'), "dataplane/parse_number.h")

    def test_the_relay_alone_sees_the_layout_of_its_prefix(self):
        self.assertEqual(self.includes("testbed/lab/relay/a.cc", '"dataplane/relay_layout.h"'), [])
        self.assert_one(self.includes("testbed/lab/a.cc", '"dataplane/relay_layout.h"'), "dataplane/relay_layout.h")

    def test_the_relay_does_not_see_the_driver_that_talks_to_it(self):
        self.assert_one(self.includes("testbed/lab/relay/a.cc", '"dataplane/relay_prefix.h"'), "relay_prefix.h")

    def test_a_clock_in_the_transport_fails(self):
        self.assert_one(self.includes("transport/a.h", "<chrono>"), "<chrono>")

    def test_a_system_header_in_the_transport_fails(self):
        self.assert_one(self.includes("transport/a.h", "<sys/socket.h>"), "<sys/socket.h>")
        self.assert_one(self.includes("transport/a.h", "<unistd.h>"), "<unistd.h>")

    def test_code_outside_every_room_fails(self):
        self.assert_one(self.includes("stray.cc", "<vector>"), "stray.cc")


class Comments(Tree):
    def test_a_sentence_passes(self):
        self.write("transport/a.cc", HEAD)
        self.write("a.cmake", "# Builds all of it.\n")
        self.write("a.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n\"\"\"Does this and that.\"\"\"\n")
        self.assertEqual(tidy.check_comments(self.folder.name), [])

    def test_code_first_fails(self):
        self.write("transport/a.cc", "// SPDX-License-Identifier: Apache-2.0\n#include <vector>\n")
        self.assert_one(tidy.check_comments(self.folder.name), "transport/a.cc:1", "sentence")

    def test_a_missing_licence_fails(self):
        self.write("transport/a.cc", "// What lives in this file.\n")
        self.assert_one(tidy.check_comments(self.folder.name), "SPDX")

    def test_a_long_function_is_seen(self):
        body = "int F() {\n" + "  ;\n" * 70 + "}\n" + "int G() {\n  ;\n}\n"
        self.assertEqual(list(tidy.long_functions(body)), [(1, 72)])


class Symbols(unittest.TestCase):
    def test_memory_and_abort_pass(self):
        self.assertEqual(tidy.banned_symbols("a.o:\n     U memcpy\n     U abort\n     U _Znwm\n     U timer_fd_name\n"), [])

    def test_each_kind_fails(self):
        for name in ["clock_gettime", "clock_gettime@GLIBC_2.17", "socket", "sendmmsg", "pthread_mutex_lock",
                     "__cxa_throw", "getenv", "rand", "getrandom", "time", "_ZNSt6chrono3_V212steady_clock3nowEv"]:
            problems = tidy.banned_symbols(f"a.o:\n     U {name}\n")
            self.assertEqual(len(problems), 1, name)
            self.assertIn("a.o", problems[0])

    def test_an_empty_listing_fails(self):
        self.assertEqual(len(tidy.banned_symbols("")), 1)


class Clauses(Tree):
    def setUp(self):
        super().setUp()
        self.write("transport/a.cc", HEAD + "void A::Run() {}\n// A::Gone() was here\n")
        self.write("tests/a_test.cc", HEAD + "TEST_F(A, Runs) {}\n")
        self.write("tests/test_b.py", "def test_b():\n  pass\n")

    def clauses(self, *rows):
        self.write("docs/protocol.md", "".join(row + "\n" for row in rows))
        return tidy.check_clauses(self.folder.name)

    def test_code_and_tests_that_exist_pass(self):
        self.assertEqual(self.clauses("| F-01 | It runs. | `transport/a.cc:A::Run` | `A.Runs`, `test_b.py::test_b` |"), [])

    def test_missing_code_fails(self):
        self.assert_one(self.clauses("| F-01 | x | `transport/a.cc:A::Stop` | `A.Runs` |"), "F-01", "A::Stop")
        self.assert_one(self.clauses("| F-01 | x | `transport/b.cc:A::Run` | `A.Runs` |"), "no such file")

    def test_code_in_a_comment_is_no_code(self):
        self.assert_one(self.clauses("| F-01 | x | `transport/a.cc:A::Gone` | `A.Runs` |"), "A::Gone")

    def test_a_missing_test_fails(self):
        self.assert_one(self.clauses("| F-01 | x | `transport/a.cc:A::Run` | `A.Walks` |"), "A.Walks")

    def test_an_empty_cell_fails(self):
        self.assert_one(self.clauses("| F-01 | x | `transport/a.cc:A::Run` | |"), "names no test")
        self.assert_one(self.clauses("| F-01 | x | | `A.Runs` |"), "names no code")

    def test_a_skipped_number_fails(self):
        self.assert_one(self.clauses("| F-02 | x | `transport/a.cc:A::Run` | `A.Runs` |"), "F-01")

    def test_a_broken_row_or_no_row_fails(self):
        self.assert_one(self.clauses("| F-01 | x | `transport/a.cc:A::Run` |"), "four cells")
        self.assert_one(self.clauses("Nothing."), "no clause")


class Links(Tree):
    def test_links_that_lead_somewhere_pass(self):
        self.write("docs/a.md", "# One Heading\n[b](b.md#two-words) [c](#one-heading) [d](https://example.com/x)\n")
        self.write("docs/b.md", "## Two `words`\n")
        self.assertEqual(tidy.check_links(self.folder.name), [])

    def test_a_dead_link_fails(self):
        self.write("README.md", "[a](docs/gone.md)\n")
        self.assert_one(tidy.check_links(self.folder.name), "docs/gone.md")

    def test_a_dead_anchor_fails(self):
        self.write("README.md", "# Here\n[a](#there)\n")
        self.assert_one(tidy.check_links(self.folder.name), "#there")


if __name__ == "__main__":
    unittest.main()
