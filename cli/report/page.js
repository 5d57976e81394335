'use strict';
// Redraws charts of lines: other x axes, ranges and means, zooming, numbers under the pointer.
// Charts are complete without it; their numbers are in the <metadata> of each.
const numbers = text => text.split(' ').map(t => t === '-' ? NaN : Number(t));
const short = x => {
    if (!isFinite(x)) return '–';
    let i = 0;
    if (Math.abs(x) >= 1e4) for (; Math.abs(x) >= 999.95 && i < 4; i++) x /= 1000;
    return Number(x.toPrecision(4)) + ['', 'k', 'M', 'G', 'T'][i];
};

// Clocks: how many tokens or seconds a step of a run is.
const clocks = {};
for (const c of document.querySelectorAll('.clock'))
    clocks[c.dataset.of + c.dataset.run] = [numbers(c.dataset.step), numbers(c.dataset.value)];
const convert = (of, run, step) => {
    const clock = clocks[of + run];
    if (!clock) return NaN;
    const [from, to] = clock, n = from.length;
    let i = from.findIndex(s => s >= step);
    if (i < 0) i = n - 1;
    if (i === 0) return n && from[0] > 0 ? to[0] * step / from[0] : to[0];
    return to[i - 1] + (to[i] - to[i - 1]) * (step - from[i - 1]) / (from[i] - from[i - 1] || 1);
};

// What the switches say; zoom is a range of x, shared by all charts with the same x.
const view = {x: 'step', range: 'robust', smooth: 0.007, zoom: {}};
const lines = svg => [...svg.querySelectorAll('metadata')].map(m => ({
    run: m.dataset.run, kind: m.dataset.kind, name: m.dataset.name, colour: m.getAttribute('class'),
    at: numbers(m.dataset.at), y: numbers(m.dataset.y),
    lo: m.dataset.lo && numbers(m.dataset.lo), hi: m.dataset.hi && numbers(m.dataset.hi)}));
const axis = c => c.x === 'step' ? view.x : c.x;

// A mean of both sides, as the page has it; `part` of the points halve the weight.
const mean = (y, part) => {
    const a = Math.pow(2, -1 / Math.max(1, part * y.length)), n = y.length, out = new Array(n);
    if (!part) return y;
    const w = new Array(n);
    let sum = 0, weight = 0;
    for (let i = 0; i < n; i++) {
        const good = isFinite(y[i]);
        out[i] = sum = a * sum + (good ? y[i] : 0);
        w[i] = weight = a * weight + (good ? 1 : 0);
    }
    sum = weight = 0;
    for (let i = n - 1; i >= 0; i--) {
        const good = isFinite(y[i]);
        out[i] = good ? (out[i] + a * sum) / (w[i] + a * weight) : NaN;
        sum = a * sum + (good ? y[i] : 0);
        weight = a * weight + (good ? 1 : 0);
    }
    return out;
};
const quantile = (y, part) => {
    const s = y.filter(isFinite).sort((a, b) => a - b);
    return s.length ? s[Math.round(part * (s.length - 1))] : NaN;
};

// Scales: from numbers to places and back, and round numbers between.
const scale = (lo, hi, from, to, log, whole) => {
    const f = log ? Math.log : x => x, g = log ? Math.exp : x => x, a = f(lo), b = f(hi);
    return {lo, hi, from, to, log, whole, at: x => from + (f(x) - a) / (b - a) * (to - from),
        back: p => g(a + (p - from) / (to - from) * (b - a))};
};
const ticks = (s, room) => { // room: what a number takes
    const out = [], want = Math.min(9, Math.max(3, Math.abs(s.to - s.from) / room));
    if (s.log) {
        const many = s.hi / s.lo < 300 ? [1, 2, 5] : [1];
        for (let e = Math.floor(Math.log10(s.lo)); e <= Math.log10(s.hi); e++)
            for (const m of many)
                if (m * 10 ** e >= s.lo && m * 10 ** e <= s.hi) out.push(m * 10 ** e);
        if (out.length > 1) return out.filter((_, i) => i % Math.ceil(out.length / 8) === 0);
        out.length = 0;
    }
    const raw = (s.hi - s.lo) / want, ten = 10 ** Math.floor(Math.log10(raw));
    const round = ten * (raw <= 1.4 * ten ? 1 : raw <= 2.8 * ten ? 2 : raw <= 7 * ten ? 5 : 10);
    const step = s.whole ? Math.max(1, round) : round;
    for (let k = Math.ceil(s.lo / step - 1e-9); k * step <= s.hi + 1e-9 * step; k++)
        out.push(Number((k * step).toPrecision(12)));
    return out;
};

