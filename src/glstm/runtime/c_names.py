"""Names for exported C: identifiers that neither C nor C++ nor a standard header uses."""

import re

from glstm.errors import UserError

# Of C up to C23 and of C++ up to C++20; those with a capital or an underscore in front cannot be asked for.
KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile
    wchar_t while xor xor_eq
"""
# Standard headers: NAME.h would be included instead of one of these.
HEADERS = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math memory new setjmp signal stdalign stdarg
    stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings tgmath threads time uchar
    unistd wchar wctype
"""
# What standard headers include in turn, of one C library or another: with -I they would find NAME.h instead.
INSIDE = "alloca endian features fcntl malloc newlib pthread reent sched select semaphore stubs syslimits values"
LONGEST = 60  # characters
# Macros, types and objects of the standard library, and main.
STANDARD = """
    errno imaginary linux main noreturn offsetof stderr stdin stdout unix va_arg va_copy va_end va_list va_start
    fpos_t size_t ssize_t ptrdiff_t time_t clock_t div_t int8_t int16_t int32_t int64_t
    uint8_t uint16_t uint32_t uint64_t
"""


def check_name(name: str) -> None:
    """Of a network: its two files have it, and everything in them begins with it."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError(f"a name for C is made of lower-case letters, digits and _, such as digits, not {name!r:.50}")
    if len(name) > LONGEST:
        raise UserError(f"a name for C has at most {LONGEST} characters, not {len(name)}: files and lines have limits")
    why = None
    if name in KEYWORDS.split():
        why = "a keyword of C or C++"
    elif name in HEADERS.split():
        why = f"the name of the standard header {name}.h"
    elif name in INSIDE.split():
        why = f"the name of {name}.h, which headers of the system include"
    elif name in STANDARD.split():
        why = "a name of the standard library"
    elif name == "glstm" or name.startswith("glstm_"):
        why = "a name that the exported files use themselves"
    elif "__" in name:
        why = "a name with two underscores in a row, which C++ keeps for itself"
    if why is not None:
        raise UserError(f"{name} is {why}: choose another, such as digits")
