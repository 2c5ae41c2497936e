# SPDX-License-Identifier: Apache-2.0
"""python -m forgive_torch: what is installed, in one line each; exit status 1 if something is missing."""
import sys

from . import ForgiveError, __version__, find_library, load, why_no_torch


def main() -> int:
    print(f"forgive_torch {__version__}")
    status = 0
    try:
        load()
        print(f"library: {find_library()}")
    except ForgiveError as error:
        print(f"library: {error}")
        status = 1
    try:
        import torch
        print(f"torch: {torch.__version__}, distributed {'yes' if torch.distributed.is_available() else 'no'}")
    except (ImportError, OSError) as error:
        print(f"torch: {why_no_torch(error)}")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
