# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all, and errors that name the file they come from."""
import contextlib
import os


@contextlib.contextmanager
def named(path):
    """What a write or a close raises does not say which file it is about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def write_whole(path, content):
    """Bytes into a file; what stood there stays until all of them have arrived."""
    beside = path + ".new"
    try:
        with named(path):
            with open(beside, "wb") as file:
                file.write(content)
            os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(beside)
        raise


def keep_lines(path, wanted, header=""):
    """Leaves the header and the lines that are wanted: `wanted` gets each without its end, but not a last line that has
    none: its writer was ended within it. A missing file has no lines."""
    lines = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line + "\n" for line in file.read().split("\n")[:-1] if wanted(line)]
    write_whole(path, (header + "".join(lines)).encode())
