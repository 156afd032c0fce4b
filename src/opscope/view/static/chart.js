// SPDX-License-Identifier: Apache-2.0
// Lines over the steps, on a scale of powers of two.
import {html, useEffect, useRef} from 'opscope/parts';
import {t} from 'opscope/words';

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// series: {label, points: [[step, value, wrong], …]}; limit: a line that values must stay below.
export function Chart({series, limit: known, label, height = 220, log = true}) {
  const place = useRef(null);
  // A limit that is far above everything would press the lines together; it is told beside them then.
  const peak = Math.max(0, ...series.flatMap(one => one.points.map(point => point[1] ?? 0)));
  const far = known !== undefined && peak > 0 && known / peak > 1e6;
  const limit = far ? undefined : known, top = limit ?? (peak || undefined);
  useEffect(() => {
    const box = place.current;
    const steps = [...new Set(series.flatMap(one => one.points.map(point => point[0])))].sort((a, b) => a - b);
    const at = new Map(steps.map((step, row) => [step, row]));
    const columns = series.map(one => {
      const column = Array(steps.length).fill(null);
      for (const [step, value] of one.points) column[at.get(step)] = value > 0 || !log ? value : null;
      return column;
    });
    const wrong = Array(steps.length).fill(null);
    for (const one of series) for (const [step, , count] of one.points) if (count) wrong[at.get(step)] = top ?? null;
    const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
    const lines = series.map((one, place_) => ({
      label: one.label, stroke: colour(`--line${place_ % 4}`), width: 2, dash: dashes[place_ % 4],
      points: {show: steps.length < 60, size: 5}, spanGaps: true,
    }));
    const ceiling = limit === undefined ? [] : [{label: t('limit of {type}', {type: label}), stroke: colour('--bad'), width: 1, dash: [4, 4], points: {show: false}}];
    const marks = top === undefined || !wrong.some(value => value !== null) ? [] : [{label: t('not finite'), stroke: colour('--bad'), fill: colour('--bad'), width: 0, paths: () => null, points: {show: true, size: 9}}];
    const grid = {stroke: colour('--rule'), width: 1};
    const axis = {stroke: colour('--soft'), grid, ticks: grid, font: '12px system-ui'};
    const power = value => log ? (value >= 1e5 || value < 1e-3 ? value.toExponential(0).replace('e+', 'e') : String(Number(value.toPrecision(3)))) : String(Number(value.toPrecision(4)));
    const data = [steps, ...columns, ...(ceiling.length ? [steps.map(() => limit)] : []), ...(marks.length ? [wrong] : [])];
    const options = {
      width: box.clientWidth || 480, height,
      scales: {x: {time: false}, y: log ? {distr: 3, log: 10} : {}},
      axes: [
        {...axis, label: t('step'), labelFont: '12px system-ui', labelSize: 18, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000]},
        {...axis, size: 62, values: (_, values) => values.map(value => value === null ? '' : power(value))},
      ],
      series: [{label: t('step')}, ...lines, ...ceiling, ...marks],
      legend: {live: true},
    };
    const plot = new globalThis.uPlot(options, data, box);
    const observer = new ResizeObserver(() => plot.setSize({width: box.clientWidth, height}));
    observer.observe(box);
    return () => { observer.disconnect(); plot.destroy(); };
  });
  return html`${far && html`<p class="small soft">${t('limit of {type}', {type: label})}: ${known.toPrecision(3)}</p>`}<div class="chart" ref=${place} role="img" aria-label=${series.map(one => one.label).join(', ')}></div>`;
}