// Points of a line over the chosen x.
const points = (c, l) => {
    const of = axis(c), unit = of === 'seconds' ? c.unit : 1;
    return l.at.map(s => of === 'step' || of === 'token' ? s : convert(of, l.run, s) / unit);
};
const timeUnit = c => {
    const end = l => convert('seconds', l.run, l.at[l.at.length - 1]) || 0;
    const most = Math.max(0, ...c.lines.map(end));
    return most > 10800 ? [3600, 'hours'] : most > 180 ? [60, 'minutes'] : [1, 'seconds'];
};
const fitY = (c, all) => {
    const [x0, x1] = c.xs, seen = [];
    let lo = Infinity, hi = -Infinity, most = -Infinity;
    for (const l of all) {
        const isIn = (v, i) => isFinite(v) && l.x[i] >= x0 && l.x[i] <= x1;
        const inside = l.y.filter(isIn);
        const ends = l.lo ? [...l.lo.filter(isIn), ...l.hi.filter(isIn)] : l.raw.filter(isIn);
        seen.push(...inside);
        for (const v of [...inside, ...ends]) lo = Math.min(lo, v), hi = Math.max(hi, v);
        most = Math.max(most, quantile(inside, 0.93) || -Infinity);
    }
    if (!seen.length) return [0, 1, false, false];
    const cut = c.robust && view.range === 'robust' && most - lo < 0.6 * (hi - lo) && most > lo;
    if (cut) hi = most + 0.05 * (most - lo);
    const log = lo > 0 && (c.robust ? view.range === 'log' : c.log);
    if (c.zero) lo = Math.min(0, lo), hi = Math.max(0, hi);
    if (!(hi > lo)) hi = lo + (Math.abs(lo) || 1) * 0.1, lo -= (Math.abs(lo) || 1) * 0.1;
    const room = 0.03 * (hi - lo);
    if (log) return [lo / 1.03, hi * 1.03, true, cut];
    return [lo - (c.zero && lo === 0 ? 0 : room), hi + (cut ? 0 : room), false, cut];
};

