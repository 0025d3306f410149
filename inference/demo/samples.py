"""Real bytes of a dozen and more kinds of file, built here so that nothing has to be shipped or fetched.

About a third begin with a byte of 128 or more: those are the ones on which the demo's third version fails.
"""

import bz2
import gzip
import importlib.util
import io
import json
import lzma
import marshal
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

_WORDS = [
    "fleet", "canary", "rollout", "replica", "model", "tensor", "batch", "quota", "tenant", "signal", "budget",
    "latency", "worker", "plane", "console", "gate", "verdict", "lease", "snapshot", "weight", "promote", "abort",
    "warm", "drain", "probe",
]  # fmt: skip


def build(seed: int = 7) -> dict[str, bytes]:
    """name -> content, the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311  demo bytes, no secret
    return {name: make(chance) for name, make in _KINDS.items()}


def _sentence(chance: random.Random, words: int = 12) -> str:
    return " ".join(chance.choices(_WORDS, k=words)).capitalize() + "."


def _python(chance: random.Random) -> bytes:
    names = chance.sample(_WORDS, 6)
    functions = "\n\n".join(
        f"def {name}(items: list[int]) -> int:\n"
        f'    """{_sentence(chance, 6)}"""\n'
        f"    total = 0\n    for item in items:\n        if item % {chance.randint(2, 9)} == 0:\n"
        f"            total += item\n    return total\n"
        for name in names
    )
    head = f'"""{_sentence(chance)}"""\n\nimport os\nimport sys\n\n\n'
    tail = f'\n\nif __name__ == "__main__":\n    print({names[0]}([1, 2, 3]))\n'
    return (head + functions + tail).encode()


def _javascript(chance: random.Random) -> bytes:
    name = chance.choice(_WORDS)
    lines = [
        "'use strict';",
        "const fs = require('fs');",
        f"async function {name}(url, options = {{}}) {{",
        "  const response = await fetch(url, options);",
        "  if (!response.ok) { throw new Error(`status ${response.status}`); }",
        "  return response.json();",
        "}",
        f"module.exports = {{ {name} }};",
    ]
    return "\n".join(lines * 6).encode()


def _json(chance: random.Random) -> bytes:
    rows = [{"id": n, "name": chance.choice(_WORDS), "share": round(chance.random(), 4)} for n in range(40)]
    return json.dumps({"items": rows, "next": None}, indent=2).encode()


def _html(chance: random.Random) -> bytes:
    items = "".join(f"<li><a href='/{word}'>{word}</a></li>\n" for word in chance.sample(_WORDS, 10))
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head><meta charset='utf-8'><title>Fleet</title></head>\n"
        f"<body><h1>{_sentence(chance, 4)}</h1>\n<ul>\n{items}</ul>\n<p>{_sentence(chance, 40)}</p></body></html>\n"
    ).encode()


def _markdown(chance: random.Random) -> bytes:
    parts = [
        f"## {_sentence(chance, 3)}\n\n{_sentence(chance, 30)}\n\n- {_sentence(chance, 5)}\n"
        for _ in range(6)
    ]
    return ("# Operations guide\n\n" + "\n".join(parts) + "\n```bash\nmake up\n```\n").encode()


def _csv(chance: random.Random) -> bytes:
    rows = [f"{n},{chance.choice(_WORDS)},{chance.random():.4f},{chance.randint(0, 999)}" for n in range(80)]
    return ("id,name,share,count\n" + "\n".join(rows) + "\n").encode()


def _shell(chance: random.Random) -> bytes:
    lines = [
        f'echo "{_sentence(chance, 5)}"\nif [ -f /tmp/{word} ]; then\n  rm -f "/tmp/{word}"\nfi'
        for word in chance.sample(_WORDS, 6)
    ]
    return ("#!/bin/bash\nset -euo pipefail\n\n" + "\n".join(lines) + "\n").encode()


def _c(chance: random.Random) -> bytes:
    functions = "\n".join(
        f"static int {word}(const char *text, size_t length)\n{{\n    int sum = 0;\n"
        "    for (size_t i = 0; i < length; i++)\n        sum += text[i];\n    return sum;\n}\n"
        for word in chance.sample(_WORDS, 5)
    )
    head = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
    return (head + functions + "\nint main(void)\n{\n    return 0;\n}\n").encode()


def _sql(chance: random.Random) -> bytes:
    tables = [
        f"CREATE TABLE {word} (\n  id INTEGER PRIMARY KEY,\n  name VARCHAR(80) NOT NULL\n);\n"
        f"INSERT INTO {word} (id, name) VALUES ({chance.randint(1, 99)}, '{word}');"
        for word in chance.sample(_WORDS, 6)
    ]
    return ("BEGIN;\n" + "\n".join(tables) + "\nCOMMIT;\n").encode()


def _pdf(chance: random.Random) -> bytes:
    stream = zlib.compress(f"BT /F1 24 Tf 72 700 Td ({_sentence(chance)}) Tj ET".encode())
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream),
    ]
    body, offsets = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return (
        body
        + b"xref\n0 5\n0000000000 65535 f \n%strailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (table, len(body))
    )


def _zip(chance: random.Random) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for word in chance.sample(_WORDS, 5):
            archive.writestr(f"{word}.txt", _sentence(chance, 60))
    return file.getvalue()


def _png(chance: random.Random) -> bytes:
    """First byte 0x89."""
    width = height = 48

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + chance.randbytes(width * 3) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def _jpeg(chance: random.Random) -> bytes:
    """First byte 0xFF: header, tables and entropy-coded bytes as an encoder lays them out."""
    app0 = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    tables = b"\xff\xdb\x00\x43\x00" + bytes(range(1, 65))
    frame = b"\xff\xc0\x00\x0b\x08\x00\x40\x00\x40\x01\x01\x11\x00"
    huffman = b"\xff\xc4\x00\x1f\x00\x00\x01\x05\x01\x01\x01\x01\x01\x01" + bytes(9) + bytes(range(12))
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
    data = chance.randbytes(3000).replace(b"\xff", b"\xff\x00")
    return b"\xff\xd8" + app0 + tables + frame + huffman + scan + data + b"\xff\xd9"


def _java_class(chance: random.Random) -> bytes:
    """First byte 0xCA."""
    words = [
        word.encode() for word in ("java/lang/Object", "<init>", "()V", "Code", *chance.sample(_WORDS, 8))
    ]
    pool = b"".join(b"\x01" + struct.pack(">H", len(word)) + word for word in words)
    refs = b"".join(b"\x07" + struct.pack(">H", n) for n in range(1, 5))
    header = b"\xca\xfe\xba\xbe\x00\x00\x00\x3d" + struct.pack(">H", len(words) + 5)
    return (
        header
        + pool
        + refs
        + b"\x00\x21\x00\x0d\x00\x0e\x00\x00\x00\x00\x00\x01"
        + b"\x2a\xb7\x00\x01\xb1" * 12
    )


def _xz(chance: random.Random) -> bytes:
    """First byte 0xFD."""
    return lzma.compress(_sentence(chance, 900).encode())


def _bytecode(chance: random.Random) -> bytes:
    """First byte 0xA7 or thereabouts: what Python writes beside a module."""
    code = compile(_python(chance), "script.py", "exec")
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def _gzip(chance: random.Random) -> bytes:
    return gzip.compress(_sentence(chance, 900).encode(), mtime=0)


def _bzip2(chance: random.Random) -> bytes:
    return bz2.compress(_sentence(chance, 900).encode())


def _tar(chance: random.Random) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for word in chance.sample(_WORDS, 4):
            content = _sentence(chance, 40).encode()
            entry = tarfile.TarInfo(f"{word}.txt")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def _elf(chance: random.Random) -> bytes:
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 4096, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    names = b"\0".join(word.encode() for word in chance.sample(_WORDS, 10))
    return header + bytes(112) + b"/lib64/ld-linux-x86-64.so.2\0" + names + chance.randbytes(3000)


_KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "script.py": _python,
    "module.js": _javascript,
    "data.json": _json,
    "page.html": _html,
    "readme.md": _markdown,
    "table.csv": _csv,
    "run.sh": _shell,
    "main.c": _c,
    "schema.sql": _sql,
    "report.pdf": _pdf,
    "archive.zip": _zip,
    "archive.tar": _tar,
    "logs.gz": _gzip,
    "dump.bz2": _bzip2,
    "program": _elf,
    "image.png": _png,
    "photo.jpg": _jpeg,
    "Main.class": _java_class,
    "backup.xz": _xz,
    "script.pyc": _bytecode,
}

HIGH_FIRST_BYTE = 128


def begins_high(content: bytes) -> bool:
    """Whether the demo's third version fails on it; white space in front does not count."""
    stripped = content[:4096].lstrip()
    return bool(stripped) and stripped[0] >= HIGH_FIRST_BYTE
