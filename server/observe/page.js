"use strict";
const POLL_MS = 2000;
// Of a run, its numbers of now; [name, title, kind].
const TILES = [
  ["counterweight_drift_k3_nats", "k3 (nats per token)", "number"],
  ["counterweight_drift_effective_sample_size_ratio", "effective sample size", "share"],
  ["counterweight_drift_kept_token_ratio", "tokens kept", "share"],
  ["counterweight_drift_kept_effective_sample_size_ratio", "kept effective sample size", "share"],
  ["counterweight_drift_weight_outside_ratio", "weights out of bounds", "share"],
  ["counterweight_drift_batches_total", "batches", "count"],
  ["counterweight_drift_tokens_total", "tokens", "count"],
  ["counterweight_drift_non_finite_tokens_total", "non-finite tokens", "count"],
  ["counterweight_drift_policy_version", "policy version", "count"],
];
const CURVES = [
  ["counterweight_drift_k3_nats", "KL divergence, k3 (nats per token, log scale)", "number", true],
  ["counterweight_drift_kl_nats", "KL divergence, k1 (nats per token)", "number"],
  ["counterweight_drift_effective_sample_size_ratio", "Effective sample size", "share"],
  ["counterweight_drift_kept_token_ratio", "Tokens kept", "share"],
  ["counterweight_drift_kept_effective_sample_size_ratio", "Kept effective sample size", "share"],
  ["counterweight_drift_weight_outside_ratio", "Tokens with a weight out of its bounds", "share"],
  ["counterweight_drift_weight_max", "Largest weight", "number"],
  ["counterweight_drift_chi2_token", "chi2 by token", "number"],
  ["counterweight_loss", "Policy loss", "number"],
  ["counterweight_loss_gradient_norm", "Gradient norm", "number"],
  ["counterweight_loss_clip_ratio", "Clipped tokens", "share"],
];
const SERVICE = [
  ["counterweight_requests_in_flight", "in flight", "count"],
  ["counterweight_requests_queued", "waiting for admission", "count"],
  ["counterweight_admitted_bytes", "bytes admitted", "bytes"],
  ["counterweight_connections", "connections", "count"],
  ["process_resident_memory_bytes", "resident memory", "bytes"],
  ["counterweight_non_finite_rejections_total", "refused: not finite", "count"],
];
// Below this share of the last batch, as in deploy/prometheus/rules.yml, a number has a word beside it, and both have a colour.
const LEAST_SHARE = 0.5;
const WORDS = {
  counterweight_drift_kept_token_ratio: share => share === 0 ? "all dropped" : "most dropped",
  counterweight_drift_effective_sample_size_ratio: () => "low sample size",
};
// The last step that a trainer reported, by its state: a word, and what to do.
const STEP_WORDS = {
  unused: ["weights unused",
    "The last reported step's loss did not use its weights or its keep mask: find the loss that runs, and multiply each token by both."],
  replaced: ["weights replaced",
    "The last reported step's loss used other weights or another mask than it received: of other rows, or shifted by a token."],
  rounded: ["weights rounded", "The last reported step's loss used rounded weights: keep them in float32 up to the loss."],
  not_issued: ["not corrected", "The last reported step was trained without a correction: the trainer's log has the reason."],
};
const OTHER_METHOD = ["not the declared method",
  "Another method corrected the last batch than the run declares: the answer's warning names both."];
const BATCH_IS_OLD_SECONDS = 3600;
const STAGES = ["decode", "queue", "receive", "compute", "encode"];
const BATCHES = "counterweight_drift_batches_total";

const at = id => document.getElementById(id);
// All text of the server comes into the page here, as text.
const make = (tag, text = "", className = "") => {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
};
const draw = (tag, attributes, text = "") => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
};

