"use strict";
// Plots that follow the page's colours, light or dark.
function pageColour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function inRoom(title, room) {  // a title longer than its axis is set in two lines
  const middle = title.indexOf(" ", title.length / 2 - 4);
  return title.length * 6.6 > room && middle > 0 ? `${title.slice(0, middle)}<br>${title.slice(middle + 1)}` : title;
}
function plotLook(figure, place) {
  const ink = pageColour("--ink"), line = pageColour("--line");
  const axis = title => ({ title: { text: title, font: { size: 12 }, standoff: 8 }, gridcolor: line, linecolor: line,
    zerolinecolor: line, automargin: true, exponentformat: "power" });
  const own = figure.layout || {};
  return { ...own, font: { color: ink, size: 12, family: "system-ui, sans-serif" },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { t: 12, r: 12, b: 48, l: 60 },
    hoverlabel: { bgcolor: pageColour("--raised"), bordercolor: line, font: { color: ink } },
    showlegend: figure.data.length > 1, legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } },
    xaxis: { ...axis(figure.x), ...(own.xaxis || {}) }, yaxis: { ...axis(inRoom(figure.y, place.clientHeight - (figure.data.length > 1 ? 125 : 60))), ...(own.yaxis || {}) } };
}
function plotTraces(figure) {
  return figure.data.map((trace, place) => {
    const colour = pageColour(`--series-${(trace.series ?? place) % 6 + 1}`);
    const own = { ...trace, line: { ...(trace.line || {}), color: colour }, marker: { ...(trace.marker || {}), color: colour } };
    for (const bar of ["error_x", "error_y"])
      if (trace[bar]) own[bar] = { ...trace[bar], color: pageColour("--ink"), thickness: 1.2 };
    return own;
  });
}
const plots = new Map();
function drawPlot(place, figure, draw = Plotly.react) {
  plots.set(place, figure);
  return draw(place, plotTraces(figure), plotLook(figure, place), { responsive: true, displayModeBar: false });
}
let resized = null;
addEventListener("resize", () => {  // plotly's own answer to it leaves legends where the old margins were
  clearTimeout(resized);
  resized = setTimeout(() => plots.forEach((figure, place) => drawPlot(place, figure, Plotly.newPlot)), 250);
});
addEventListener("beforeprint", () => {  // so that print can shrink what is drawn
  for (const svg of document.querySelectorAll("svg.main-svg"))
    svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
});
addEventListener("afterprint", () => {
  for (const svg of document.querySelectorAll("svg.main-svg")) svg.removeAttribute("viewBox");
});
