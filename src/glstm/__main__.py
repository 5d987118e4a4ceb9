"""`python -m glstm` and the console script: the command line, or one sentence if its packages are not installed."""

import sys

from glstm.extras import MissingPackage, needed_by


def main() -> None:
    try:
        with needed_by("the command glstm"):
            from glstm.cli.main import main
    except MissingPackage as error:
        if sys.argv[1:] == ["--version"]:  # whether the engine is there is worth knowing without a command line, too
            from glstm.ops.cpu import status

            print(status())
            return
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    main()


if __name__ == "__main__":
    main()