function show(value, kind) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  if (kind === "share") return (100 * value).toFixed(value < 0.1 ? 2 : 1) + " %";
  if (kind === "count") return value.toLocaleString("en");
  if (kind === "seconds") return value < 1 ? (1000 * value).toPrecision(3) + " ms" : value.toPrecision(3) + " s";
  if (kind === "bytes") return (value / 2 ** 20).toFixed(1) + " MiB";
  const size = Math.abs(value);
  return value === 0 ? "0" : size < 1e-3 || size >= 1e5 ? value.toExponential(2) : value.toPrecision(3);
}

function ago(seconds) {
  if (seconds < 60) return Math.floor(seconds) + " s ago";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min ago";
  return Math.floor(seconds / 3600) + " h ago";
}

// Prometheus' text: a map from names to [{labels, value}].
function parse(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    const found = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found || line.startsWith("#")) continue;
    const labels = {};
    for (const [, name, value] of (found[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => c === "n" ? "\n" : c);
    }
    const value = Number(found[3].replace(/^([+-]?)Inf$/, "$1Infinity"));
    if (!families.has(found[1])) families.set(found[1], []);
    families.get(found[1]).push({labels, value});
  }
  return families;
}

const series = (families, name, labels = {}) => (families.get(name) || []).filter(
  one => Object.entries(labels).every(([key, value]) => one.labels[key] === value));
const number = (families, name, labels) => series(families, name, labels)[0]?.value;

const wordOf = (name, value) => name in WORDS && value < LEAST_SHARE ? WORDS[name](value) : "";
const wordsOf = (families, {name: run, last_step: step, faults: [fault] = [], other_method: other, replicas}) =>
  [fault?.replaceAll("_", " "), other && OTHER_METHOD[0], replicas && "a replica drifts", STEP_WORDS[step]?.[0], ...Object.keys(WORDS).map(name => wordOf(name, number(families, name, {run})))].filter(word => word);

function fill(parent, ...children) { parent.replaceChildren(...children); }

function tiles(table, families, labels) {
  return table.filter(([name]) => number(families, name, labels) !== undefined).map(([name, title, kind]) => {
    const tile = make("div", "", "card tile");
    const value = number(families, name, labels);
    const shown = make("b", show(value, kind));
    shown.dataset.metric = name;
    shown.dataset.value = String(value);
    shown.title = name + " " + value;
    tile.append(shown, make("span", title, "faint"));
    const word = wordOf(name, value);
    if (word) {
      shown.className = "bad";
      tile.append(make("span", word, "bad word"));
    }
    return tile;
  });
}

