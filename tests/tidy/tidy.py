#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of this house that a compiler does not see: rooms, symbols, first lines, the clause table, links.

tidy.py rooms | comments | clauses | links ROOT    checks a source tree
tidy.py symbols LIBRARY [NM]                       checks what libforgive_transport.a calls
Prints one line a problem and exits with 1 if there is one; warnings do not count.
"""

import os
import pathlib
import re
import subprocess
import sys

CODE_SUFFIXES = {".cc", ".h", ".c"}
COMMENTED_SUFFIXES = CODE_SUFFIXES | {".py", ".sh", ".cmake"}
SKIPPED_FOLDERS = {".git", "build", "corpus", "__pycache__"}
MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 60

# What each room may include with quotes, most specific room first. None: everything.
ROOMS = [
    ("tests/", None),
    ("transport/", ["transport/"]),
    ("dataplane/", ["dataplane/", "transport/"]),
    ("plugin/", ["plugin/", "dataplane/", "transport/"]),
    ("testbed/entry_lib/", ["dataplane/parse_number.h"]),
    ("testbed/simulator/", ["testbed/simulator/", "testbed/entry_lib/", "transport/", "dataplane/parse_number.h"]),
    ("testbed/perf/", ["testbed/perf/", "testbed/entry_lib/", "plugin/forgive.h", "dataplane/", "transport/"]),
    ("testbed/lab/relay/", ["testbed/lab/relay/", "testbed/entry_lib/", "transport/wire_layout.h",
                            "dataplane/relay_layout.h", "dataplane/parse_number.h"]),
    ("testbed/lab/", ["testbed/lab/", "transport/wire_layout.h", "dataplane/parse_number.h"]),
    ("testbed/", ["testbed/", "plugin/forgive.h", "dataplane/", "transport/"]),
]

# The standard headers that bring a clock, a thread, a lock, chance, a file or an exception into the transport.
BANNED_STANDARD_HEADERS = {
    "chrono", "thread", "mutex", "shared_mutex", "condition_variable", "future", "semaphore", "latch", "barrier",
    "stop_token", "random", "iostream", "ostream", "istream", "fstream", "sstream", "filesystem", "ctime", "locale",
    "stdexcept", "exception", "typeinfo", "csignal", "cerrno", "system_error",
}

# What libforgive_transport.a must not call; whole symbol names, after removing a version and a leading "__".
BANNED_SYMBOLS = re.compile(
    r"^(clock_\w+|gettimeofday|time|times|nanosleep|usleep|sleep|"
    r"socket|bind|connect|listen|accept4?|send(to|msg|mmsg)?|recv(from|msg|mmsg)?|poll|ppoll|select|epoll_\w+|"
    r"pthread_\w+|sem_\w+|cxa_throw|cxa_allocate_exception|cxa_rethrow|getenv|secure_getenv|setenv|putenv|"
    r"s?rand(om)?(_r)?|[delmn]rand48(_r)?|arc4random\w*|getrandom|getentropy|"
    r"open(at)?(64)?|read|write|fopen(64)?|mmap(64)?|syscall|fork|dlopen|"
    r"_ZNSt6chrono\w+|_ZNSt6thread\w+|_ZNSt13random_device\w+)$")


def files(root, suffixes):
    """Every file below the root with one of the suffixes, as (relative path, text)."""
    for folder, names, leaves in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED_FOLDERS)
        for leaf in sorted(leaves):
            path = pathlib.Path(folder, leaf)
            if path.suffix in suffixes and not path.is_symlink():
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


# ---- Rooms ----

def room_of(path):
    """The room's allowed includes, or False if the path is in no room."""
    for room, allowed in ROOMS:
        if path.startswith(room):
            return allowed
    return False


def include_problem(path, allowed, bracket, target):
    """Why this include is wrong, or None."""
    if bracket == '"':
        if path.endswith(".bpf.c"):
            allowed = [path.rsplit("/", 1)[0] + "/", "transport/wire_layout.h"]
        if not any(target.startswith(prefix) for prefix in allowed):
            return f'includes "{target}"; this room sees only {", ".join(allowed)}'
        return None
    if not path.startswith("transport/"):
        return None
    if target in BANNED_STANDARD_HEADERS:
        return f"includes <{target}>: time, threads, chance, files and exceptions stay outside the transport"
    # Only the C++ standard library, whose headers have no suffix, and the compiler's own intrinsics.
    if "/" in target or ("." in target and not target.endswith("intrin.h")):
        return f"includes <{target}>: the transport sees only the C++ standard library"
    return None


def check_rooms(root):
    """Includes go downwards only."""
    problems = []
    for path, text in files(root, CODE_SUFFIXES):
        allowed = room_of(path)
        if allowed is False:
            problems.append(f"{path}: lies in no room")
        if not allowed:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            problem = match and include_problem(path, allowed, match.group(1), match.group(2))
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    return problems


# ---- First lines and sizes ----

def first_comment(text):
    """The text of the first comment that is neither a shebang nor a licence; None if code comes first."""
    for line in text.splitlines():
        if line.startswith("#!") or "SPDX-License-Identifier" in line or not line.strip():
            continue
        match = re.match(r'\s*(//|#|/\*|"""|r""")\s*(.*)', line)
        if not match or re.match(r"#\s*(include|define|if|pragma)", line):
            return None
        return match.group(2).strip()
    return None


def long_functions(text):
    """(line, length) of every function that does not fit a screen, by indentation."""
    begin, indent = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        opens = re.match(r"( {0,2})[A-Za-z~].*\)[^;]*\{$", line)
        if begin is None and opens and not re.match(r"\s*(namespace|class|struct|enum|extern|if|for|while)\b", line):
            begin, indent = number, opens.group(1)
        elif begin is not None and line.rstrip() in (indent + "}", indent + "};"):
            if number - begin + 1 > MAX_FUNCTION_LINES:
                yield begin, number - begin + 1
            begin = None


