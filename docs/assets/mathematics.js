// Formulas that arithmatex marked up, drawn by the KaTeX that lies beside this file.
document.querySelectorAll(".arithmatex").forEach(function (place) {
  var text = place.textContent.trim();
  var shown = text.startsWith("\\[");
  katex.render(text.slice(2, -2), place, { displayMode: shown, throwOnError: false });
});
