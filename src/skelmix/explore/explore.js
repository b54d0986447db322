// The page asks the planner whenever a setting changes: a little later, one question at a time.
const at = id => document.getElementById(id);
const form = at("settings"), tab = crypto.randomUUID();
const PAUSE = 150;
let firstAnswer = null;
let question = 0, asking = null, charting = null, shown = null, timer = null, studies = [];
const chart = { x: "bits per weight", y: "squared error, times the central Gaussian's", data: [],
  layout: { xaxis: { type: "log", tickvals: [0.125, 0.25, 0.5, 1, 2, 4, 8, 16], range: [-1, 1.3] } } };

// settings ---------------------------------------------------------------------------------------------------
const sliders = [...form.querySelectorAll("input[type=range]")];
function fromSlider(slider) {
  const [low, high] = [+slider.dataset.low, +slider.dataset.high], part = slider.value / slider.max;
  const exact = +slider.dataset.log ? low * (high / low) ** part : low + (high - low) * part;
  return +slider.dataset.whole ? Math.round(+exact.toPrecision(exact < 100 ? 2 : 3)) : +exact.toPrecision(3);
}
function toSlider(slider, text) {
  const [low, high] = [+slider.dataset.low, +slider.dataset.high], value = Math.min(high, Math.max(low, +text));
  if (Number.isNaN(value)) return;
  const part = +slider.dataset.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  slider.value = Math.round(part * slider.max);
  slider.setAttribute("aria-valuetext", text);
}
function settings() {
  const who = form.elements.who.value, given = { tab, who, mechanism: form.elements.mechanism.value };
  for (const field of form.querySelectorAll("[data-field]"))
    if (!field.dataset.who || field.dataset.who === who) given[field.dataset.field] = at(field.dataset.field).value;
  return given;
}
function showWho() {
  for (const field of form.querySelectorAll("[data-who]")) field.hidden = field.dataset.who !== form.elements.who.value;
}
function remember(given) {
  const { tab, ...rest } = given;
  history.replaceState(null, "", "#" + new URLSearchParams(rest));
}
function recall() {  // what the address does not say has its default
  form.reset();
  for (const slider of sliders) slider.setAttribute("aria-valuetext", at(slider.id.replace("-slider", "")).value);
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (name === "who" || name === "mechanism") form.elements[name].value = value;
    else if (at(name)?.type === "text") { at(name).value = value; toSlider(at(name + "-slider"), value); }
  }
}
for (const slider of sliders) slider.addEventListener("input", () => {
  const box = at(slider.id.replace("-slider", ""));
  box.value = fromSlider(slider);
  slider.setAttribute("aria-valuetext", box.value);
  later();
});
for (const box of form.querySelectorAll("input[type=text]")) box.addEventListener("input", () => {
  toSlider(at(box.id + "-slider"), box.value.replace(/[,_ ]/g, ""));
  later();
});
form.addEventListener("change", () => { showWho(); later(); });
form.addEventListener("submit", event => event.preventDefault());
at("defaults").addEventListener("click", () => { history.replaceState(null, "", "#"); recall(); showWho(); later(); });
function later() { clearTimeout(timer); timer = setTimeout(ask, PAUSE); busy(true); }