def check_comments(root):
    """The first line says what lives in a file. Sizes are a guide: they only warn."""
    problems = []
    for path, text in files(root, COMMENTED_SUFFIXES):
        comment = first_comment(text)
        if comment is None or len(comment.split()) < 3:
            problems.append(f"{path}:1: the first line does not say in a sentence what lives here")
        if path.endswith((".cc", ".h", ".c", ".py")) and "SPDX-License-Identifier:" not in "".join(text.splitlines(True)[:3]):
            problems.append(f"{path}:1: no SPDX-License-Identifier line")
        if pathlib.Path(path).suffix not in CODE_SUFFIXES:
            continue
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            print(f"warning: {path}: {lines} lines (guide: {MAX_FILE_LINES})")
        for begin, length in long_functions(text):
            print(f"warning: {path}:{begin}: a function of {length} lines (guide: {MAX_FUNCTION_LINES})")
    return problems


# ---- Symbols ----

def check_symbols(library, nm="nm"):
    """The transport calls no clock, socket, thread, environment, chance or throw."""
    run = subprocess.run([nm, "-u", library], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return [f"{library}: nm failed: {run.stderr.strip()}"]
    return banned_symbols(run.stdout)


def banned_symbols(listing):
    """Problems in the output of nm -u."""
    problems, member, seen = [], "?", 0
    for line in listing.splitlines():
        if line.rstrip().endswith(":"):
            member = line.strip().rstrip(":")
        match = re.match(r"\s*[UwvV]\s+(\S+)", line)
        if not match:
            continue
        seen += 1
        name = match.group(1).split("@")[0]
        if BANNED_SYMBOLS.match(name) or BANNED_SYMBOLS.match(name.removeprefix("__")):
            problems.append(f"{member}: calls {name}, which the transport may not")
    if seen == 0:
        problems.append("no undefined symbol at all: this is not the transport's library")
    return problems


# ---- The clause table ----

ROW = re.compile(r"^\|\s*(F-\d+)\s*\|(.*)\|\s*$")


def test_names(root):
    """Every Suite.Name of a gtest, and every file.py::name of a pytest, below tests/."""
    names = set()
    for path, text in files(pathlib.Path(root, "tests"), CODE_SUFFIXES | {".py"}):
        if path.endswith(".py"):
            leaf = path.rsplit("/", 1)[-1]
            names |= {f"{leaf}::{name}" for name in re.findall(r"^\s*def (test_\w+)", text, re.M)}
        else:
            names |= {f"{suite}.{name}" for suite, name in
                      re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", text, re.M)}
    return names


def symbol_problem(root, symbol):
    """Why `file:Name` or `file:Class::Name` names no code, or None."""
    file, _, name = symbol.partition(":")
    path = pathlib.Path(root, file)
    if not name or not path.is_file():
        return f"{symbol}: no such file"
    text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    pattern = re.escape(name) if "::" in name else r"\b" + re.escape(name)
    # In a source file a function, as it is defined or, without a class, declared; in a header any name.
    if path.suffix == ".cc":
        pattern += r"\("
    else:
        pattern += r"\b"
    return None if re.search(pattern, text) else f"{symbol}: no such name in {file}"


def check_clauses(root, document="docs/protocol.md"):
    """Every clause names code and tests that exist."""
    path = pathlib.Path(root, document)
    if not path.is_file():
        return [f"{document}: missing"]
    problems, expected, tests = [], 1, test_names(root)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = ROW.match(line)
        if not row:
            if line.startswith("| F-"):
                problems.append(f"{document}:{number}: a clause's row has four cells")
            continue
        where = f"{document}:{number}: {row.group(1)}"
        if row.group(1) != f"F-{expected:02}":
            problems.append(f"{where}: the next clause is F-{expected:02}")
        expected += 1
        cells = [cell.strip() for cell in row.group(2).split("|")]
        if len(cells) != 3:
            problems.append(f"{where}: a clause's row has four cells")
            continue
        symbols, named = re.findall(r"`([^`]+)`", cells[1]), re.findall(r"`([^`]+)`", cells[2])
        if not symbols:
            problems.append(f"{where}: names no code")
        if not named:
            problems.append(f"{where}: names no test")
        problems += [f"{where}: {p}" for p in (symbol_problem(root, symbol) for symbol in symbols) if p]
        problems += [f"{where}: no test {name}" for name in named if name not in tests]
    if expected == 1:
        problems.append(f"{document}: no clause at all")
    return problems


# ---- Links ----

def anchors(text):
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#{1,6}\s+(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-") for heading in headings}


def check_links(root):
    """Relative links in documents lead somewhere."""
    problems = []
    for path, text in files(root, {".md"}):
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)", prose):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            file, _, anchor = target.partition("#")
            goal = pathlib.Path(root, path).parent / file if file else pathlib.Path(root, path)
            if not goal.exists():
                problems.append(f"{path}: dead link {target}")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal.read_text(encoding="utf-8")):
                problems.append(f"{path}: {target}: no such heading")
    return problems


CHECKS = {"rooms": check_rooms, "comments": check_comments, "clauses": check_clauses, "links": check_links,
          "symbols": check_symbols}


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in CHECKS:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if not os.path.exists(arguments[1]):
        print(f"tidy: {arguments[1]} does not exist: name the source tree, or the library after the build",
              file=sys.stderr)
        return 2
    problems = CHECKS[arguments[0]](*arguments[1:])
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
