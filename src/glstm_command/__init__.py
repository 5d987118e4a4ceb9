"""The console script `glstm`. It is outside the package, because importing the package imports torch, and the
environment variables that torch reads must be set before."""

import os


def main() -> None:
    if "_GLSTM_COMPLETE" in os.environ:  # a shell asks what could come next
        try:
            from glstm_command.completion import complete
        except ModuleNotFoundError:  # without typer there is no command line: nothing can come next
            return
        complete()
    # Waiting threads stop spinning soon: by default they spin long, and two trainings on the same cores slow each other
    # down. OpenMP reads this once, when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    from glstm.__main__ import main

    main()
