# SPDX-License-Identifier: Apache-2.0
# What ends the demo early: an error for the user in one line, or an interrupt.


class DemoError(Exception):
    """One line: what is wrong with which thing, and the way out."""


class Interrupted(Exception):
    """A signal asked the demo to end."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number
