"""Ways of damaging a file: any bytes, lines of text, JSON by its structure, tensors by their description, archives."""

import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

ODD = [
    "NaN", "nan", "?", "1e999", "-1e999", "inf", "99999999999999999999999999", "1e-400", "-0", "0x10", "1_000",
    "١٢٣", "é", "\u2028", "\x00", "\ufeff", "\t", "\r", "\n", " ", '"', "'", ",", ":", "(", ")", "((", "))", ";",
    "@", "#", "%", "{", "}", ",,,,,,", "::::", "=1+1", "true", "false", "null", "None", "now", "0001-01-01",
    "9999-12-31T23:59:59", "2024-02-30", "2024-01-01T00:00:00+99:00", "\n@data\n", "\n@classLabel true\n",
    "\n@classLabel false\n", "\n@timestamps true\n", "\n@targetlabel true\n", "\n@dimensions 99999999\n",
    "\n@seriesLength -1\n", "\n@equalLength true\n", "{'descr': '", "O8", "'shape': (999999999999,)", "<f8", ">U4",
    "<U0", "<U999999999", "<M8[ns]",
]  # fmt: skip
LYING = (0, 1, 2**16, 2**31 - 1, 2**32 - 1)  # sizes for fields of 32 bits
# In the place of a value in JSON; as text, because some of them are not what Python would write.
INSTEAD = [
    "0", "-1", "1", "2.5", "-0.0", "1e999", "-1e308", "NaN", "Infinity", "-Infinity", "1e-320", "123456789012345678",
    "-9223372036854775809", "18446744073709551617", "9" * 400, "7" * 5000, "1" + "0" * 4299, "null", "true", "false",
    "[]", "{}", '""', '"a"', '"1"', '"../../outside"', '"/etc/passwd"', '"\\u0000"', '"\\ud800"', '"<script>"',
    '"' + "long " * 20_000 + '"', "[" * 5000 + "]" * 5000, "[" * 200 + "]" * 200, '{"a":' * 3000 + "1" + "}" * 3000,
    "[1" + ",1" * 5000 + "]", "[null]", "[[]]", "[{}]", '{"class": "os:system"}', '{"class": "torch.nn:Linear"}',
    '{"class": 5}', "20000000", "6000", "-6000", "1e9", "[1e300, 1e300]", '["a", "b"]', "4294967296", "[-5, 5]",
]  # fmt: skip
BOMB = gzip.compress(bytes(2**27), 9)  # 130 KB that unpack to 128 MiB
MARK = "@the damaged place@"

Damage = Callable[[bytes, random.Random], bytes]


def changed(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content) + 1)
    end = min(len(content), at + draw.choice((1, 1, 2, 8, 100)))
    lines = content.split(b"\n")
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    odd = draw.choice(ODD).encode()
    kind = draw.randrange(10)
    if kind == 0:  # flips of bits
        return content[:at] + bytes(byte ^ 1 << draw.randrange(8) for byte in content[at:end]) + content[end:]
    if kind == 1:
        return content[:at] + draw.randbytes(end - at) + content[end:]
    if kind == 2:
        return content[:at] + content[end:]
    if kind == 3:
        return content[:at] + odd + content[at:]
    if kind == 4:  # in the place of a word or number
        while end < len(content) and content[end : end + 1].isalnum():
            end += 1
        while at > 0 and content[at - 1 : at].isalnum():
            at -= 1
        return content[:at] + odd + content[end:]
    if kind == 5:
        return content[:at]
    if kind == 6:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 7:
        del lines[one]
    elif kind == 8:
        lines.insert(one, lines[other])
    else:  # a very long line
        lines[one] = lines[one] + draw.choice((b",1", b"1", b":", b",", odd)) * draw.choice((10, 1000, 100_000))
    return b"\n".join(lines)


