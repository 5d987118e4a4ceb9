"""A program: runs the README's first python block, as somebody does who has just installed glstm, and says on what.

With the word `engine` it fails where the C engine was not built or cannot be loaded.
"""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def first_block() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"{README} has no python block"
    return found[1]


if __name__ == "__main__":
    exec(compile(first_block(), str(README), "exec"), {})
    from glstm.ops import cpu

    print(cpu.status())
    if "engine" in sys.argv and cpu.engine() is None:
        sys.exit("the C engine should be here")