// questions --------------------------------------------------------------------------------------------------
function busy(on, said) {
  document.body.classList.toggle("asking", on);
  if (on) at("said").textContent = "planning …"; else if (said !== undefined) at("said").textContent = said;
}
function post(path, given, signal) {
  return fetch(path, { method: "POST", body: JSON.stringify(given), signal, headers: { "Content-Type": "application/json" } });
}
async function ask() {
  const mine = ++question, given = settings(), start = performance.now();
  asking?.abort(); charting?.abort();
  asking = new AbortController();
  remember(given);
  busy(true);
  let answer, status;
  try {
    const reply = await post("plan", given, asking.signal);
    status = reply.status;
    if (status === 403) return stopped("Another server answers here now: open the address that skelmix explore printed.");
    answer = await reply.json();
  } catch (error) {
    if (mine === question && error.name !== "AbortError") stopped();
    return;
  }
  if (mine !== question) return;
  if (answer.taken_back) return ask();  // by an older question that arrived later
  at("stopped").hidden = true;
  showErrors(answer.errors || {});
  if (status !== 200) { busy(false, "no plan for these settings"); forget(); return; }
  shown = answer;
  const waited = (performance.now() - start) / 1000;
  showAnswer(answer);
  busy(false, `planned in ${answer.seconds.toFixed(2)} s`);
  document.body.dataset.answered = mine;
  firstAnswer ??= performance.now();
  document.body.dataset.waited = waited;
  showStudies();
  drawChart(given, mine);
}
async function stopped(why) {
  busy(false, "no answer");
  at("stopped").textContent = why || "The planner does not answer: has it been stopped? Run skelmix explore again and open the address " +
    `that it prints; to keep these settings, add to it ${location.hash}`;
  at("stopped").hidden = false;
  forget();
  if (why) return;
  const mine = question;
  while (mine === question) {
    await new Promise(resolve => setTimeout(resolve, 1500));
    try { if ((await fetch("alive")).ok && mine === question) return ask(); } catch { /* still stopped */ }
  }
}
function forget() {  // nothing old may be taken for an answer to the new settings
  shown = null; forgetCopied();
  for (const id of ["copy-python", "copy-command", "download"]) at(id).disabled = true;
  at("tiles").replaceChildren(); at("card").replaceChildren();
  at("band").classList.add("alarm"); document.body.classList.add("no-plan");  // charts of old settings go, too
  at("verdict").textContent = "There is no plan for these settings.";
}
function showErrors(errors) {
  for (const field of form.querySelectorAll(".field")) {
    const box = field.querySelector("input, select"), message = errors[box.id] || "";
    at(box.id + "-error").textContent = message;
    field.classList.toggle("wrong", message !== "");
    box.setAttribute("aria-invalid", message !== "");
  }
  at("problem").textContent = errors[""] || "";
  at("problem").hidden = !errors[""];
}

// answers ----------------------------------------------------------------------------------------------------
function element(kind, text, name) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}
function showAnswer(answer) {
  forgetCopied();
  at("verdict").textContent = answer.verdict;
  at("band").classList.remove("alarm"); document.body.classList.remove("no-plan");
  for (const id of ["copy-python", "copy-command", "download"]) at(id).disabled = false;
  at("tiles").replaceChildren(...answer.tiles.map(tile => {
    const box = element("div", undefined, "tile"), value = element("dd");
    box.dataset.tile = tile.name;
    value.append(element("strong", tile.value), element("span", tile.note));
    box.append(element("dt", tile.name), value);
    return box;
  }));
  at("card").replaceChildren(...answer.sections.filter(s => s.facts.length).map(section => {
    const part = element("div", undefined, section.title === "Not covered" ? "left-out" : "");
    if (section.title) part.append(element("h3", section.title));
    const table = element("table", undefined, "facts");
    for (const fact of section.facts) {
      const row = element("tr", undefined, fact.alarm ? "alarm" : ""), name = element("th", fact.name), cell = element("td", fact.value);
      name.scope = "row";
      if (fact.note) cell.append(" ", element("small", fact.note));
      row.append(name, cell);
      table.append(row);
    }
    part.append(table);
    return part;
  }));
}
function forgetCopied() { at("copied").textContent = ""; at("by-hand").hidden = true; }
async function copy(text, what) {
  const box = at("by-hand");
  box.hidden = true;
  try { await navigator.clipboard.writeText(text); at("copied").textContent = `${what} copied`; }
  catch {  // the browser forbids it: then by hand
    box.hidden = false; box.value = text; box.rows = text.split("\n").length; box.focus(); box.select();
    at("copied").textContent = "this browser does not let pages copy: press Ctrl-C";
  }
}
at("copy-python").addEventListener("click", () => copy(shown.python, "Python"));
at("copy-command").addEventListener("click", () => copy(shown.command, "command"));
at("download").addEventListener("click", () => {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([shown.plan_json + "\n"], { type: "application/json" }));
  link.download = "plan.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);  // some browsers read it later
});

// charts -----------------------------------------------------------------------------------------------------
const TICKS = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.5, 1.8, 2, 2.5, 3, 4, 5, 6, 8],
  [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.5, 3, 4, 5, 6, 7, 8, 9]];  // thin to dense
