# SPDX-License-Identifier: Apache-2.0
# What a program said last.


def last_line(path):
    """The last line of a log that is not empty; empty if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        return ""
    return lines[-1] if lines else ""