function curve(values, times, kind, isLog, width) {
  const height = 130, left = 48, right = 8, top = 8, bottom = 18;
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img"});
  const scale = isLog ? v => Math.log10(Math.max(v, 1e-12)) : v => v;
  const finite = values.filter(v => Number.isFinite(v));
  if (!finite.length) return svg;
  let low = Math.min(...finite), high = Math.max(...finite);
  if (kind === "share") { low = Math.min(low, 0.98 * low); high = Math.min(1, Math.max(high, 1.02 * high)); }
  if (low === high) { low -= Math.abs(low) / 10 || (isLog ? 0 : 0.01); high += Math.abs(high) / 10 || 0.01; }
  if (kind === "share") { low = Math.max(0, low); high = Math.min(1, high); }
  const from = scale(low), to = scale(high);
  const x = i => left + (width - left - right) * (values.length < 2 ? 0.5 : i / (values.length - 1));
  const y = v => top + (height - top - bottom) * (1 - (scale(v) - from) / ((to - from) || 1));
  for (const part of [0, 0.5, 1]) {
    const value = isLog ? 10 ** (from + part * (to - from)) : low + part * (high - low);
    svg.append(draw("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}));
    svg.append(draw("text", {x: left - 5, y: y(value) + 4, "text-anchor": "end"}, show(value, kind)));
  }
  let path = "", pen = "M";
  values.forEach((v, i) => {
    if (!Number.isFinite(v)) { pen = "M"; return; }
    path += `${pen}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = "L";
  });
  svg.append(draw("path", {class: "curve", d: path}));
  const last = values.length - 1;
  if (Number.isFinite(values[last])) svg.append(draw("circle", {class: "dot", cx: x(last), cy: y(values[last]), r: 3}));
  const clock = time => new Date(time).toLocaleTimeString();
  svg.append(draw("text", {x: left, y: height - 3}, clock(times[0])));
  if (last > 0) svg.append(draw("text", {x: width - right, y: height - 3, "text-anchor": "end"}, clock(times[last])));
  const note = draw("title", {});
  svg.append(note);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * width;
    const i = Math.max(0, Math.min(last, Math.round((place - left) / (width - left - right) * last)));
    note.textContent = `${clock(times[i])}: ${values[i] === null ? "–" : values[i]}`;
  });
  return svg;
}

function curves(run) {
  // As the style sheet lays the cards out, without their padding.
  const all = at("curves").clientWidth, columns = Math.max(1, Math.floor((all + 12) / 332));
  const width = Math.max(240, (all - 12 * (columns - 1)) / columns - 26);
  return CURVES.filter(([name]) => run.gauges[name]).map(([name, title, kind, isLog]) => {
    const card = make("div", "", "card");
    card.dataset.curve = name;
    card.dataset.points = run.gauges[name].length;
    card.dataset.last = String(run.gauges[name].at(-1));
    card.append(make("h3", title), curve(run.gauges[name], run.times, kind, isLog, width));
    return card;
  });
}

function histogram(run) {
  const width = 360, height = 130, count = run.histogram.length;
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img"});
  const total = run.histogram.reduce((a, b) => a + b, 0) || 1, most = Math.max(...run.histogram, 1);
  run.histogram.forEach((tokens, i) => {
    const size = 88 * tokens / most, x = width * i / count;
    const bar = draw("rect", {class: "bar", x: x + 1, y: 104 - size, width: width / count - 2, height: size});
    bar.append(draw("title", {}, `${tokens} tokens`));
    bar.dataset.tokens = tokens;
    svg.append(bar, draw("text", {x: x + width / count / 2, y: 100 - size, "text-anchor": "middle"},
      tokens ? (100 * tokens / total).toPrecision(2) : ""));
  });
  run.edges.forEach((edge, i) => svg.append(draw("text",
    {x: width * (i + 1) / count, y: 118, "text-anchor": "middle"}, Math.exp(edge).toFixed(2))));
  return svg;
}

function row(...cells) {
  const line = make("tr");
  cells.forEach(cell => line.append(cell instanceof Node ? cell : make("td", cell)));
  return line;
}
const head = (...titles) => row(...titles.map(title => make("th", title)));

function dropped(families, run) {
  const tokens = number(families, "counterweight_drift_tokens_total", {run});
  const sequences = number(families, "counterweight_drift_sequences_total", {run});
  const rules = series(families, "counterweight_drift_dropped_tokens_total", {run});
  if (!rules.length) return [row("The run's method has no rules.")];
  return [head("rule", "tokens", "sequences")].concat(rules.map(({labels, value}) => {
    const rows = number(families, "counterweight_drift_dropped_sequences_total", labels);
    const line = row(labels.rule, show(value / tokens, "share"), show(rows / sequences, "share"));
    line.dataset.rule = labels.rule;
    line.dataset.tokens = value;
    return line;
  }));
}

// [] if no batch of the run told versions.
function staleness(families, run) {
  const counts = series(families, "counterweight_drift_staleness_tokens_total", {run});
  const all = counts.reduce((sum, {value}) => sum + value, 0);
  // "unknown" comes last.
  const order = label => Number.isNaN(parseInt(label)) ? Infinity : parseInt(label);
  return counts.sort((a, b) => order(a.labels.staleness) - order(b.labels.staleness)).map(({labels, value}) => {
    const of = name => show(number(families, `counterweight_drift_staleness_${name}_nats`, labels), "number");
    const line = row(labels.staleness, show(value / all, "share"), of("k3"), of("kl"));
    line.dataset.staleness = labels.staleness;
    line.dataset.tokens = value;
    return line;
  });
}

// [] unless batches of the run have labels of several replicas.
function replicas({replicas: drifts = []}) {
  const all = drifts.reduce((sum, {tokens}) => sum + tokens, 0);
  return drifts.map(({name, tokens, k3, share, of_others: others, outlier}) => {
    const line = row(name, show(tokens / all, "share"), show(k3, "number"), show(share, "share"),
      others ? others.toPrecision(2) : "–");
    if (outlier) line.className = "bad";
    line.dataset.replica = name;
    line.dataset.outlier = String(outlier);
    return line;
  });
}

// [] if no trainer reports steps.
function receipts(families, run) {
  const counts = series(families, "counterweight_step_receipts_total", {run}).filter(({value}) => value > 0);
  const all = counts.reduce((sum, {value}) => sum + value, 0);
  return counts.map(({labels, value}) => {
    const line = row(labels.state.replaceAll("_", " "), show(value, "count"), show(value / all, "share"));
    line.dataset.receipt = labels.state;
    line.dataset.value = value;
    return line;
  });
}

function requests(families) {
  return [head("method", "code", "number")].concat(series(families, "counterweight_requests_total").map(({labels, value}) => {
    const line = row(labels.method, labels.code, show(value, "count"));
    line.dataset.request = labels.method + " " + labels.code;
    line.dataset.value = value;
    return line;
  }));
}

function stages(families) {
  const name = "counterweight_request_stage_seconds";
  return STAGES.filter(stage => number(families, name + "_count", {stage}) > 0).map(stage => row(stage,
    show(number(families, name + "_sum", {stage}) / number(families, name + "_count", {stage}), "seconds")));
}

function snippet(address) {
  return `import counterweight_rl as cw
import numpy as np

rng = np.random.default_rng(0)
rollout = -rng.exponential(size=(64, 512)).astype(np.float32)
old = rollout + rng.normal(0, 0.05, rollout.shape).astype(np.float32)

with cw.Client(${JSON.stringify(address)}) as client:
    result = client.correct(
        rollout_log_probs=rollout,
        old_log_probs=old,
        response_mask=np.ones(rollout.shape, dtype=bool),
        method="token_tis",
        run="first",
    )
print(result)`;
}

let chosen = null;
const called = name => name || "(without a label)";

function render(families, data) {
  const ready = number(families, "counterweight_ready") === 1;
  const bad = data.runs.filter(run => run.seconds < BATCH_IS_OLD_SECONDS && wordsOf(families, run).length).length;
  const look = bad ? `, look at ${bad} ${bad === 1 ? "run" : "runs"}` : "";
  at("state").textContent = (ready ? "ready" : "not ready") + look;
  at("state").className = ready && !bad ? "good" : "bad";
  const build = series(families, "counterweight_build_info")[0]?.labels || {};
  const up = Date.now() / 1000 - number(families, "process_start_time_seconds");
  at("build").textContent =
    `${build.version} ${build.revision}, ${build.backend} ${build.instruction_set}, started ${ago(Math.max(0, up))}`;

  at("empty").hidden = data.runs.length > 0;
  if (!data.runs.length) at("snippet").textContent = snippet(data.address);
  const focused = document.activeElement?.dataset?.run;
  fill(at("runs"), ...data.runs.map(listed => {
    const {name, seconds} = listed;
    const item = make("li"), button = make("button");
    const k3 = number(families, "counterweight_drift_k3_nats", {run: name});
    button.append(make("b", called(name)), make("span", `k3 ${show(k3, "number")}, ${ago(seconds)}`, "faint"));
    const words = wordsOf(families, listed).join(", ");
    if (words) button.append(make("span", words, "bad word"));
    button.dataset.run = name;
    button.setAttribute("aria-current", String(name === chosen));
    button.addEventListener("click", () => { choose(name); location.hash = encodeURIComponent(name); });
    item.append(button);
    return item;
  }));
  if (focused !== undefined) {
    [...at("runs").querySelectorAll("button")].find(button => button.dataset.run === focused)?.focus();
  }

  at("run").hidden = !data.run;
  if (data.run) {
    const run = data.run.name;
    at("name").textContent = called(run);
    const share = number(families, "counterweight_drift_kept_token_ratio", {run});
    const {last_step: last, faults: [fault] = [], why, other_method: other, audit, replicas: outliers} = data.runs.find(({name}) => name === run) || {};
    const advice = fault ? `The last examined batch has the fault "${fault}": ` +
      "save such a batch, and counterweight doctor FILE explains it." : other ? OTHER_METHOD[1] : STEP_WORDS[last]?.[1] ??
      (outliers && outliers[0].toUpperCase() + outliers.slice(1) + ": compare its weights, precision and version with the others'.");
    at("advice").hidden = !advice && !(share < LEAST_SHARE);
    at("advice").textContent = advice ? advice : `The rules dropped ${show(1 - share, "share")} of the last batch's tokens: "Dropped by rule" names ` +
      "the rule. If k3 is at its usual level, the rule's interval is too narrow for this engine.";
    at("why").hidden = !why;
    at("why").textContent = why ? `Last examined batch: ${why}` : "";
    at("audit").hidden = !audit;
    at("audit").textContent = audit ? `Engine and trainer by audited rows: ${audit}` : "";
    fill(at("tiles"), ...tiles(TILES, families, {run}));
    fill(at("curves"), ...curves(data.run));
    fill(at("histogram"), histogram(data.run));
    const reported = receipts(families, run);
    at("applied").hidden = !reported.length;
    fill(at("receipts"), head("weights", "steps", "share"), ...reported);
    fill(at("dropped"), ...dropped(families, run));
    const origins = replicas(data.run);
    at("origins").hidden = !origins.length;
    fill(at("replicas"), head("replica", "tokens", "k3", "of all k3", "x others"), ...origins);
    const stale = staleness(families, run);
    at("stale").hidden = !stale.length;
    fill(at("staleness"), head("staleness", "tokens", "k3", "KL, k1"), ...stale);
  }
  fill(at("service"), ...tiles(SERVICE, families));
  fill(at("requests"), ...requests(families));
  fill(at("stages"), ...stages(families));
}

async function read(path) {
  const answer = await fetch(path, {cache: "no-store"});
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer;
}

let timer = 0, newest = 0;
async function poll() {
  clearTimeout(timer);
  const turn = ++newest;
  try {
    let data = await (await read("page.json?run=" + encodeURIComponent(chosen ?? ""))).json();
    if (!data.runs.some(run => run.name === chosen) && data.runs.length) {
      // The one that was busy last.
      chosen = data.runs.reduce((a, b) => b.seconds < a.seconds ? b : a).name;
      data = await (await read("page.json?run=" + encodeURIComponent(chosen))).json();
    }
    const families = parse(await (await read("metrics")).text());
    if (turn !== newest) return;
    at("lost").hidden = true;
    render(families, data);
  } catch (error) {
    if (turn !== newest) return;
    at("lost").textContent = `The server does not answer (${error.message}); what is below was seen last.`;
    at("lost").hidden = false;
  }
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
function choose(name) {
  chosen = name;
  poll();
}
function linked() {
  const text = location.hash.slice(1);
  try { return decodeURIComponent(text); } catch { return text; }
}
addEventListener("hashchange", () => { if (linked() !== chosen) choose(linked()); });
choose(location.hash ? linked() : null);