const make = (name, attributes, parent, text) => {
    const e = document.createElementNS(document.querySelector('svg').namespaceURI, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
};
const drawAxes = (c, g, sx, sy) => {
    const [l, r, b, t] = c.box;
    for (const v of ticks(sx, 70)) {
        make('path', {class: 'grid', d: `M${sx.at(v)} ${t}V${b}`}, g);
        make('text', {class: 'mid', x: sx.at(v), y: b + 15}, g, short(v));
    }
    for (const v of ticks(sy, 40)) {
        make('path', {class: 'grid', d: `M${l} ${sy.at(v)}H${r}`}, g);
        make('text', {class: 'end', x: l - 6, y: sy.at(v) + 4}, g, short(v));
    }
    const name = {seconds: c.unitName, tokens: 'tokens'}[axis(c)] || axis(c);
    make('text', {class: 'mid', x: (l + r) / 2, y: b + 31}, g, name);
    if (c.yName) make('text', {x: 2, y: 13}, g, c.yName);
};
const polyline = (g, colour, xs, ys) => {
    let piece = [];
    const end = () => {
        if (piece.length) make('polyline', {class: colour, points: piece.join(' ')}, g);
        piece = [];
    };
    xs.forEach((x, i) => {
        if (isFinite(ys[i]) && isFinite(x)) piece.push(x.toFixed(1) + ',' + ys[i].toFixed(1));
        else end();
    });
    end();
};
const drawLine = (g, l, sx, sy) => {
    const px = l.x.map(sx.at), up = v => Math.min(1e4, Math.max(-1e4, sy.at(v)));
    if (l.kind === 'dots') {
        l.x.forEach((x, i) => isFinite(l.y[i]) && isFinite(x) &&
            make('circle', {class: l.colour, cx: px[i], cy: up(l.y[i]), r: 3.2}, g));
        return;
    }
    const smooth = l.kind === 'mean' && view.smooth;
    if (l.lo) {
        const zig = l.lo.flatMap((v, i) => [up(v), up(l.hi[i])]);
        polyline(g, l.colour + (smooth ? ' faint' : ''), px.flatMap(x => [x, x]), zig);
    } else if (smooth) polyline(g, l.colour + ' faint', px, l.raw.map(up));
    if (smooth || !l.lo) polyline(g, l.colour, px, l.y.map(up));
};
// A wide card has a wide chart, not large letters.
const fitSize = c => {
    const wide = c.svg.clientWidth, w = wide > 440 ? Math.round(wide / 1.1) : 340;
    const high = wide > 900 ? 320 : 240;
    c.svg.setAttribute('viewBox', `0 0 ${w} ${high}`);
    c.box[1] = w - 18;
    c.box[2] = high - 36;
    c.clip.setAttribute('width', c.box[1] - c.box[0] + 4);
    for (const part of [c.clip, c.chosen])
        part.setAttribute('height', c.box[2] - c.box[3] + (part === c.clip ? 4 : 0));
};
const sayCut = (c, cut) => {
    const caption = c.svg.parentNode.querySelector('figcaption');
    let note = caption.querySelector('.cut');
    if (!note && cut) {
        note = document.createElement('span');
        note.className = 'cut';
        note.textContent = 'top cut off';
        caption.append(' ', note);
    }
    if (note) note.hidden = !cut;
};
const draw = c => {
    fitSize(c);
    const [l, r, b, t] = c.box;
    [c.unit, c.unitName] = timeUnit(c);
    c.all = c.lines.map(o => ({...o, x: points(c, o), raw: o.y,
        y: o.kind === 'mean' ? mean(o.y, view.smooth) : o.y}));
    const xs = c.all.flatMap(o => o.x).filter(isFinite);
    let lo = Math.min(...xs), hi = Math.max(...xs);
    if (!xs.length) lo = 0, hi = 1;
    if (lo > 0 && lo < 0.1 * hi) lo = 0;
    c.xs = view.zoom[axis(c)] || [lo, hi > lo ? hi : lo + 1];
    const [y0, y1, log, cut] = fitY(c, c.all);
    sayCut(c, cut);
    c.sx = scale(c.xs[0], c.xs[1], l, r, false, axis(c) !== 'seconds');
    c.sy = scale(y0, y1, b, t, log);
    c.group.replaceChildren();
    drawAxes(c, c.group, c.sx, c.sy);
    const inner = make('g', {'clip-path': `url(#plot${c.number})`}, c.group);
    for (const o of c.all) drawLine(inner, o, c.sx, c.sy);
};

// Under the pointer: the nearest point of every run, and its nearest evaluation with the place it was
// made at, in a box that floats below the chart, or above it where the screen ends.
const nearest = (o, x) => {
    let best = -1;
    o.x.forEach((v, i) => {
        if (!isFinite(v) || !isFinite(o.y[i])) return;
        if (best < 0 || Math.abs(v - x) < Math.abs(o.x[best] - x)) best = i;
    });
    return best;
};
const placeText = (c, x) => axis(c) === 'seconds' ? short(x) + ' ' + c.unitName :
    axis(c) + ' ' + Math.round(x).toLocaleString('en-US');
const cell = (row, tag, text, soft) => {
    const e = document.createElement(tag);
    e.textContent = text;
    if (soft) e.append(Object.assign(document.createElement('span'), {textContent: ' ' + soft}));
    row.append(e);
    return e;
};
const fillTip = (c, at, runs, dots) => {
    const table = document.createElement('table'), head = table.insertRow();
    const smooth = view.smooth && c.all.some(o => o.kind === 'mean');
    cell(head, 'th', placeText(c, at));
    cell(head, 'th', dots ? smooth ? 'training, smoothed' : 'training' : smooth ? 'smoothed' : '');
    if (dots) cell(head, 'th', 'evaluation');
    for (const run of runs) {
        const row = table.insertRow(), key = document.createElement('span');
        key.className = 'key ' + run.colour;
        cell(row, 'td', run.name).prepend(key);
        for (const kind of dots ? ['line', 'dots'] : ['line']) {
            const p = run[kind];
            const far = p && (kind === 'dots' || Math.abs(c.sx.at(p.x) - c.sx.at(at)) > 4);
            cell(row, 'td', p ? String(Number(p.y.toPrecision(4))) : '–',
                far ? 'at ' + placeText(c, p.x) : '');
        }
    }
    c.tip.replaceChildren(table);
};
const placeTip = (c, at) => {
    const figure = c.svg.parentNode.getBoundingClientRect(), svg = c.svg.getBoundingClientRect();
    c.tip.style.display = 'block';
    const wide = c.tip.offsetWidth, high = c.tip.offsetHeight + 6;
    const x = svg.left - figure.left + c.sx.at(at) * svg.width / (c.box[1] + 18) - wide / 2;
    const above = figure.bottom + high > innerHeight && figure.top > high;
    c.tip.style.left = Math.max(0, Math.min(figure.width - wide - 2, x)) + 'px';
    c.tip.style.top = (above ? -high : figure.height + 4) + 'px';
};
const say = (c, place) => {
    const x = c.sx.back(place), runs = new Map();
    let at = NaN;
    for (const o of c.all) {
        const i = nearest(o, x);
        if (i < 0) continue;
        const kind = o.kind === 'dots' ? 'dots' : 'line', p = {x: o.x[i], y: o.y[i]};
        if (!runs.has(o.run)) runs.set(o.run, {name: o.name, colour: o.colour});
        runs.get(o.run)[kind] = p;
        if (kind === 'line' && !(Math.abs(at - x) <= Math.abs(p.x - x))) at = p.x;
    }
    const all = [...runs.values()], dots = all.some(r => r.dots);
    if (!all.length) return;
    if (!isFinite(at)) at = all[0].dots.x;
    fillTip(c, at, all.sort((a, b) => (b.line || b.dots).y - (a.line || a.dots).y), dots);
    placeTip(c, at);
    c.cross.setAttribute('d', `M${c.sx.at(at)} ${c.box[3]}V${c.box[2]}`);
};
const hush = c => {
    c.tip.style.display = 'none';
    c.cross.removeAttribute('d');
};

document.documentElement.classList.add('live');
const charts = [...document.querySelectorAll('svg.lines')].map((svg, number) => {
    const s = svg.dataset.scale.split(' ').map(Number);
    const names = [...svg.querySelectorAll('.drawn > text:not([class])')];
    return {svg, number, x: svg.dataset.x, box: [s[2], s[3], s[6], s[7]], log: s[8] === 1,
        robust: svg.classList.contains('robust'), zero: svg.classList.contains('zero'),
        yName: names.length ? names[0].textContent : '',
        group: svg.querySelector('.drawn'), lines: lines(svg)};
});
const redraw = () => charts.forEach(draw);
let waits = 0;
addEventListener('resize', () => {
    clearTimeout(waits);
    waits = setTimeout(redraw, 100);
});
const zoom = (c, range) => {
    if (range) view.zoom[axis(c)] = range; else delete view.zoom[axis(c)];
    charts.filter(o => axis(o) === axis(c)).forEach(draw);
};
for (const c of charts) {
    const place = e => {
        const box = c.svg.getBoundingClientRect();
        const x = (e.clientX - box.left) * (c.box[1] + 18) / box.width;
        return Math.min(c.box[1], Math.max(c.box[0], x));
    };
    const clip = make('clipPath', {id: 'plot' + c.number}, c.svg);
    c.clip = make('rect', {x: c.box[0], y: c.box[3] - 2}, clip);
    c.chosen = make('rect', {class: 'chosen', y: c.box[3], width: 0}, c.svg);
    draw(c);
    c.cross = make('path', {class: 'cross'}, c.svg);
    c.tip = document.createElement('div');
    c.tip.className = 'tip';
    c.svg.parentNode.append(c.tip);
    let from = null;
    c.svg.onpointerdown = e => { from = e.pointerType === 'touch' ? null : place(e); };
    c.svg.onpointermove = e => {
        const at = place(e);
        say(c, at);
        if (from === null) return;
        c.chosen.setAttribute('x', Math.min(from, at));
        c.chosen.setAttribute('width', Math.abs(at - from));
    };
    c.svg.onpointerup = e => {
        const at = place(e);
        c.chosen.setAttribute('width', 0);
        if (from !== null && Math.abs(at - from) > 8)
            zoom(c, [Math.min(from, at), Math.max(from, at)].map(c.sx.back));
        from = null;
    };
    c.svg.onpointerleave = () => { hush(c); from = null; c.chosen.setAttribute('width', 0); };
    c.svg.ondblclick = () => zoom(c, null);
}

// Switches above the charts; those that would change nothing are left out.
const tools = document.querySelector('.tools');
const addSwitch = (title, key, choices) => {
    const group = document.createElement('div'), label = document.createElement('span');
    label.textContent = title;
    group.setAttribute('role', 'group');
    group.setAttribute('aria-label', title);
    group.append(label);
    for (const [text, value] of choices) {
        const b = document.createElement('button');
        b.type = 'button';
        b.textContent = text;
        b.setAttribute('aria-pressed', view[key] === value);
        b.onclick = () => {
            view[key] = value;
            for (const o of group.querySelectorAll('button'))
                o.setAttribute('aria-pressed', o === b);
            redraw();
        };
        group.append(b);
    }
    tools.append(group);
};
if (tools && charts.length) {
    const has = of => Object.keys(clocks).some(k => k.startsWith(of));
    const xs = [['steps', 'step'], ['tokens', 'tokens'], ['time', 'seconds']]
        .filter(([, v]) => v === 'step' || has(v));
    if (xs.length > 1) addSwitch('x axis', 'x', xs);
    if (charts.some(c => c.robust))
        addSwitch('loss', 'range', [['most values', 'robust'], ['all', 'all'], ['log', 'log']]);
    if (charts.some(c => c.lines.some(l => l.kind === 'mean')))
        addSwitch('smoothing', 'smooth', [['off', 0], ['some', 0.007], ['more', 0.04]]);
    const hint = document.createElement('span');
    hint.textContent = 'drag to zoom, double click to reset';
    tools.append(hint);
    tools.hidden = false;
}