def damaged_text(content: bytes, draw: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = changed(content, draw)
    return content


def damaged_bytes(content: bytes, draw: random.Random) -> bytes:
    """The same; a gzip stream may also become one of other content, or of very much."""
    if content[:2] == b"\x1f\x8b" and draw.random() < 0.3:
        if draw.random() < 0.02:
            return BOMB
        try:
            return gzip.compress(damaged_text(gzip.decompress(content), draw), 1, mtime=0)
        except (OSError, EOFError):
            return content
    if draw.random() < 0.2 and len(content) >= 8:  # numbers of 32 bits where some may be
        at = 4 * draw.randrange(min(len(content) // 4, 64))
        return content[:at] + struct.pack(draw.choice("<>") + "I", draw.choice(LYING)) + content[at + 4 :]
    if draw.random() < 0.05:  # a part of it in another place
        one, other = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        at = draw.randrange(len(content) + 1)
        return content[:at] + content[one:other] + content[at:]
    return damaged_text(content, draw)


def damaged_zip(content: bytes, draw: random.Random) -> bytes:
    """Changes of the archive or of an entry in it, or of the sizes that it says its entries have."""
    kind = draw.randrange(4)
    if kind == 0:
        return damaged_bytes(content, draw)
    if kind == 1:
        for mark, offset in ((b"PK\x03\x04", 18), (b"PK\x01\x02", 20)):
            at = content.find(mark, draw.randrange(max(1, len(content) // 2)))
            if at >= 0 and draw.random() < 0.7:
                at += offset + 4 * draw.randrange(2)
                size = draw.choice((*LYING, struct.unpack_from("<I", content, at)[0] + 1))
                content = content[:at] + struct.pack("<I", size % 2**32) + content[at + 4 :]
        return content
    file = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
            unlucky = draw.randrange(max(1, len(old.namelist())))
            for number, name in enumerate(old.namelist()):
                entry = old.read(name)
                new.writestr(name, changed(entry, draw) if number == unlucky else entry)
    except (zipfile.BadZipFile, EOFError, OSError):
        return content
    return file.getvalue()


def damaged_json(content: bytes, draw: random.Random) -> bytes:
    """A value in it replaced, removed, doubled or exchanged; now and then any change of its text."""
    if draw.random() < 0.1:
        return damaged_text(content, draw)
    value = json.loads(content)
    for _ in range(draw.choice((1, 1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        inside, key = draw.choice(places)
        kind = draw.randrange(12)
        if kind == 0:
            del inside[key]
        elif kind == 1:
            other, name = draw.choice(places)
            inside[key] = json.loads(json.dumps(other[name]))
        elif kind == 2 and isinstance(inside, dict):
            inside[draw.choice(("a", "class", "", "x" * 1000, "steps", "__class__"))] = 1
        elif kind == 3 and isinstance(inside, list):
            inside.insert(key, inside[key])
        elif kind == 4 and isinstance(inside[key], int | float):
            inside[key] = inside[key] * draw.choice((-1, 0.5, 2, 1000, 10**6)) + draw.choice((0, 0, 1, -1))
        else:
            inside[key] = MARK
            text = json.dumps(value).replace(f'"{MARK}"', draw.choice(INSTEAD), 1)
            return (_doubled(text, draw) if draw.random() < 0.02 else text).encode()
    return json.dumps(value).encode()


def _doubled(text: str, draw: random.Random) -> str:
    """With a key that is there twice."""
    at = text.find(',"' if draw.random() < 0.5 else ', "')
    return text if at < 0 else f'{text[:at]}, "format": 2, "format": 3{text[at:]}'


def _places(value: Any) -> Any:
    """(container, key) of everything inside, containers near the top as often as the many numbers below."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(len(value), 20)):
            yield value, key
            yield from _places(value[key])


def damaged_tensors(content: bytes, draw: random.Random) -> bytes:
    """A safetensors file: its bytes, its description, or numbers in it that are legal and odd."""
    kind = draw.randrange(5)
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    if kind == 0:
        return damaged_bytes(content, draw)
    if kind == 1 and data:
        odd = struct.pack("<f", draw.choice((float("nan"), float("inf"), 1e38, -1e38, 1e-42, 0.0, -1.0, 1e6)))
        at = 4 * draw.randrange(max(1, len(data) // 4))
        return content[: 8 + size] + data[:at] + odd * draw.choice((1, 1, 8)) + data[at + 4 :]
    if kind == 2:
        said = json.loads(header)
        inside = said.get("__metadata__", {})
        nested = [name for name, text in inside.items() if text[:1] in "[{"]
        if nested and draw.random() < 0.9:
            name = draw.choice(nested)
            inside[name] = damaged_json(inside[name].encode(), draw).decode(errors="replace")
        elif inside:
            inside[draw.choice(list(inside))] = draw.choice((*ODD, "9" * 5000, "-1", "1.5", "²", "1e3", "99999999999"))
        return framed(json.dumps(said).encode(), data)
    if kind == 3:  # other shapes and types of as many bytes, other names
        said = json.loads(header)
        names = [name for name in said if name != "__metadata__"]
        name = draw.choice(names)
        one = said[name]
        match draw.randrange(6):
            case 0:
                one["shape"] = one["shape"][::-1]
            case 1:
                one["shape"] = [*one["shape"], 1]
            case 2:
                one["dtype"] = draw.choice(("I32", "U32", "BF16", "F16", "F64", "I64", "BOOL", "U8", "F8_E4M3", "C64"))
            case 3:
                said[draw.choice(("extra.best.a", "a", name + "x", "model.", ""))] = said.pop(name)
            case 4:
                one["data_offsets"] = [draw.choice((0, 4, -1, 2**63)), draw.choice((0, 4, len(data), 2**63))]
            case _:
                other = said[draw.choice(names)]
                one["shape"], other["shape"] = other["shape"], one["shape"]
        return framed(json.dumps(said).encode(), data)
    return framed(damaged_json(header, draw), data)


def framed(header: bytes, data: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data
