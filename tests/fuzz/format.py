"""What the harness needs to know of a format."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.mutators import Damage, damaged_text


@dataclass(frozen=True)
class Format:
    """A small valid file, or several in a folder, and the public function that reads them."""

    name: str
    files: dict[str, bytes]
    read: Callable[[Path, random.Random], object]
    damage: Damage = damaged_text
    other: dict[str, Damage] = field(default_factory=dict)  # of files that are damaged in another way
    kept: tuple[str, ...] = ()  # files that are not damaged
    seconds: float = 1.0  # of computing that an input may take
    share: int = 4  # how often it is drawn, compared with others

    def damage_of(self, name: str) -> Damage:
        return self.other.get(name, self.damage)
