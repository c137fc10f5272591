// Charts of a route: the tables of values that the page has, drawn by uPlot, with one time and one zoom for all.

import uPlot from "./vendor/uplot.js";

const HEIGHT = 170;
/** Steps without a value after which a line is interrupted. */
const GAP = 3;
const LENGTHS = { "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000 };

const short = (value) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format(value);
const parts = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"], [0.001, "ms"]];
const UNITS = {
  number: short,
  rate: (value) => `${short(value)}/s`,
  span: (value) => {
    const [size, unit] = parts.find(([least]) => value >= least) ?? parts.at(-1);
    return value ? `${short(value / size)} ${unit}` : "0 s";
  },
};

/** The drawn charts by figure: uPlot, times, and the texts of the values by time. */
const charts = new Map();
/** The time under the pointer and the zoom, in seconds since the epoch; null for none. */
let pointed = null;
let zoom = null;
let applying = false;

/** The table of a figure: times, values by line, and a text for each time. */
function read(figure, step) {
  const names = [...figure.querySelectorAll("thead th")].slice(1).map((head) => head.textContent);
  const times = [];
  const lines = names.map(() => []);
  const texts = new Map();
  for (const row of figure.querySelectorAll("tbody tr")) {
    const [head, ...cells] = row.children;
    const at = Number(head.dataset.at);
    if (times.length && at - times.at(-1) > GAP * step) {
      times.push(times.at(-1) + step);
      lines.forEach((line) => line.push(null));
    }
    times.push(at);
    lines.forEach((line, place) => line.push(cells[place].dataset.value === undefined ? null : Number(cells[place].dataset.value)));
    const shown = cells.map((cell, place) => (names.length > 1 ? `${names[place]} ${cell.textContent}` : cell.textContent));
    texts.set(at, `${head.textContent} ${shown.filter((_, place) => cells[place].dataset.value !== undefined).join(", ")}`);
  }
  return { times, lines, texts };
}

function plot(figure) {
  const { begin, end, step } = Object.fromEntries(Object.entries(figure.closest(".plots").dataset).map(([name, text]) => [name, Number(text)]));
  const { times, lines, texts } = read(figure, step);
  const place = figure.querySelector(".plot");
  const colours = getComputedStyle(place);
  const colour = (name) => colours.getPropertyValue(name).trim();
  const write = UNITS[figure.dataset.unit];
  const axis = { stroke: colour("--dim"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const chart = new uPlot({
    width: Math.max(200, place.clientWidth), height: HEIGHT,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false }, points: { size: 6 } },
    scales: {
      x: { min: zoom?.[0] ?? begin, max: zoom?.[1] ?? end },
      y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] },
    },
    axes: [
      { ...axis, size: 26, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toISOString().slice(...(end - begin > 86_400 ? [5, 16] : [11, 16])).replace("T", " ")), space: end - begin > 86_400 ? 90 : 60 },
      { ...axis, size: 64, values: (_, ticks) => ticks.map(write) },
    ],
    series: [{}, ...lines.map((_, number) => ({ stroke: colour(`--s${number}`), width: 1.5 }))],
    hooks: {
      setCursor: [(one) => { if (one.cursor.event && one.cursor.idx !== null) point(one.data[0][one.cursor.idx]); }],
      setScale: [(one, name) => { if (name === "x" && !applying) zoomTo(one.scales.x.min, one.scales.x.max); }],
    },
  }, [times, ...lines], place);
  charts.set(figure, { chart, times, texts, begin, end });
}

/** Show the values of one time in all charts. */
function point(at) {
  pointed = at;
  for (const [figure, { chart, texts }] of charts) {
    const near = at === null ? undefined : [...texts.keys()].reduce((best, one) => (Math.abs(one - at) < Math.abs(best - at) ? one : best));
    figure.querySelector(".value").textContent = near === undefined ? "" : texts.get(near);
    if (near === undefined) chart.setCursor({ left: -10, top: -10 }, false);
    else if (!chart.cursor.event || chart.cursor.left < 0) chart.setCursor({ left: chart.valToPos(near, "x"), top: 0 }, false);
  }
}

/** Show one part of the time in all charts, and a link to the finest charts of it. */
function zoomTo(begin, end) {
  const [first] = charts.values();
  const whole = !first || begin === null || (begin <= first.begin && end >= first.end);
  zoom = whole ? null : [begin, end];
  applying = true;
  for (const { chart, begin: from, end: to } of charts.values()) chart.batch(() => chart.setScale("x", zoom ? { min: begin, max: end } : { min: from, max: to }));
  applying = false;
  const bar = document.querySelector(".zoomed");
  if (!bar) return;
  bar.hidden = whole;
  if (whole) return;
  const length = Object.keys(LENGTHS).find((name) => LENGTHS[name] >= end - begin) ?? "30d";
  bar.querySelector("#closer").href = `?${new URLSearchParams({ range: length, until: Math.ceil(Math.min(end, begin + LENGTHS[length])) })}`;
}

function draw() {
  for (const [figure, { chart }] of charts) if (!figure.isConnected || figure.dataset.stale) { chart.destroy(); charts.delete(figure); }
  for (const figure of document.querySelectorAll("figure[data-unit]")) {
    delete figure.dataset.stale;
    if (!charts.has(figure)) plot(figure);
  }
  if (zoom) zoomTo(...zoom);
  if (pointed !== null) point(pointed);
}

document.addEventListener("keydown", (event) => {
  if (!event.target.matches?.(".plots") || event.ctrlKey || event.metaKey || event.altKey) return;
  const [first] = charts.values();
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) {
    const times = [...new Set([...charts.values()].flatMap(({ texts }) => [...texts.keys()]))].sort((one, other) => one - other);
    const place = pointed === null ? times.length - (step === 1 ? 1 : 0) : times.findIndex((at) => at >= pointed);
    point(times[Math.min(times.length - 1, Math.max(0, place + step))] ?? null);
  } else if (event.key === "Escape") point(null);
  else if (event.key === "0") zoomTo(null, null);
  else if (event.key === "+" || event.key === "-") {
    const [begin, end] = zoom ?? [first.begin, first.end];
    const half = ((end - begin) / 2) * (event.key === "+" ? 0.5 : 2);
    const middle = pointed ?? (begin + end) / 2;
    if (2 * half >= first.end - first.begin) zoomTo(null, null);
    else zoomTo(Math.max(first.begin, middle - half), Math.min(first.end, middle + half));
  } else return;
  event.preventDefault();
});

document.addEventListener("click", (event) => { if (event.target.closest("[data-whole]")) zoomTo(null, null); });
document.addEventListener("shown", draw);

const again = () => { document.querySelectorAll("figure[data-unit]").forEach((one) => { one.dataset.stale = "1"; }); draw(); };
let width = 0;
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width === width) return;
  width = contentRect.width;
  for (const [figure, { chart }] of charts) chart.setSize({ width: Math.max(200, figure.querySelector(".plot").clientWidth), height: HEIGHT });
}).observe(document.getElementById("main"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
draw();
