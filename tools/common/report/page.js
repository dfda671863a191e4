'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  for (const child of children)
    if (child !== null && child !== undefined) node.append(child);
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const round = (value, digits) => Number(value.toFixed(digits)).toString();

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base && unit + 1 < units.length) {
    value /= base;
    ++unit;
  }
  return (unit === 0 ? round(value, 0) : value.toFixed(1)) + (units[unit] ? ' ' + units[unit] : '');
}
const bytesText = (n) => scaled(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
const countText = (n) => scaled(n, 1000, ['', 'K', 'M', 'G', 'T', 'P']);
const plural = (n, what) => n + ' ' + what + (n === 1 ? '' : what.endsWith('ch') ? 'es' : 's');

/// A plan's expression: pairs of an operation and its argument, in reverse Polish notation.
function evaluate(code, symbols) {
  const stack = [];
  for (let i = 0; i < code.length; i += 2) {
    if (code[i] === 0) stack.push(code[i + 1]);
    else if (code[i] === 1) stack.push(symbols[code[i + 1]]);
    else {
      const b = stack.pop();
      const a = stack.pop();
      stack.push([a + b, a - b, a * b, Math.ceil(a / b), Math.min(a, b), Math.max(a, b)][code[i] - 2]);
    }
  }
  return stack[0];
}

/// Cells say in narrow windows which column they are of.
function labelled(table) {
  const titles = [...table.querySelectorAll('th')].map((cell) => cell.textContent);
  for (const row of table.rows)
    [...row.cells].forEach((cell, i) => { if (titles[i]) cell.dataset.label = titles[i]; });
  return table;
}
const isNarrow = () => window.matchMedia('(max-width: 640px)').matches;

//===-- summary and remarks -----------------------------------------------------------------===//

const functionNames = (list) => [...new Set(list.map((f) => f.name))];
const mainName = ['decode', 'forward'].find((name) => data.graphs.some((g) => g.name === name));
const onGpu = data.functions.some((f) => f.device === 'gpu');
const largest = (field) => Math.max(0, ...data.functions.map((f) => f[field] || 0));
const deviceParts = [
  ['weights', data.weight_bytes, '--linear'],
  ['KV state', data.kv ? data.kv.bytes : 0, '--attention'],
  ['activations', largest('arena'), '--norm'],
  ['scratch', largest('scratch'), '--other'],
];

function showSummary() {
  document.title = data.model + ' - gpt2c';
  byId('title').textContent = data.model;
  byId('subtitle').textContent = 'gpt2c ' + data.compiler + ', ' + data.precision + '; ' + data.flags.join(' ');
  const tiles = byId('tiles');
  const tile = (value, what) => tiles.append(html('div', {class: 'tile'}, html('b', {}, value), html('span', {}, what)));
  const graph = data.graphs.find((g) => g.name === mainName) || data.graphs[0];
  if (graph) tile(graph.imported + ' \u2192 ' + graph.ops, 'ops of the imported graph, and of @' + graph.name);
  const step = data.functions.find((f) => f.name === 'decode' && f.device === 'gpu');
  if (step) tile(String(step.steps.length), 'launches of a decode step');
  tile(bytesText(data.weight_bytes), plural(data.weights, 'tensor') + ' of weights');
  if (data.kv) tile(bytesText(data.kv.bytes_per_token), 'of KV state for each token');
  const missed = data.remarks.filter((r) => r.severity === 'missed').length;
  tile(String(missed), missed === 1 ? 'missed fusion' : 'missed fusions');
}

function showRemarks() {
  const body = byId('remarks-body');
  if (data.remarks.length === 0) {
    body.append(html('p', {class: 'hint'}, 'None: everything that was expected happened.'));
    return;
  }
  const table = html('table', {}, html('tr', {}, ...['', 'pass', 'message', 'stopped by', 'costs a step', 'ONNX nodes'].map((t) => html('th', {}, t))));
  const cost = (r) => [r.launches > 0 ? plural(r.launches, 'launch') : '',
    r.bytes > 0 ? bytesText(r.bytes) : ''].filter((part) => part).join(', ');
  for (const r of data.remarks)
    table.append(html('tr', {}, html('td', {class: r.severity === 'missed' ? 'missed' : ''}, r.severity),
      html('td', {class: 'code tight'}, r.pass), html('td', {class: 'text'}, r.message), html('td', {class: 'code'}, r.stopped_by),
      html('td', {}, cost(r)), html('td', {class: 'code'}, nodesText(r.nodes, 0))));
  body.append(labelled(table));
}

function showVerification() {
  const body = byId('verification-body');
  const v = data.verification;
  if (!v) {
    body.append(html('p', {class: 'hint'}, 'Not verified: --verify=off.'));
    return;
  }
  const titles = ['function', 'sequences', 'tokens', 'largest error', 'in double', 'allowed'];
  const table = html('table', {}, html('tr', {}, ...titles.map((t) => html('th', {}, t))));
  for (const c of v.checks)
    table.append(html('tr', {}, html('td', {class: 'code tight'}, c.what), ...[c.batch, c.tokens, c.error.toExponential(1),
      c.error_in_double === undefined ? '' : c.error_in_double.toExponential(1),
      c.tolerance.toExponential(1)].map((t) => html('td', {}, String(t)))));
  body.append(labelled(table));
  for (const what of v.unchecked) body.append(html('p', {class: 'missed'}, 'Not verified: ' + what));
}

function nodesText(nodes, more) {
  const shown = nodes.slice(0, 4);
  const rest = nodes.length - shown.length + (more || 0);
  return shown.join(', ') + (rest > 0 ? ' and ' + rest + ' more' : '');
}

//===-- graph -------------------------------------------------------------------------------===//

const kinds = [
  ['linear', 'products with weights', /linear|^matmul/],
  ['attention', 'attention', /attention|softmax|kv_append/],
  ['norm', 'norms and activations', /norm|gelu|relu|tanh|sigmoid/],
  ['move', 'moves and tokens', /embed|gather|reshape|transpose|concat|slice|return|arg_max|expand|split|cast/],
  ['other', 'other ops', /./],
];
const kindOf = (title) => kinds.find((k) => k[2].test(title))[0];
const textWidth = (text, size) => text.length * size * 0.6;

/// Rows of items by the longest way from their inputs, each row in the order of where its inputs lie.
function rowsOf(count, inputsOf) {
  const rank = [];
  const rows = [];
  const place = [];
  for (let i = 0; i < count; ++i) {
    rank[i] = 0;
    for (const input of inputsOf(i)) rank[i] = Math.max(rank[i], rank[input] + 1);
    (rows[rank[i]] = rows[rank[i]] || []).push(i);
  }
  for (const row of rows) {
    const key = new Map(row.map((i, at) => {
      const inputs = inputsOf(i);
      return [i, inputs.length ? inputs.reduce((sum, v) => sum + place[v], 0) / inputs.length : at];
    }));
    row.sort((a, b) => key.get(a) - key.get(b) || a - b);
    row.forEach((i, at) => { place[i] = at - (row.length - 1) / 2; });
  }
  return {rank, rows};
}

/// Rows of boxes, those that are wider than `room` cut into several.
function cutRows(rows, boxes, gap, room) {
  const out = [];
  for (const row of rows) {
    let width = 0;
    out.push([]);
    for (const i of row) {
      if (width > 0 && width + boxes[i].w > room) {
        out.push([]);
        width = 0;
      }
      out[out.length - 1].push(i);
      width += boxes[i].w + gap;
    }
  }
  return out;
}

/// Puts boxes with `w` and `h` into centred rows; returns the size of it all.
function placeRows(rows, boxes, gapX, gapY, room) {
  rows = cutRows(rows, boxes, gapX, room);
  let width = 0;
  for (const row of rows)
    width = Math.max(width, row.reduce((sum, i) => sum + boxes[i].w + gapX, -gapX));
  let y = 0;
  for (const row of rows) {
    let x = (width - row.reduce((sum, i) => sum + boxes[i].w + gapX, -gapX)) / 2;
    const height = Math.max(...row.map((i) => boxes[i].h));
    for (const i of row) {
      boxes[i].x = x;
      boxes[i].y = y + (height - boxes[i].h) / 2;
      x += boxes[i].w + gapX;
    }
    y += height + gapY;
  }
  return {w: Math.max(0, width), h: Math.max(0, y - gapY)};
}

/// What fits into `width` of a text, with dots for the rest.
function fitted(text, size, width) {
  const most = Math.floor(width / (size * 0.6) + 0.01);
  return text.length <= most ? text : text.slice(0, Math.max(1, most - 1)) + '\u2026';
}

const shortTitle = (title) => title.split(' ')[0];
const details = (n) => [n.title, ...n.attributes, ...n.constants, ...n.types.map((t) => '\u2192 ' + t),
  n.from.length ? 'from ' + nodesText(n.from, 0) : ''].filter((line) => line).join('\n');

/// A box for one node of the plan, at most as wide as `room`, drawn at its own origin.
function makeBox(node, open, room) {
  const group = svg('g', {});
  const lines = node.attributes.slice(0, 3).concat(node.types.slice(-1));
  const count = node.members.length ? plural(node.members.length, 'op') : '';
  let w = Math.max(150, textWidth(node.title, 12.5) + textWidth(count, 10.5) + 34, ...lines.map((l) => textWidth(l, 10.5) + 24));
  w = Math.min(w, room);
  let h = 30 + 13 * lines.length;
  let inner = null;
  if (open && node.members.length) {
    const boxes = node.members.map((m) => ({w: Math.max(46, textWidth(shortTitle(m.title), 11.5) + 16), h: 21}));
    const {rows, rank} = rowsOf(node.members.length, (i) => node.members[i].inputs);
    const size = placeRows(rows, boxes, 10, 17, room - 28);
    inner = svg('g', {});
    w = Math.max(w, size.w + 28);
    const left = (w - size.w) / 2;
    node.members.forEach((m, i) => {
      for (const input of m.inputs) {
        const a = boxes[input];
        const b = boxes[i];
        const x1 = left + a.x + a.w / 2, y1 = h + 6 + a.y + a.h, x2 = left + b.x + b.w / 2, y2 = h + 6 + b.y;
        const bend = rank[i] - rank[input] > 1 ? Math.sign(x2 - x1 || 1) * 12 : 0;
        inner.prepend(svg('path', {class: 'edge',
          d: `M${x1},${y1} C${x1 + bend},${y1 + 9} ${x2 + bend},${y2 - 9} ${x2},${y2}`}));
      }
      inner.append(svg('g', {}, svg('title', {}, details(m)),
        svg('rect', {class: 'member', x: left + boxes[i].x, y: h + 6 + boxes[i].y, width: boxes[i].w, height: 21, rx: 3}),
        svg('text', {x: left + boxes[i].x + boxes[i].w / 2, y: h + 20.5 + boxes[i].y, 'text-anchor': 'middle'}, shortTitle(m.title))));
    });
    h += size.h + 18;
  }
  group.append(svg('title', {}, details(node)),
    svg('rect', {class: 'frame ' + kindOf(node.title), width: w, height: h, rx: 6}),
    svg('text', {class: 'title', x: 12, y: 19}, fitted(node.title, 12.5, w - textWidth(count, 10.5) - 34)));
  if (node.members.length)
    group.append(svg('text', {class: 'soft', x: w - 10, y: 18, 'text-anchor': 'end'}, open ? '\u2212' : count));
  lines.forEach((line, i) => group.append(svg('text', {class: 'soft', x: 12, y: 34 + 13 * i}, fitted(line, 10.5, w - 24))));
  if (inner) group.append(inner);
  return {node, group, w, h};
}

function makePill(text, room) {
  const w = Math.min(room, textWidth(text, 11.5) + 26);
  return {node: null, w, h: 24, group: svg('g', {}, svg('title', {}, text),
    svg('rect', {class: 'member', width: w, height: 24, rx: 12}),
    svg('text', {x: w / 2, y: 16, 'text-anchor': 'middle'}, fitted(text, 11.5, w - 26)))};
}

let graphShown = null;
const opened = new Set();

function drawGraph() {
  const graph = graphShown;
  const index = new Map();
  const inputs = graph.arguments.map((text, i) => {
    index.set(-1 - i, i);
    return [];
  });
  for (const node of graph.nodes) {
    index.set(node.id, inputs.length);
    inputs.push(node.inputs.map((i) => index.get(i)).filter((i) => i !== undefined));
  }
  const {rank, rows} = rowsOf(inputs.length, (i) => inputs[i]);
  // Long edges run beside the rows, those of arguments on the left; lanes are used again where they are free.
  const lanes = {left: [], right: []};
  const edges = [];
  inputs.forEach((list, to) => list.forEach((from) => {
    const far = rank[to] - rank[from] > 1;
    const side = from < graph.arguments.length ? 'left' : 'right';
    const edge = {from, to, far, side, lane: 0};
    if (far) {
      const used = lanes[side];
      while (used[edge.lane] !== undefined && used[edge.lane] > rank[from]) ++edge.lane;
      used[edge.lane] = rank[to];
    }
    edges.push(edge);
  }));
  const step = 12;
  const left = 24 + step * lanes.left.length;
  const right = 24 + step * lanes.right.length;
  const scrollbar = 20; // with the border
  const room = isNarrow() ? Math.max(160, byId('graph-canvas').offsetWidth - scrollbar - left - right) : Infinity;
  const boxes = graph.arguments.map((text) => makePill(text, room));
  for (const node of graph.nodes) {
    const box = makeBox(node, opened.has(node.id), room);
    box.group.addEventListener('click', () => {
      if (!opened.delete(node.id)) opened.add(node.id);
      drawGraph();
    });
    boxes.push(box);
  }
  const size = placeRows(rows, boxes, 26, 30, room);
  const width = left + size.w + right;
  const drawing = svg('svg', {width, height: size.h + 60, viewBox: `0 0 ${width} ${size.h + 60}`},
    svg('defs', {}, svg('marker', {id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto'},
      svg('path', {d: 'M0,0 L8,4 L0,8 Z', fill: 'var(--soft)'}))));
  for (const e of edges) {
    const a = boxes[e.from];
    const b = boxes[e.to];
    const y1 = a.y + 30;
    const y2 = b.y + 30;
    let d;
    if (!e.far) {
      const x1 = left + a.x + a.w / 2, x2 = left + b.x + b.w / 2;
      d = `M${x1},${y1 + a.h} C${x1},${y1 + a.h + 16} ${x2},${y2 - 16} ${x2},${y2}`;
    } else if (e.side === 'right') {
      const x = left + size.w + 12 + step * e.lane;
      d = `M${left + a.x + a.w},${y1 + a.h - 10} H${x - 6} q6,0 6,6 V${y2 + 8} q0,6 -6,6 H${left + b.x + b.w}`;
    } else {
      const x = left - 12 - step * e.lane;
      d = `M${left + a.x + a.w / 2},${y1 + a.h} v${6 + 4 * e.lane} H${x + 6} q-6,0 -6,6 V${y2 + 8} q0,6 6,6 H${left + b.x}`;
    }
    drawing.append(svg('path', {class: 'edge', d, 'marker-end': 'url(#arrow)'}));
  }
  const r = graph.repeat;
  if (r.count > 1) {
    const inside = boxes.filter((b) => b.node && b.node.id >= r.first && b.node.id < r.first + r.period);
    const top = Math.min(...inside.map((b) => b.y)) + 30 - 13;
    const bottom = Math.max(...inside.map((b) => b.y + b.h)) + 30 + 13;
    drawing.append(svg('rect', {class: 'repeat', x: 6, y: top, width: width - 12, height: bottom - top, rx: 10}),
      svg('text', {class: 'repeat-label', x: 16, y: top + 20}, '\u00d7 ' + r.count));
  }
  for (const box of boxes) {
    box.group.setAttribute('transform', `translate(${left + box.x},${30 + box.y})`);
    drawing.append(box.group);
  }
  byId('graph-canvas').replaceChildren(drawing);
  const all = graph.nodes.filter((n) => n.members.length);
  byId('graph-before').className = all.every((n) => opened.has(n.id)) ? 'on' : '';
  byId('graph-after').className = opened.size === 0 ? 'on' : '';
}

function chooseGraph(name) {
  graphShown = data.graphs.find((g) => g.name === name);
  opened.clear();
  const r = graphShown.repeat;
  byId('graph-counts').textContent = graphShown.imported + ' ops imported, ' + plural(graphShown.ops, 'op') +
    ' in @' + name + (r.count > 1 ? '; the ' + r.period + ' ops of a layer repeat ' + r.count + ' times' : '');
  const counts = new Map();
  for (const [title, count] of graphShown.gone) {
    const op = shortTitle(title);
    counts.set(op, (counts.get(op) || 0) + count);
  }
  const gone = [...counts].sort((a, b) => b[1] - a[1]);
  byId('gone').textContent = gone.length === 0 ? '' : 'Nothing at run time comes of: ' +
    gone.map(([title, count]) => count + ' ' + title).join(', ') + '.';
  drawGraph();
}

function showGraph() {
  const select = byId('graph-function');
  for (const g of data.graphs) select.append(html('option', {value: g.name}, '@' + g.name));
  select.addEventListener('change', () => chooseGraph(select.value));
  byId('graph-after').addEventListener('click', () => {
    opened.clear();
    drawGraph();
  });
  byId('graph-before').addEventListener('click', () => {
    for (const n of graphShown.nodes) if (n.members.length) opened.add(n.id);
    drawGraph();
  });
  for (const [kind, what] of kinds)
    byId('legend').append(html('i', {style: 'background: var(--' + kind + ')'}), what);
  if (!mainName && data.graphs.length === 0) return;
  window.matchMedia('(max-width: 640px)').addEventListener('change', drawGraph);
  select.value = mainName || data.graphs[0].name;
  chooseGraph(select.value);
}

//===-- steps -------------------------------------------------------------------------------===//

const stepInputs = {};
const usual = {batch: 1, seq: 128, past: 512, slots: data.kv && data.kv.max_batch, context: data.kv && data.kv.max_context};

function chosenFunction() {
  const name = stepInputs.name.value;
  for (const f of data.functions) {
    if (f.name !== name) continue;
    const values = f.symbols.map((s) => Number(stepInputs.symbols[s.name].value));
    if (f.symbols.every((s, i) => values[i] >= s.min && values[i] <= s.max)) return [f, values];
  }
  return [null, []];
}

/// "288", "8 x 12": without trailing ones.
const sizesText = (sizes) => {
  let n = sizes.length;
  while (n > 1 && sizes[n - 1] === 1) --n;
  return sizes.slice(0, n).join(' x ');
};

/// Steps that only differ in their nodes become one line.
function lines(f, values, memory, compute) {
  const out = new Map();
  for (const step of f.steps) {
    const bytes = step.bytes ? evaluate(step.bytes, values) : 0;
    const flops = step.flops ? evaluate(step.flops, values) : 0;
    const grid = step.grid ? step.grid.map((g) => evaluate(g, values)) : [];
    const key = JSON.stringify([step.op, step.kernel, bytes, flops, grid, step.block, step.shared]);
    if (!out.has(key)) {
      const floor = Math.max(bytes / memory, flops / compute);
      out.set(key, {step, bytes, flops, grid, floor, count: 0, by: bytes / memory >= flops / compute ? 'memory' : 'compute'});
    }
    out.get(key).count += 1;
  }
  return [...out.values()];
}

function drawSteps() {
  const [f, values] = chosenFunction();
  const memory = Number(stepInputs.memory.value) * 1e12;
  const compute = Number(stepInputs.compute.value) * 1e12;
  const body = byId('steps-body');
  if (!f || !(memory > 0) || !(compute > 0)) {
    body.replaceChildren(html('p', {class: 'hint'}, 'No version of this function takes these values.'));
    return;
  }
  const rows = lines(f, values, memory, compute);
  const total = rows.reduce((sum, r) => sum + r.count * r.floor, 0);
  const gpu = f.device === 'gpu';
  const titles = [['\u00d7', 'n'], ['op', ''], ...(gpu ? [['kernel', ''], ['grid', 'n'], ['block', 'n'], ['shared', 'n']] : []),
    ['bytes', 'n'], ['flops', 'n'], ['floor \u00b5s', 'n'], ['bound', ''], ['share of the floor', ''], ['first from', '']];
  const table = html('table', {}, html('tr', {}, ...titles.map(([t, c]) => html('th', {class: c}, t))));
  const number = (text) => html('td', {class: 'n'}, text);
  for (const r of rows) {
    const share = total > 0 ? r.count * r.floor / total : 0;
    table.append(html('tr', {}, number(String(r.count)), html('td', {class: 'code tight'}, r.step.op),
      ...(gpu ? [html('td', {class: 'code tight'}, r.step.kernel), number(sizesText(r.grid)), number(sizesText(r.step.block)),
        number(bytesText(r.step.shared))] : []),
      number(bytesText(r.bytes)), number(countText(r.flops)), number(round(r.floor * 1e6, 3)), html('td', {}, r.by),
      html('td', {class: 'share'}, html('div', {style: 'width: ' + round(share * 80, 1) + 'px'}), round(share * 100, 1) + ' %'),
      html('td', {class: 'code from'}, nodesText(r.step.nodes, r.step.more))));
  }
  const sum = (field) => rows.reduce((s, r) => s + r.count * r[field], 0);
  table.append(html('tr', {class: 'total'}, number(String(f.steps.length)), html('td', {}, 'all steps'),
    ...(gpu ? [html('td', {}), html('td', {}), html('td', {}), html('td', {})] : []),
    number(bytesText(sum('bytes'))), number(countText(sum('flops'))), number(round(total * 1e6, 2)),
    html('td', {}), html('td', {}), html('td', {})));
  body.replaceChildren(labelled(table));
  drawMemory(f);
}

function chooseSteps() {
  const name = stepInputs.name.value;
  const bounds = new Map();
  for (const f of data.functions)
    for (const s of f.name === name ? f.symbols : []) {
      const b = bounds.get(s.name) || [s.min, s.max];
      bounds.set(s.name, [Math.min(b[0], s.min), Math.max(b[1], s.max)]);
    }
  const old = stepInputs.symbols;
  stepInputs.symbols = {};
  const holder = byId('steps-symbols');
  holder.replaceChildren();
  for (const [symbol, [min, max]] of bounds) {
    const start = old && old[symbol] ? Number(old[symbol].value) : usual[symbol] || min;
    const input = html('input', {type: 'number', min, max, value: Math.min(max, Math.max(min, start))});
    input.addEventListener('input', drawSteps);
    stepInputs.symbols[symbol] = input;
    holder.append(html('label', {}, symbol + ' ', input), ' ');
  }
  drawSteps();
}

function showSteps() {
  const controls = byId('steps-controls');
  if (data.functions.length === 0) return;
  byId('steps-hint').textContent = (onGpu ? 'The launches of a function' : 'The plan has no GPU code: the ops of a function') +
    ' at chosen sizes, with the fewest bytes and operations of each. The floor is the time these take at the rates given here ' +
    '(an H200 unless changed), whichever is longer. ' +
    (onGpu ? 'Attention counts no keys and values of earlier tokens, whose number the step does not know. ' : '') +
    'Equal lines are counted.';
  const select = html('select', {});
  for (const name of functionNames(data.functions)) select.append(html('option', {value: name}, '@' + name));
  select.addEventListener('change', chooseSteps);
  stepInputs.name = select;
  stepInputs.memory = html('input', {type: 'number', step: 'any', value: 4.65});
  stepInputs.compute = html('input', {type: 'number', step: 'any', value: data.precision === 'fp32' ? 67 : 790});
  for (const input of [stepInputs.memory, stepInputs.compute]) input.addEventListener('input', drawSteps);
  controls.append(html('label', {}, 'function ', select), html('span', {id: 'steps-symbols'}),
    html('label', {}, 'TB/s ', stepInputs.memory), html('label', {}, 'TFLOP/s ', stepInputs.compute));
  if (mainName) select.value = mainName;
  chooseSteps();
}

//===-- memory ------------------------------------------------------------------------------===//

function showMemoryTotal() {
  const total = deviceParts.reduce((sum, p) => sum + p[1], 0);
  const bar = html('div', {class: 'stack'});
  const text = html('p', {class: 'hint'}, 'On the device: ' + bytesText(total));
  for (const [what, size, color] of deviceParts) {
    if (size === 0) continue;
    bar.append(html('div', {style: `background: var(${color}); width: ${100 * size / total}%`, title: what + ' ' + bytesText(size)}));
    text.append('; ', what + ' ' + bytesText(size));
  }
  byId('memory-total').append(bar, text);
}

/// Buffers of the function whose steps are shown: time to the right, addresses upwards.
function drawMemory(f) {
  const body = byId('memory-body');
  if (!f.buffers || f.buffers.length === 0) {
    body.replaceChildren(html('p', {class: 'hint'}, 'No memory is planned for this function: ' +
      (f.device === 'gpu' ? 'its steps need no activations.' : 'the CPU device allocates as it goes.')));
    return;
  }
  const width = 1080, height = 260, left = 70, bottom = 30;
  const x = (step) => left + (width - left - 10) * step / f.steps.length;
  const y = (offset) => height - bottom - (height - bottom - 14) * offset / f.arena;
  const drawing = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`});
  const live = new Array(f.steps.length).fill(0);
  for (const [name, offset, size, first, last] of f.buffers) {
    for (let s = first; s <= last; ++s) live[s] += size;
    drawing.append(svg('rect', {class: 'buffer', x: x(first), y: y(offset + size), width: x(last + 1) - x(first),
      height: Math.max(1, y(offset) - y(offset + size)), rx: 1},
      svg('title', {}, `${name}: ${bytesText(size)} at ${offset}, steps ${first} to ${last}`)));
  }
  drawing.append(svg('path', {class: 'live', d: live.map((v, s) => `${s ? 'L' : 'M'}${x(s)},${y(v)} H${x(s + 1)}`).join(' ')}),
    svg('line', {class: 'axis', x1: left, y1: y(0), x2: width - 10, y2: y(0)}),
    svg('line', {class: 'axis', x1: left, y1: y(f.arena), x2: width - 10, y2: y(f.arena)}),
    svg('text', {class: 'soft', x: left - 6, y: y(f.arena) + 4, 'text-anchor': 'end'}, bytesText(f.arena)),
    svg('text', {class: 'soft', x: left - 6, y: y(0) + 4, 'text-anchor': 'end'}, '0'),
    svg('text', {class: 'soft', x: left, y: height - 10}, 'step 0'),
    svg('text', {class: 'soft', x: width - 10, y: height - 10, 'text-anchor': 'end'}, 'step ' + (f.steps.length - 1)));
  const peak = Math.max(...live);
  const bounds = f.symbols.map((s) => s.name + ' up to ' + s.max).join(', ');
  body.replaceChildren(html('p', {class: 'hint'}, `Activations of @${f.name} (${bounds}), as planned for its largest sizes: ` +
    `${plural(f.buffers.length, 'buffer')} in ${bytesText(f.arena)}; at most ${bytesText(peak)} are alive at one step (the line).`), drawing);
}

//===-- KV state ----------------------------------------------------------------------------===//

function showKv() {
  const body = byId('kv-body');
  const kv = data.kv;
  if (!kv) {
    body.append(html('p', {class: 'hint'}, 'The plan has no KV state: every token runs the whole graph.'));
    return;
  }
  body.append(html('p', {class: 'hint'}, `${kv.layers} layers x ${kv.heads} heads x ${kv.head_dim}, keys and values in ` +
    `${kv.dtype.toLowerCase()}: ${kv.bytes_per_token} bytes for each token. The plan holds ${plural(kv.max_batch, 'sequence')} of ` +
    `${kv.max_context} tokens: ${bytesText(kv.bytes)}.`));
  const contexts = [1, 2, 4, 8].map((d) => Math.floor(kv.max_context / d)).filter((c, i, all) => c > 0 && all.indexOf(c) === i).reverse();
  const batches = [];
  for (let b = 1; b < kv.max_batch; b *= 2) batches.push(b);
  batches.push(kv.max_batch);
  const table = html('table', {}, html('tr', {}, html('th', {class: 'n'}, 'sequences'),
    ...contexts.map((c) => html('th', {class: 'n'}, plural(c, 'token')))));
  for (const b of batches)
    table.append(html('tr', {}, html('td', {class: 'n'}, String(b)),
      ...contexts.map((c) => html('td', {class: 'n'}, bytesText(b * c * kv.bytes_per_token)))));
  body.append(labelled(table));
}

showSummary();
showRemarks();
showVerification();
showGraph();
showMemoryTotal();
showSteps();
showKv();
