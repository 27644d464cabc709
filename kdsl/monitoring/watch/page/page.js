"use strict";
// Everything that comes from a job is set as text, and never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300, HEIGHT = 100;
const TIME = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
const DAY = new Intl.DateTimeFormat(undefined, {day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const STATES = {running: "running", ended: "ended", failed: "failed", gone: "not there any more", silent: "no answer"};

function writeTime(seconds) {
  return (Math.abs(Date.now() / 1000 - seconds) < 20 * 3600 ? TIME : DAY).format(new Date(seconds * 1000));
}

function scale(value, step, units) {
  let i = 0;
  while (Math.abs(value) >= step * 0.9995 && i < units.length - 1) { value /= step; i += 1; }
  const digits = i === 0 && Number.isInteger(value) ? 0 : Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${units[i]}`.trim();
}

function writeDuration(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${Number(seconds.toFixed(1))} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (rest >= size) parts.push(`${Math.floor(rest / size)} ${unit}`);
    rest %= size;
  }
  return parts.slice(0, 2).join(" ");
}

function writeValue(value, unit) {
  if (value === null || value === undefined) return "unknown";
  if (unit === "s") return writeDuration(value);
  if (unit === "ms") return writeDuration(value / 1000);
  const [what, per] = unit.split("/");
  if (what === "bytes") return scale(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) + (per ? `/${per}` : "");
  const number = scale(value, 1000, ["", "k", "M", "G", "T"]);
  return per ? `${number}/${per}` : number;
}

function writeExactly(value, unit) {
  return value === null ? "unknown" : `${value.toLocaleString("en", {maximumFractionDigits: 3})} ${unit}`;
}

// The child of a node with a key: the same from one answer to the next, so that focus, selections and open details stay.
function child(parent, key, tag, className = "") {
  let node = [...parent.children].find((one) => one.dataset.key === key);
  if (!node) {
    node = tag === "svg" || parent.namespaceURI === SVG ? document.createElementNS(SVG, tag) : document.createElement(tag);
    node.dataset.key = key;
    parent.append(node);
  }
  if (node.getAttribute("class") !== className) node.setAttribute("class", className);
  node.fresh = true;
  return node;
}

function text(parent, key, tag, className, value) {
  const node = child(parent, key, tag, className);
  if (node.textContent !== value) node.textContent = value;
  return node;
}

function children(parent, items, show) {
  for (const one of parent.children) one.fresh = false;
  items.forEach((item, i) => {
    const node = show(item, i);
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] || null);
  });
  for (const one of [...parent.children]) if (!one.fresh) one.remove();
}

function lines(times, values, from, to, highest) {
  const parts = [];
  let points = [];
  times.forEach((at, i) => {
    if (values[i] === null) { if (points.length) parts.push(points); points = []; return; }
    points.push([((at - from) / (to - from || 1)) * WIDTH, HEIGHT - (values[i] / highest) * (HEIGHT - 6)]);
  });
  if (points.length) parts.push(points);
  return parts.map((all) => (all.length === 1 ? [[all[0][0] - 1, all[0][1]], all[0]] : all));
}

function showPlot(parent, plot, query, now) {
  const trouble = query.troubles.find((one) => one.table === plot.table && one.metric === plot.metric);
  const figure = child(parent, plot.metric, "figure", trouble ? trouble.severity : "");
  const caption = child(figure, "caption", "figcaption");
  text(caption, "title", "span", "title", plot.title).title = `${plot.metric}: ${plot.doc}`;
  const value = text(caption, "value", "strong", "value", writeValue(plot.value, plot.unit));
  value.title = writeExactly(plot.value, plot.unit);
  value.dataset.value = plot.value;
  const known = plot.values.filter((one) => one !== null);
  const most = known.length ? Math.max(...known) : 0;
  const highest = most || 1;
  const from = query.from, to = Math.max(now, from + 1);
  const svg = child(figure, "plot", "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${plot.title} from ${writeTime(from)} to now: at most ${writeValue(most, plot.unit)}, now ${writeValue(plot.value, plot.unit)}`);
  const parts = lines(query.times, plot.values, from, to, highest);
  const join = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
  child(svg, "area", "path", "area").setAttribute("d", parts.map((p) => `M${p[0][0].toFixed(1)},${HEIGHT}L${join(p)}L${p.at(-1)[0].toFixed(1)},${HEIGHT}Z`).join(""));
  child(svg, "curve", "path", "curve").setAttribute("d", parts.map((p) => `M${join(p)}`).join(""));
  const isLimited = plot.limit && plot.limit <= most;
  const limit = child(svg, "limit", "line", "limit");
  const height = HEIGHT - ((plot.limit || 0) / highest) * (HEIGHT - 6);
  for (const [name, number] of [["x1", 0], ["x2", WIDTH], ["y1", height], ["y2", height]]) limit.setAttribute(name, number);
  limit.setAttribute("visibility", isLimited ? "visible" : "hidden");
  const axis = child(figure, "axis", "div", "axis");
  text(axis, "from", "span", "", writeTime(from));
  const span = child(axis, "most", "span");
  svg.state = {query, plot, from, to, span, most};
  if (!svg.onpointermove) {
    child(svg, "cursor", "line", "cursor").setAttribute("visibility", "hidden");
    svg.onpointermove = (event) => { svg.pointer = event.clientX; showCursor(svg); };
    svg.onpointerleave = () => { svg.pointer = null; showCursor(svg); };
  }
  showCursor(svg);
  return figure;
}

// Where the pointer is, the line below a plot says the value there; otherwise the highest one.
function showCursor(svg) {
  const {query, plot, from, to, span, most} = svg.state;
  const cursor = [...svg.children].find((one) => one.dataset.key === "cursor");
  const box = svg.getBoundingClientRect();
  const wanted = svg.pointer == null ? NaN : from + ((svg.pointer - box.left) / box.width) * (to - from);
  let nearest = -1;
  query.times.forEach((at, i) => {
    if (plot.values[i] !== null && !(Math.abs(at - wanted) >= Math.abs(query.times[nearest] - wanted))) nearest = i;
  });
  const isShown = svg.pointer != null && nearest >= 0;
  const x = isShown ? ((query.times[nearest] - from) / (to - from)) * WIDTH : 0;
  for (const [name, number] of [["x1", x], ["x2", x], ["y1", 0], ["y2", HEIGHT]]) cursor.setAttribute(name, number);
  cursor.setAttribute("visibility", isShown ? "visible" : "hidden");
  const label = isShown
    ? `${writeTime(query.times[nearest])}: ${writeValue(plot.values[nearest], plot.unit)}`
    : `max ${writeValue(most, plot.unit)}`;
  if (span.textContent !== label) span.textContent = label;
}

function showRows(parent, key, head, rows) {
  const box = child(parent, key, "div", "wide");
  const table = child(box, "table", "table");
  children(child(table, "head", "thead"), [head], (cells) => showRow(child(table, "head", "thead"), "row", "th", cells));
  const body = child(table, "body", "tbody");
  children(body, rows, (cells, i) => showRow(body, String(i), "td", cells));
  return box;
}

function showRow(parent, key, tag, cells) {
  const row = child(parent, key, "tr");
  children(row, cells, (cell, i) => text(row, String(i), tag, "", String(cell ?? "")));
  return row;
}

function showTable(parent, table, query, now) {
  const section = child(parent, table.name, "section");
  section.style.flex = `${table.plots.length > 2 ? 1 : 0} 1 ${Math.max(1, table.plots.length) * 15}rem`;
  const heading = child(section, "heading", "h3");
  text(heading, "role", "span", "role", table.role ? `${table.role} ` : "the query");
  text(heading, "name", "span", "", table.name);
  const counts = child(section, "counts", "dl", "counts");
  children(counts, table.counts, (count) => {
    const pair = child(counts, `${count.metric} ${count.label}`, "div", count.value ? "" : "none");
    const trouble = query.troubles.find((one) => one.table === table.name && one.metric === count.metric && one.label === count.label);
    text(pair, "label", "dt", "", count.title).title = `${count.metric}: ${count.doc}`;
    const value = text(pair, "value", "dd", trouble ? trouble.severity : "", writeValue(count.value, count.unit));
    value.title = writeExactly(count.value, count.unit);
    value.dataset.value = count.value;
    return pair;
  });
  const plots = child(section, "plots", "div", "plots");
  children(plots, table.plots, (plot) => showPlot(plots, plot, query, now));
  const details = child(section, "details", "details");
  details.hidden = !table.more.length && !table.partitions.length;
  text(details, "summary", "summary", "", table.partitionCount ? `more, and ${table.partitionCount.toLocaleString("en")} partition${table.partitionCount === 1 ? "" : "s"}` : "more");
  showRows(details, "more", ["metric", "value"], table.more.map((one) => [one.metric, writeValue(one.value, one.unit)]));
  const partitions = showRows(details, "partitions", ["topic", "partition", "lag", "offset", "committed"],
    table.partitions.map((row) => [row[0], ...row.slice(1).map((cell) => (typeof cell === "number" ? cell.toLocaleString("en") : cell))]));
  partitions.hidden = !table.partitions.length;
  const rest = table.partitionCount - table.partitions.length;
  text(details, "rest", "p", "", rest > 0 ? `and ${rest.toLocaleString("en")} partitions with less lag` : "");
  return section;
}

function showQuery(parent, query, now, withEndpoint) {
  const article = child(parent, `${query.endpoint} ${query.name}`, "article", query.state === "running" ? "" : "stale");
  article.setAttribute("aria-label", `query ${query.name}`);
  const head = child(article, "head", "div", "head");
  text(head, "name", "h2", "", query.name);
  text(head, "state", "span", `state ${query.state}`, STATES[query.state]);
  const about = [query.state === "running" ? `for ${writeDuration(Math.max(1, Math.round(now - query.since)))}` : `since ${writeTime(query.since)}`];
  if (query.restarts) about.push(`restarted ${query.restarts === 1 ? "once" : `${query.restarts} times`} while it was watched`);
  if (query.state !== "running" && query.tables.some((table) => table.plots.length)) about.push("the values are the last ones");
  if (withEndpoint) about.push(query.endpoint);
  text(head, "about", "span", "about", about.join(" · "));
  const troubles = child(article, "troubles", "ul", "troubles");
  children(troubles, query.troubles, (one, i) => {
    const since = one.since === null ? "" : `, since ${writeTime(one.since)}`;
    return text(troubles, String(i), "li", one.severity, `${one.table ? `${one.table}: ` : ""}${one.text}${since}`);
  });
  const tables = child(article, "tables", "div", "tables");
  children(tables, query.tables.filter((table) => table.name || table.plots.length || table.counts.length), (table) => showTable(tables, table, query, now));
  return article;
}

function showEndpoints(answer) {
  const list = document.getElementById("endpoints");
  const lines = answer.endpoints.flatMap((one) => {
    if (one.since === null) return [[one.url, "note", `${one.url}: asking …`]];
    if (one.error !== null) return [[one.url, "bad", `${one.url}: no answer since ${writeTime(one.since)}: ${one.error}`]];
    const isEmpty = !answer.queries.some((query) => query.endpoint === one.url);
    return isEmpty ? [[one.url, "note", `${one.url}: answers, but no streaming query of kdsl has run there yet`]] : [];
  });
  document.getElementById("hint").hidden = answer.queries.length > 0 || answer.endpoints.every((one) => one.error === null);
  children(list, lines, ([key, kind, line]) => text(list, key, "li", kind, line));
}

function show(answer) {
  const queries = answer.queries;
  showEndpoints(answer);
  const main = document.getElementById("queries");
  children(main, queries, (query) => showQuery(main, query, answer.now, answer.endpoints.length > 1));
  const parts = [`${queries.length} ${queries.length === 1 ? "query" : "queries"}`];
  const failed = queries.filter((query) => query.state === "failed").length;
  const troubled = queries.filter((query) => query.state !== "failed" && query.troubles.some((one) => one.severity !== "pending")).length;
  if (failed) parts.push(`${failed} failed`);
  if (troubled) parts.push(`${troubled} in trouble`);
  document.getElementById("summary").textContent = `${parts.join(", ")} at ${writeTime(answer.now)}`;
  document.title = `${troubled + failed ? `(${troubled + failed}) ` : ""}kdsl watch`;
}

let timer, last = null;

async function update() {
  clearTimeout(timer);
  const chosen = document.querySelector("input[name=window]:checked").value;
  let every = 2;
  try {
    const answer = await (await fetch(`data?window=${chosen}`, {signal: AbortSignal.timeout(10000)})).json();
    if (chosen === document.querySelector("input[name=window]:checked").value) {
      last = answer.now;
      every = answer.every;
      show(answer);
    }
  } catch (error) {
    document.getElementById("summary").textContent = `kdsl watch does not answer any more${last ? ` since ${writeTime(last)}` : ""}: start it again`;
    if (!(error instanceof TypeError)) console.error(error);
  }
  timer = setTimeout(update, every * 1000);
}

document.getElementById("windows").addEventListener("change", update);
update();
