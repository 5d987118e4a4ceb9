"""`python -m glstm`, and what the console script does: the command line, or one sentence where it is not installed."""

import sys

from glstm.extras import MissingPackage, needed_by


def main() -> None:
    try:
        with needed_by("the command glstm"):
            from glstm.cli.main import main
    except MissingPackage as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    main()


if __name__ == "__main__":
    main()
