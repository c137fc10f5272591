"""The recording of a change, as an animated SVG: ``python -m tools.recording`` writes docs/assets/change.svg.

It types the commands of the recipe "Change a route safely" on a nats-server and a Spark session of its own, and draws
what they print.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from tests.docs.terminal import Terminal
from tests.documentation import DOCS, blocks

from turnout.embedded import NatsServer

__all__ = ["PAGE", "SECONDS", "TARGET", "Scene", "drawn", "recorded"]

PAGE: Final = "cookbook/change-a-route.md"
TARGET: Final = DOCS / "assets" / "change.svg"
SECONDS: Final = 60.0
_WIDTH, _LINE, _ROWS = 880, 19, 22
_COLUMNS: Final = 108
_COLOURS: Final = (
    (re.compile(r"^(<|\s*-) .*|.*deliveries lost: .*|.*is missing$|.*→ nothing$|.*the leaf to blame:"), "#ff9d97"),
    (re.compile(r"^(>|\s*\+) .*|.*route orders is fine.*|.*delivered .*19.*"), "#7bd79b"),
    (re.compile(r"^\$ .*"), "#ffffff"),
)
_TITLE: Final = "A route is changed: what would be lost, why, and the flow of the mended route"


@dataclass(frozen=True, slots=True)
class Scene:
    """A screen of the recording.

    Attributes:
        caption: what is done, above it.
        lines: commands, which begin with ``$``, and what they printed.
        seconds: how long it is shown.
    """

    caption: str
    lines: Sequence[str]
    seconds: float


def recorded() -> list[Scene]:
    """Run the recipe, and return its scenes with what the commands printed."""
    from turnout.spark.session.build import build_session

    spark = build_session("recording", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, NatsServer() as server:
        os.chdir(folder)
        os.environ["NATS_URL"] = server.url
        terminal = Terminal(Path(folder), {"127.0.0.1:4222": server.url.removeprefix("nats://")})
        terminal.write("orders.py", next(block.text for block in blocks("cookbook/index.md", "python")))
        try:
            told = dict(_told(terminal))
        finally:
            os.chdir(here)
            spark.stop()
    (check,) = (command for command in told if command.startswith("turnout check"))
    first, second = (command for command in told if command.startswith("turnout diff"))
    (why,) = (command for command in told if command.startswith("turnout explain"))
    (run,) = (command for command in told if command.startswith("turnout run"))
    edits = [command for command in told if command.startswith("diff ")]
    return [
        Scene("A field gets another name", [*_session(edits[0], told), *_session(check, told)], 12),
        Scene("What would change, over the records of the stream?", _session(first, told), 15),
        Scene("Why?", _session(why, told), 12),
        Scene("Mended: nothing is lost", [*_session(edits[1], told), *_session(second, told)[:6]], 11),
        Scene("The flow of the new version", [f"$ {run}", *_session(run, told)[-14:]], 10),
    ]


def _told(terminal: Terminal) -> Iterator[tuple[str, str]]:
    """What each command of the page prints; behind each new version of the route, how it differs from the former."""
    edits = 0
    for block in blocks(PAGE):
        if block.file_name is not None:
            terminal.write(block.file_name, block.text)
            if block.file_name == "new.yaml":
                edits += 1
                yield f"diff orders.yaml new.yaml{' ' * (edits - 1)}", terminal.type("diff orders.yaml new.yaml")
        for command, _ in block.commands if block.language == "console" else ():
            yield command, terminal.type(command)


def _session(command: str, told: dict[str, str]) -> list[str]:
    lines = [line.rstrip() for line in told[command].strip().splitlines()]
    return [f"$ {command.rstrip()}", *(line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…" for line in lines)]


def drawn(scenes: Sequence[Scene]) -> str:
    """The scenes as one SVG, which begins anew behind the last; who wants no motion sees the second one alone."""
    whole = sum(scene.seconds for scene in scenes)
    scale = SECONDS / whole
    styles, groups, start = [], [], 0.0
    for index, scene in enumerate(scenes):
        end = start + scene.seconds * scale
        name = f"s{index}"
        styles.append(_shown(name, start, end))
        rows = [f'<text x="24" y="62" class="caption">{escape(scene.caption)}</text>']
        at = start + 0.6
        for row, line in enumerate(scene.lines):
            at += 1.1 if line.startswith("$ ") and row else 0.12
            styles.append(_shown(f"{name}l{row}", min(at, end - 1), end))
            colour = next((colour for pattern, colour in _COLOURS if pattern.match(line)), "#d5dae3")
            weight = ' font-weight="700"' if line.startswith("$ ") or "deliveries lost" in line else ""
            place = f'x="24" y="{92 + row * _LINE}" class="{name}l{row}"'
            rows.append(f'<text {place} fill="{colour}"{weight} xml:space="preserve">{escape(line)}</text>')
            at += 0.9 if line.startswith("$ ") else 0.0
        if any(line.startswith("│ read") for line in scene.lines):
            rows.append(_flow(scene.lines, end, styles))
        groups.append(f'<g class="{name}">{"".join(rows)}</g>')
        start = end
    height = 92 + _ROWS * _LINE
    commands = ", ".join(line[2:] for scene in scenes for line in scene.lines if line.startswith("$ "))
    still = "@media (prefers-reduced-motion: reduce) { * { animation: none !important; } g:not(.s1) { display: none } }"
    told = f"A terminal in which these commands are typed: {escape(commands)}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{_TITLE}</title>\n<desc id="d">{told}</desc>\n'
        f"<style>text {{ font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}\n"
        f".caption {{ font: 700 16px system-ui, sans-serif; fill: #ffd166; }}\n{still}\n{''.join(styles)}</style>\n"
        f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#14171c"/>\n'
        f'<circle cx="26" cy="22" r="6" fill="#ff9d97"/><circle cx="46" cy="22" r="6" fill="#ffd166"/>'
        f'<circle cx="66" cy="22" r="6" fill="#7bd79b"/>\n{chr(10).join(groups)}\n</svg>\n'
    )


def _flow(lines: Sequence[str], end: float, styles: list[str]) -> str:
    """The counts of a run as a flow: a bar for what was read, and one for each outcome, as high as its share."""
    cells = [re.split(r" *│ *", line) for line in lines if line.startswith("│")]
    counts = {cell[1]: int(cell[2]) for cell in cells if cell[2].isdecimal()}
    outcomes = {name: counts[name] for name in ("delivered", "unmatched", "filtered", "dead-lettered") if counts[name]}
    left, right, top, height = 430, 690, 110, 220
    unit = height / counts["read"]
    styles.append(_shown("flow", end - 8, end))
    parts = [
        f'<rect x="{left}" y="{top}" width="14" height="{height}" fill="#8fb4ec"/>',
        f'<text x="{left}" y="{top - 10}" fill="#ffffff">read {counts["read"]}</text>',
    ]
    below = float(top)
    colours = {"delivered": "#7bd79b", "unmatched": "#b7a3e0", "filtered": "#a9b2c3", "dead-lettered": "#ff9d97"}
    for row, (name, count) in enumerate(outcomes.items()):
        high, at = count * unit, below + row * 30
        middle = (left + 14 + right) / 2
        there = f"M{left + 14} {below:.1f}C{middle} {below:.1f} {middle} {at:.1f} {right} {at:.1f}"
        back = f"C{middle} {at + high:.1f} {middle} {below + high:.1f} {left + 14} {below + high:.1f}Z"
        parts += [
            f'<path d="{there}V{at + high:.1f}{back}" fill="{colours[name]}" opacity=".45"/>',
            f'<rect x="{right}" y="{at:.1f}" width="14" height="{high:.1f}" fill="{colours[name]}"/>',
            f'<text x="{right + 24}" y="{at + high / 2 + 5:.1f}" fill="#ffffff">{name} {count}</text>',
        ]
        below += high
    return f'<g class="flow">{"".join(parts)}</g>'


def _shown(name: str, start: float, end: float) -> str:
    """The style that shows an element between two times of the recording."""
    first, last = (f"{100 * moment / SECONDS:.2f}%" for moment in (start, end))
    opened = "" if start <= 0 else "0%{opacity:0}"
    closed = "" if end >= SECONDS else f"{last}{{opacity:0}}"
    return (
        f".{name}{{animation:{name} {SECONDS:g}s step-end infinite}}"
        f"@keyframes {name}{{{opened}{first}{{opacity:1}}{closed}}}\n"
    )


if __name__ == "__main__":
    TARGET.write_text(drawn(recorded()), encoding="utf-8")
    print(f"{TARGET} {TARGET.stat().st_size:,} bytes")
