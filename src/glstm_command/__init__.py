"""The console script `glstm`. It stands beside the package, because importing any of that imports torch, and what torch
is to read from the environment must be there before."""

import os


def main() -> None:
    # Threads that wait for each other give way soon: left to themselves they spin, and two trainings on the same cores
    # hold each other up. OpenMP reads this once, when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    from glstm.__main__ import main

    main()
