"""The style of the summary of a run in notebooks: colours and shapes of the dashboard, in a panel of its own.

The panel has a background, so that its colours are readable on any page. It is light or dark as the browser prefers,
and in Jupyter as the theme of Jupyter is. Jupyter has rules for all tables: those of the table here are more specific.
"""

from __future__ import annotations

from qcg.pilotjob.report.state_colours import STATE_COLOURS

COLOURS = {
    "panel": ("#ffffff", "#161b22"),
    "text": ("#1b2330", "#e6eaf0"),
    "muted": ("#57606f", "#9aa5b4"),
    "line": ("#dfe3e9", "#2b323c"),
    "track": ("#e6eaef", "#262d37"),
    "edge": ("#7d8797", "#7e8998"),
}
"""Colours other than those of states, on a light and on a dark background, as on the dashboard."""

MARKS = {
    "QUEUED": "border:0.14em solid var(--state);background:none",
    "SCHEDULED": "border:0.14em solid var(--state);background:linear-gradient(90deg,var(--state) 50%,transparent 50%)",
    "EXECUTING": "border-radius:0;clip-path:polygon(8% 0,100% 50%,8% 100%)",
    "FAILED": "border-radius:0;clip-path:polygon(18% 0,50% 32%,82% 0,100% 18%,68% 50%,100% 82%,82% 100%,50% 68%,"
    "18% 100%,0 82%,32% 50%,0 18%)",
    "CANCELED": "border:0.12em solid var(--state);"
    "background:linear-gradient(135deg,transparent 40%,var(--state) 40% 60%,transparent 60%)",
    "OMITTED": "border-radius:0;clip-path:inset(36% 0)",
}
"""Shapes of states, as on the dashboard; a disc for the others."""

RULES = """
[data-jp-theme-light=true] .qcg-pm{color-scheme:light}
[data-jp-theme-light=false] .qcg-pm{color-scheme:dark}
.qcg-pm *{box-sizing:border-box}
.qcg-pm .head{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 1em}
.qcg-pm .head b{font-weight:650;overflow-wrap:anywhere}
.qcg-pm .bar{display:flex;gap:2px;overflow:hidden;height:10px;margin:0.4em 0 0.7em;\
border-radius:99px;background:var(--track)}
.qcg-pm .bar span{flex-basis:0;min-width:2px;background:var(--state)}
.qcg-pm .bar [data-state=QUEUED]{border:1px solid var(--edge);border-radius:3px 99px 99px 3px;\
background:repeating-linear-gradient(135deg,var(--edge) 0 1.5px,var(--panel) 1.5px 6px)}
.qcg-pm .bar [data-state=QUEUED]:nth-child(2){border-radius:99px}
.qcg-pm progress{display:none}
.qcg-pm .body{display:flex;flex-wrap:wrap;gap:0.5em 3em}
.qcg-pm .facts{flex:1 1 16em;color:var(--muted)}
.qcg-pm .notice{margin-top:0.6em;padding:0.3em 0.8em;border:1px solid var(--line);\
border-left:4px solid var(--state);border-radius:0 6px 6px 0}
.qcg-pm.qcg-pm table{width:auto;margin:0;border:0;border-collapse:collapse;color:inherit;font:inherit}
.qcg-pm.qcg-pm tr:nth-child(n){background:none;line-height:inherit}
.qcg-pm.qcg-pm :is(td,th):nth-child(n){padding:0 0 0 1.6em;border:0;font:inherit;text-align:right}
.qcg-pm.qcg-pm :is(td,th):first-child{padding:0;text-align:left}
.qcg-pm.qcg-pm th:nth-child(n){color:var(--muted);font-size:0.9em}
.qcg-pm.qcg-pm td:first-child{color:var(--state);font-weight:500}
.qcg-pm .mark{display:inline-block;width:0.7em;height:0.7em;overflow:hidden;border-radius:50%;background:var(--state);\
text-indent:100%;white-space:nowrap}
"""


def _style() -> str:
    colours = ";".join(f"--{name}:light-dark({light},{dark})" for name, (light, dark) in COLOURS.items())
    states = [
        f".qcg-pm [data-state={state}]{{--state:light-dark({colour.light},{colour.dark})}}"
        for state, colour in STATE_COLOURS.items()
    ]
    marks = [f".qcg-pm [data-state={state}] .mark{{{shape}}}" for state, shape in MARKS.items()]
    return (
        f".qcg-pm{{color-scheme:light dark;{colours};max-width:46em;padding:0.8em 1.1em;border:1px solid var(--line);"
        "border-radius:10px;background:var(--panel);color:var(--text);"
        "font:14px/1.6 Inter,system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif;font-variant-numeric:tabular-nums}"
        f"{RULES}{''.join(states)}{''.join(marks)}"
    ).replace("\n", "")


STYLE = _style()
