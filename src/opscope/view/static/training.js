// SPDX-License-Identifier: Apache-2.0
// Training over its steps.
import {Chart} from 'opscope/chart';
import {html, link, useDocument} from 'opscope/parts';
import {t} from 'opscope/words';

const SHOWN = 4;
const last = line => line.points.at(-1)?.[1] ?? 0;

// What moved the most first: the lines that one would look for.
export function byMovement(lines) {
  const moved = line => { const known = line.points.map(point => point[1]).filter(value => value > 0); return (line.points.some(point => point[2]) ? 1e6 : 0) + (known.length ? Math.abs(Math.log(known.at(-1) / known[0])) : 0); };
  return [...lines].sort((one, other) => moved(other) - moved(one));
}

function Lines({title, lines, log = true, chosen, name}) {
  if (!lines.length) return null;
  const order = byMovement(lines), wanted = lines.filter(line => chosen.includes(line.label));
  const shown = wanted.length ? wanted : order.slice(0, SHOWN);
  return html`<section class="card"><h2>${title}</h2><${Chart} series=${shown} log=${log} height=${240} />
    ${shown.some(line => line.points.some(point => point[2])) && html`<p class="small">✕ ${t('not finite')}: ${shown.filter(line => line.points.some(point => point[2])).map(line => `${line.label} (${t('step')} ${line.points.find(point => point[2])[0]})`).join(', ')}</p>`}
    ${lines.length > SHOWN && html`<label class="small">${t('shown')} <select value=${wanted[0]?.label ?? ''} onChange=${event => { location.hash = link('training', name, event.target.value ? {line: event.target.value} : {}); }}><option value="">${t('what moved most')}</option>${order.map(line => html`<option value=${line.label}>${line.label}</option>`)}</select></label>`}
    <details><summary>${t('as a table')}</summary><div class="wide"><table><thead><tr><th>${t('line')}</th><th>${t('first')}</th><th>${t('last')}</th></tr></thead><tbody>${order.slice(0, 100).map(line => html`<tr><td>${line.label}</td><td>${Number(line.points[0]?.[1] ?? 0).toPrecision(4)}</td><td>${Number(last(line)).toPrecision(4)}</td></tr>`)}</tbody></table></div></details></section>`;
}

export function Training({state}) {
  const training = useDocument('training');
  if (training === undefined) return html`<p class="soft">${t('loading')} …</p>`;
  if (!training || training instanceof Error) return html`<p class="soft">${t('This run has a single step.')}</p>`;
  const chosen = state.options.line ? [state.options.line] : [];
  return html`<div class="head"><h1>${t('Training over its steps')}</h1></div><div class="columns">
    <div><${Lines} title=${t('loss')} lines=${training.losses} log=${false} chosen=${chosen} name="losses" /><${Lines} title=${t('norms of gradients')} lines=${training.gradient} chosen=${chosen} name="gradient" /></div>
    <div><${Lines} title=${t('norms of parameters')} lines=${training.parameter} chosen=${chosen} name="parameter" /><${Lines} title=${t('share of zeros after activations')} lines=${training.zeros} log=${false} chosen=${chosen} name="zeros" /></div></div>`;
}
