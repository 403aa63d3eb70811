"use strict";

// The look of every chart. What a chart says itself comes on top.
const INK = "#1b1b1b", RULE = "#e6e6e6";
const LOOK = {
  font: { family: "system-ui, sans-serif", size: 13, color: INK },
  paper_bgcolor: "#fff", plot_bgcolor: "#fff", hovermode: "closest", dragmode: "zoom", height: 380,
  margin: { l: 56, r: 12, t: 36, b: 44 },
  legend: { orientation: "h", x: 0, y: 0, xanchor: "left", yanchor: "bottom", yref: "container" },
};
const AXIS = { gridcolor: RULE, zeroline: false, linecolor: INK, automargin: true };

function layoutOf(chart) {
  const layout = { ...LOOK, ...chart.layout };
  for (const name of new Set(["xaxis", "yaxis", ...Object.keys(chart.layout)])) {
    if (/^[xy]axis\d*$/.test(name)) layout[name] = { ...AXIS, ...chart.layout[name] };
  }
  // A narrow screen needs more lines for the legend.
  if (window.innerWidth < 600 && chart.traces.length > 1) layout.height += 60;
  // A finger scrolls the page; on a touch screen a chart is zoomed with its buttons.
  if (window.matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
  return layout;
}

function draw(place, chart) {
  Plotly.react(place, chart.traces, layoutOf(chart), { responsive: true, displaylogo: false });
}

const groups = JSON.parse(document.getElementById("charts").textContent);
for (const place of document.querySelectorAll("div.chart")) draw(place, groups[place.dataset.charts][0]);

function choose(select) {
  const figure = select.closest("figure");
  draw(figure.querySelector("div.chart"), groups[select.dataset.charts][select.value]);
  figure.querySelector("figcaption").textContent = select.selectedOptions[0].dataset.caption;
}

for (const select of document.querySelectorAll("select[data-charts]")) {
  select.addEventListener("change", () => choose(select));
  if (select.selectedIndex > 0) choose(select); // a browser may remember the choice when a page is loaded again
}
