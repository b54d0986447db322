(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const draw = () => Promise.all(figures.map((figure, i) => drawPlot(document.getElementById(`figure${i}`), figure)));
  await draw();
  document.documentElement.dataset.drawn = "true";
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
