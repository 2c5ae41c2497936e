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
    """Bytes into a file; what stood there stays until all of them have arrived. As whole_file.h: devices and pipes are
    written to and stay what they are; a link's file is written, and the link stays."""
    plain = os.path.isfile(path) or not os.path.exists(path)
    target = os.path.realpath(path)
    place = target + ".new" if plain else path
    try:
        with named(path):
            with open(place, "wb") as file:
                file.write(content)
            if plain:
                os.replace(place, target)
    except OSError:
        if plain:
            with contextlib.suppress(OSError):
                os.remove(place)
        raise


def keep_lines(path, wanted, header=""):
    """Leaves the header and the lines that are wanted: `wanted` gets each without its end, but not a last line that has
    none: its writer was ended within it. A missing file has no lines."""
    lines = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line + "\n" for line in file.read().split("\n")[:-1] if wanted(line)]
    write_whole(path, (header + "".join(lines)).encode())
