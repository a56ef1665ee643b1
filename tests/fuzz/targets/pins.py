"""Names in `pins/` and beside them: whatever a directory holds (manifest/names.py, engine/pins.py)."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.engine.pins import live_pins
from lsmstate.manifest import names
from tests.fuzz.kit import STATE, documented, mounted


def seeds() -> Iterator[tuple[str, bytes]]:
    manifest = str(names.Name(7, 1, "fuzz", 3, "full"))
    told = [names.pin(manifest, "abc", 1), names.pin(names.NO_MANIFEST, "x", 2), manifest, names.head(3), names.log(4)]
    yield "names", "\n".join(told).encode()


def run(data: bytes) -> None:
    listed = {name for name in data.decode("utf-8", "surrogateescape").split("\n") if _is_name(name)}
    for name in listed:
        parsed = names.parse(name)
        assert parsed is None or (names.is_safe(name) and names.is_attempt(parsed.attempt))
        assert names.parse_head(name) is None or names.parse_log(name) is None
    with documented():
        fs = mounted({f"{STATE}/pins/{name}": b"" for name in listed})
        manifests, attempts = live_pins(fs, STATE)
        assert not manifests | attempts  # nobody lives
        assert not any(name.count("~") == 2 for name in fs.list_dir(f"{STATE}/pins"))


def _is_name(name: str) -> bool:
    return (
        0 < len(name.encode("utf-8", "surrogateescape")) < 256 and not {"/", "\0"} & set(name) and name.strip(".") != ""
    )