function logAxis(values) {  // whole numbers at every tick: plotly would write 20 and 50 as 2 and 5
  const low = Math.min(...values), high = Math.max(...values, 1.4 * low), pad = 0.06 * Math.log10(high / low);
  const range = [Math.log10(low) - pad, Math.log10(high) + pad], first = Math.floor(range[0]), last = Math.ceil(range[1]);
  const within = (digits, step) => Array.from({ length: last - first + 1 }, (_, i) => first + i).filter(power => power % step === 0)
    .flatMap(power => digits.map(digit => +(digit * 10 ** power).toPrecision(3)))
    .filter(tick => Math.log10(tick) >= range[0] && Math.log10(tick) <= range[1]);
  const tickvals = TICKS.map(digits => within(digits, 1)).filter(ticks => ticks.length <= 7).at(-1)
    ?? within([1], Math.ceil((last - first) / 6));
  return { type: "log", range, tickvals, ticktext: tickvals.map(tick =>
    tick < 1e6 ? tick.toLocaleString("en", { maximumSignificantDigits: 3 }) : `10<sup>${Math.round(Math.log10(tick))}</sup>`) };
}
const LOOKS = [["circle", 7, "solid"], ["square-open", 11, "dot"], ["diamond-open", 15, "dash"], ["x", 7, "dashdot"],
  ["triangle-up", 8, "solid"]];  // of mechanisms: their lines may coincide
async function drawn(place, figure) { if (window.Plotly) await drawPlot(at(place), figure); }
async function drawChart(given, mine) {
  charting = new AbortController();
  const lines = new Map();
  const redraw = () => {
    chart.data = [...lines].map(([name, points], place) => {
      const [symbol, size, dash] = LOOKS[place % LOOKS.length];
      return { type: "scatter", mode: "lines+markers", name, series: place, marker: { symbol, size }, line: { dash },
        x: points.map(point => point.rate), y: points.map(point => point.error) };
    });
    chart.data.push({ type: "scatter", mode: "markers", name: "your plan", series: 5, x: [shown.summary.rate], y: [shown.relative_error],
      marker: { size: 13, symbol: "star" } });
    chart.data.push({ type: "scatter", mode: "lines", name: "central Gaussian", series: 5, x: [0.1, 20], y: [1, 1], line: { dash: "dash" } });
    chart.layout.yaxis = logAxis(chart.data.flatMap(trace => trace.y).filter(error => error > 0));
    return drawn("chart", chart);
  };
  await redraw();
  let rest = "";
  try {
    const reply = await post("chart", given, charting.signal);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const pieces = (rest + part.value).split("\n");
      rest = pieces.pop();
      for (const point of pieces.map(JSON.parse)) {
        if (!lines.has(point.mechanism)) lines.set(point.mechanism, []);
        if (point.error !== null) lines.get(point.mechanism).push(point);
      }
      if (mine !== question) return;
      await redraw();
    }
    document.body.dataset.charted = mine;
  } catch { /* taken back, or the server is gone: the next question says so */ }
}
function showStudies() {
  if (!studies.length || !shown) return;
  const silos = shown.summary.silos !== null;
  at("measured").hidden = silos;
  if (silos) return;
  const s = studies[0], sum = shown.summary;
  const same = [["ε", sum.epsilon <= s.epsilon * 1.01 && sum.epsilon > s.epsilon * 0.95], ["δ", sum.delta === s.delta],
    ["cohort", sum.cohort === s.cohort], ["rounds", sum.rounds === s.rounds], ["weights", sum.dimension === s.dimension]];
  const other = same.filter(([, equal]) => !equal).map(([name]) => name);
  at("measured-note").textContent = `ε = ${s.epsilon}, δ = ${s.delta.toExponential()}, cohorts of ${s.cohort} of ${s.population.toLocaleString("en")}, ` +
    `${s.rounds.toLocaleString("en")} rounds, ${s.dimension.toLocaleString("en")} weights` +
    (other.length ? `; your plan differs in ${other.join(", ")}` : ": as in your plan");
  drawn("accuracy", { x: "bits per weight", y: "test accuracy, %", layout: { xaxis: { type: "log", tickvals: [0.0625, 0.25, 1, 4, 32] } },
    data: s.lines.map(line => ({ type: "scatter", mode: line.points.length > 1 ? "lines+markers" : "markers", name: line.name,
      x: line.points.map(p => p.rate), y: line.points.map(p => 100 * p.accuracy) })) });
}
function redrawAll() { if (chart.data.length) drawn("chart", chart); showStudies(); }
at("plotly").addEventListener("load", redrawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
addEventListener("hashchange", () => { recall(); showWho(); later(); });
recall(); showWho(); ask();
fetch("files/measured.json").then(reply => reply.json()).then(found => { studies = found; showStudies(); }, () => {});
