"""The page's HTML, made from the fields that can be set."""

from __future__ import annotations

import math
from html import escape

from skelmix.explore.settings import FIELDS, Field
from skelmix.mechanisms.names import DISTRIBUTED

_STEPS = 400  # steps of a slider


def page_html() -> str:
    """The page as it is before the first answer; it loads nothing but the files beside it."""
    fields = "".join(map(_field, FIELDS.values()))
    options = "".join(f"<option>{name}</option>" for name in DISTRIBUTED)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Explore a plan · skelmix</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><link rel="stylesheet" href="files/explore.css"></head>
<body><main class="explore">
<header class="band" id="band"><p class="kind">skelmix · explore a plan</p>
<h1 id="verdict">What would it cost to protect them?</h1></header>
<p id="status" role="status"><span class="spinner" aria-hidden="true"></span><span id="said">asking</span></p>
<p id="stopped" class="note alarm" role="alert" hidden></p>
<p id="problem" class="note alarm" role="alert" hidden></p>
<dl class="tiles" id="tiles"></dl>
<div class="columns"><form id="settings" aria-label="Settings" autocomplete="off">
<fieldset class="who"><legend>Who takes part</legend>
<label><input type="radio" name="who" value="cohort" checked> participants, drawn into cohorts</label>
<label><input type="radio" name="who" value="silos"> silos with many records</label></fieldset>
{fields}
<div class="field"><label for="mechanism">Mechanism</label>
<select id="mechanism" name="mechanism" aria-describedby="mechanism-help mechanism-error">{options}</select>
<small id="mechanism-help">smm is the one to use; the others to compare</small>
<p class="error" id="mechanism-error"></p></div>
<button type="button" id="defaults">Back to the defaults</button></form>
<div class="answers">
<section class="plots" aria-label="Charts">
<figure><figcaption>Error over rate, all mechanisms<small id="chart-note">squared error, as a multiple of the
central Gaussian's; no point where a mechanism cannot do it</small></figcaption>
<div class="plot" id="chart" role="img" aria-label="Chart of the error over bits per weight"></div></figure>
<figure id="measured" hidden><figcaption>Accuracy over rate, as measured on MNIST
<small id="measured-note"></small></figcaption>
<div class="plot" id="accuracy" role="img" aria-label="Chart of measured accuracy over bits per weight"></div>
</figure></section>
<section class="take" aria-label="Take it with you">
<button type="button" id="copy-python">Copy as Python</button>
<button type="button" id="copy-command">Copy as command</button>
<button type="button" id="download">Download plan.json</button>
<span id="copied" role="status"></span>
<textarea id="by-hand" readonly aria-label="To copy by hand" hidden></textarea></section>
<section aria-labelledby="card-title"><h2 id="card-title">Privacy card</h2><div id="card"></div></section>
</div></div></main>
<script src="files/explore.js" defer></script><script src="files/plotly.js" async id="plotly"></script>
</body></html>
"""


def _field(field: Field) -> str:
    """A label, a slider, and a box to type into, with room for what is wrong."""
    name, shown = field.name, f"{field.default:g}" if field.default < 1e6 else str(field.default)
    who = f' data-who="{field.who}"' if field.who else ""
    position = _position(field, field.default)
    return f"""<div class="field" data-field="{name}"{who}>
<label for="{name}">{escape(field.label)}</label>
<input type="text" inputmode="decimal" id="{name}" name="{name}" value="{shown}"
 aria-describedby="{name}-help {name}-error" spellcheck="false">
<input type="range" id="{name}-slider" aria-label="{escape(field.label)}" min="0" max="{_STEPS}" step="1"
 value="{position}" data-low="{field.low}" data-high="{field.high}" data-log="{int(field.log)}"
 data-whole="{int(field.whole)}" aria-valuetext="{shown}">
<small id="{name}-help">{escape(field.help)}</small><p class="error" id="{name}-error"></p></div>"""


def _position(field: Field, value: float) -> int:
    if field.log:
        return round(_STEPS * math.log(value / field.low) / math.log(field.high / field.low))
    return round(_STEPS * (value - field.low) / (field.high - field.low))
