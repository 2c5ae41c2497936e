# SPDX-License-Identifier: Apache-2.0
# How every Python program of the testbed begins and ends: standard streams that work, words and numbers as people
# write them, one line instead of a traceback. Only what Python brings along: it is loaded before anything else.
import argparse
import contextlib
import io
import os
import signal
import sys

STANDARD_OUTPUT = "standard output"
EXIT_FAILED = 1


class OutputError(OSError):
    """Standard output cannot be written: a full device, or a reader that has gone."""


class _Output(io.TextIOBase):
    """Standard output whose errors say that it is standard output; they would pass for another file's."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    @staticmethod
    @contextlib.contextmanager
    def _named():
        try:
            yield
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror, STANDARD_OUTPUT) from error

    def write(self, text):
        with self._named():
            return self._stream.write(text)

    def flush(self):
        with self._named():
            self._stream.flush()

    def isatty(self):
        return self._stream.isatty()

    def fileno(self):
        return self._stream.fileno()

    @property
    def encoding(self):
        return self._stream.encoding


def _open_standard_streams():
    """A closed standard descriptor would go to the next file that is opened, and that file would get our text."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))
        # What the terminal's character set lacks is shown as a question mark.
        getattr(sys, name).reconfigure(errors="replace")
    sys.stdout = _Output(sys.stdout)


def begin():
    """Call it before any other import. An interrupt ends a program that has not begun anything without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_standard_streams()


def whole_number(text):
    """The number that decimal digits and nothing else spell; None for anything else that int() would take too."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def number_between(least, most):
    """A type for argparse's options: such a number, or the line that says which there are."""
    def convert(text):
        number = whole_number(text)
        if number is None or not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text}: give a number from {least} to {most}")
        return number
    return convert


def empty_word(words):
    """The first option whose value is empty, or the empty word itself; None if there is none."""
    for place, word in enumerate(words):
        if word == "":
            return words[place - 1] if place and words[place - 1].startswith("--") else "''"
        if word.startswith("--") and word.endswith("="):
            return word[:-1]
    return None


class Parser(argparse.ArgumentParser):
    """Says in one line, as a `failure`, what argparse would say with a usage text; refuses values that are empty."""

    def __init__(self, *, failure, **options):
        super().__init__(**options)
        self._failure = failure

    def error(self, message):
        raise self._failure(f"{message} ({self.prog} --help lists the options)")

    def parse_args(self, args=None, namespace=None):
        empty = empty_word(sys.argv[1:] if args is None else args)
        if empty is not None:
            raise self._failure(f"{empty}: its value is empty: give one, or leave it out")
        return super().parse_args(args, namespace)


def run(name, main):
    """Calls main with the command line's words, and makes sure that what was printed has arrived. Returns the exit
    status: main's, or 1 after one line."""
    try:
        try:
            return main(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except OutputError as error:
        # What is left in the buffer must not be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"{name}: {STANDARD_OUTPUT}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
