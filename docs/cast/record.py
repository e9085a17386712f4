#!/usr/bin/env python3
"""Records a walk through Longhaul as an animated SVG: drives it in tmux, captures frames, writes docs/cast/walk.svg.

Usage: docs/cast/record.py [path of the longhaul binary]. It needs tmux and nothing else; no key, no network.
"""

import html
import os
import re
import subprocess
import sys
import tempfile
import time
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
LONGHAUL = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/longhaul")
COLUMNS, ROWS = 110, 26
CELL_W, CELL_H, FONT = 7.8, 17, 13
PALETTE = {
    30: "#4b5263", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2", 37: "#d7dae0",
}
INK, PAPER = "#c8ccd4", "#1e2127"


class Tmux:
    """A terminal of its own."""

    def __init__(self, home):
        self.name = f"cast-{os.getpid()}"
        env = {k: v for k, v in os.environ.items() if k not in ("TMUX", "NO_COLOR") and not k.startswith("LONGHAUL")}
        env.update(LC_ALL="C.UTF-8", PS1="$ ", HISTFILE="", TERM="xterm-256color", PATH=f"{os.path.dirname(LONGHAUL)}:{env['PATH']}",
                   HOME=home, XDG_DATA_HOME=os.path.join(home, "data"))
        # A shell of root's has a prompt of its own, unless it is told otherwise when it starts.
        env["ENV"] = os.path.join(home, "rc")
        with open(env["ENV"], "w", encoding="utf-8") as rc:
            rc.write("PS1='$ '\n")
        self.env = env
        self.tell("-u", "-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", os.path.join(home, "work"),
                  "sh")
        self.tell("set", "-g", "status", "off")
        self.tell("resize-window", "-x", str(COLUMNS), "-y", str(ROWS))
        self.frames = []

    def tell(self, *args):
        done = subprocess.run(["tmux", "-L", self.name, *args], env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self):
        return self.tell("capture-pane", "-p")

    def until(self, *texts, patience=60):
        """Waits for all of these texts to be on the screen."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            screen = self.screen()
            if all(text in screen for text in texts):
                return
            time.sleep(0.05)
        raise SystemExit(f"waited in vain for {texts}:\n{self.screen()}")

    def shot(self, seconds, note=""):
        """Keeps what is on the screen, to be shown for so long."""
        x, y, seen = self.tell("display-message", "-p", "#{cursor_x} #{cursor_y} #{cursor_flag}").split()
        lines = self.tell("capture-pane", "-p", "-e").rstrip("\n").split("\n")
        self.frames.append((seconds, note, lines[:ROWS], (int(x), int(y)) if seen == "1" else None))

    def watch(self, seconds, every=0.8, note=""):
        """Keeps what happens for a while."""
        for _ in range(max(1, round(seconds / every))):
            time.sleep(every)
            self.shot(every, note)

    def type(self, text, note=""):
        """Types as people do."""
        for word in re.findall(r"\S+\s*", text):
            self.tell("send-keys", "-l", "--", word)
            time.sleep(0.08)
            self.shot(0.25, note)

    def keys(self, *keys):
        self.tell("send-keys", *keys)
        time.sleep(0.25)

    def close(self):
        subprocess.run(["tmux", "-L", self.name, "kill-server"], env=self.env, capture_output=True, check=False)


def spans(line):
    """A line with escape sequences as (column, text, fg, bold, dim, underlined, reversed)."""
    style = dict(fg=None, bold=False, dim=False, under=False, rev=False)
    column, out = 0, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        codes = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if codes:
            # Colours of the terminal's own sixteen are written in two ways.
            plain = re.sub(r"38;5;([0-7])(?![0-9])", lambda m: str(30 + int(m[1])), codes[1])
            for code in [int(c or 0) for c in plain.split(";")]:
                if code == 0:
                    style = dict(fg=None, bold=False, dim=False, under=False, rev=False)
                elif code in (1, 2, 4, 7):
                    style[{1: "bold", 2: "dim", 4: "under", 7: "rev"}[code]] = True
                elif code == 22:
                    style["bold"] = style["dim"] = False
                elif code in (24, 27):
                    style["under" if code == 24 else "rev"] = False
                elif code == 39:
                    style["fg"] = None
                elif 30 <= code <= 37:
                    style["fg"] = PALETTE[code]
                elif 90 <= code <= 97:
                    style["fg"] = PALETTE[code - 60]
        elif part:
            wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in part)
            out.append((column, part, wide, dict(style)))
            column += wide
    return out


def row(y, line):
    """A line as SVG, without its place."""
    text, boxes = [], []
    for column, part, wide, style in spans(line):
        fill = style["fg"]
        if style["rev"]:
            boxes.append(f'<rect x="{column * CELL_W:.1f}" y="{y * CELL_H}" width="{wide * CELL_W:.1f}" height="{CELL_H}" fill="{fill or INK}"/>')
            fill = PAPER
        if not part.strip():
            continue
        lead = len(part) - len(part.lstrip(" "))
        body = part.strip(" ")
        x = (column + lead) * CELL_W
        width = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in body) * CELL_W
        attrs = f'x="{x:.1f}" textLength="{width:.1f}"' + (f' fill="{fill}"' if fill else "")
        classes = " ".join(c for c, on in (("b", style["bold"]), ("d", style["dim"]), ("u", style["under"])) if on)
        attrs += f' class="{classes}"' if classes else ""
        text.append(f"<tspan {attrs}>{html.escape(body)}</tspan>")
    if text:
        boxes.append(f'<text y="{y * CELL_H + 13}">{"".join(text)}</text>')
    return "".join(boxes)


def write(frames, path):
    """Every different line is written once, and shown in the frames that have it."""
    merged = []
    for seconds, note, lines, cursor in frames:
        if merged and merged[-1][1:] == [note, lines, cursor]:
            merged[-1][0] += seconds
        else:
            merged.append([seconds, note, lines, cursor])
    total = sum(frame[0] for frame in merged)
    width, height = COLUMNS * CELL_W + 24, (ROWS + 2) * CELL_H + 20
    defs, known, groups, rules, at = [], {}, [], [], 0.0
    for index, (seconds, note, lines, cursor) in enumerate(merged):
        uses = []
        for y, line in enumerate(lines):
            drawn = row(y, line)
            if not drawn:
                continue
            if drawn not in known:
                known[drawn] = f"l{len(known)}"
                defs.append(f'<g id="{known[drawn]}">{drawn}</g>')
            uses.append(f'<use href="#{known[drawn]}"/>')
        if cursor:
            uses.append(f'<rect x="{cursor[0] * CELL_W:.1f}" y="{cursor[1] * CELL_H}" width="{CELL_W}" height="{CELL_H}" fill="{INK}" opacity=".7"/>')
        if note:
            uses.append(f'<text class="n" x="{COLUMNS * CELL_W / 2:.0f}" y="{(ROWS + 1) * CELL_H + 6}">{html.escape(note)}</text>')
        a, b = 100 * at / total, 100 * (at + seconds) / total
        rules.append(f"@keyframes f{index}{{0%,{a:.3f}%{{visibility:hidden}}{a + 0.001:.3f}%,{b:.3f}%{{visibility:visible}}{min(b + 0.001, 100):.3f}%,100%{{visibility:hidden}}}}"
                     if index else f"@keyframes f0{{0%,{b:.3f}%{{visibility:visible}}{b + 0.001:.3f}%,100%{{visibility:hidden}}}}")
        groups.append(f'<g class="f" style="animation-name:f{index}">{"".join(uses)}</g>')
        at += seconds
    style = (f"text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{INK};white-space:pre}}"
             f".b{{font-weight:700}}.d{{fill-opacity:.55}}.u{{text-decoration:underline}}.n{{text-anchor:middle;fill:#8a919e;font-family:sans-serif}}"
             f".f{{visibility:hidden;animation-duration:{total:.1f}s;animation-iteration-count:infinite;animation-timing-function:step-end}}")
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" xml:space="preserve" role="img" '
           f'aria-label="Longhaul: a run in the background, watched and steered on a screen">'
           f'<style>{style}{"".join(rules)}</style><defs>{"".join(defs)}</defs>'
           f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/><g transform="translate(12,12)">{"".join(groups)}</g></svg>\n')
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg)
    print(f"{path}: {len(merged)} frames, {total:.0f} s, {len(svg.encode()) / 1024:.0f} KiB")


def main():
    with tempfile.TemporaryDirectory() as home:
        work = os.path.join(home, "work")
        os.makedirs(work)
        with open(os.path.join(HERE, "team.yaml"), encoding="utf-8") as team:
            text = team.read()
        with open(os.path.join(work, "team.yaml"), "w", encoding="utf-8") as copy:
            copy.write(text)
        tmux = Tmux(home)
        try:
            tmux.until("$")
            note = "A run in the background"
            tmux.type('longhaul run --detach --trust team.yaml "Plan the release"', note)
            tmux.keys("Enter")
            tmux.until("t-")
            tmux.shot(1.5, note)
            note = "longhaul alone: all tasks, and what each does"
            tmux.type("longhaul", note)
            tmux.keys("Enter")
            tmux.until("scout", "Needs you")
            tmux.watch(4, note=note)
            note = "Open one"
            tmux.keys("Down")
            tmux.shot(1, note)
            tmux.keys("Enter")
            tmux.watch(1.6, note=note)
            tmux.keys("Escape")
            note = "Write to it while it works"
            tmux.keys("m")
            tmux.type("Only since the last tag, please.", note)
            tmux.keys("Enter")
            tmux.watch(1.6, note=note)
            note = "One asks for approval: y"
            tmux.keys("Down")
            tmux.watch(2.4, note=note)
            tmux.keys("y")
            tmux.watch(1.6, note=note)
            note = "Stop one that takes too long"
            tmux.keys("Down")
            tmux.watch(0.8, note=note)
            tmux.keys("s")
            tmux.watch(1.6, note=note)
            tmux.keys("y")
            tmux.watch(1.6, note=note)
            note = "The root reads all three results, and answers"
            open(os.path.join(work, "go"), "w", encoding="utf-8").close()
            tmux.until("Finished")
            tmux.keys("Home")
            tmux.watch(3.2, note=note)
            tmux.keys("q")
            tmux.until("$")
            tmux.shot(1.5, "All of it is in the journal: longhaul tasks, show, logs")
            write(tmux.frames, os.path.join(HERE, "walk.svg"))
        finally:
            tmux.close()


if __name__ == "__main__":
    main()
