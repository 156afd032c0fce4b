// SPDX-License-Identifier: Apache-2.0
// What several views are made of.
import {h} from 'preact';
import {useEffect, useMemo, useRef, useState} from 'preact/hooks';
import htm from 'htm';
import {t} from 'opscope/words';
import {get} from 'opscope/source';

export const html = htm.bind(h);
export {useEffect, useMemo, useRef, useState};

// -- links ---------------------------------------------------------------------------------------

export function read(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [view = '', ...rest] = path.split('/');
  return {view: view || 'verdict', key: decodeURIComponent(rest.join('/')), options: Object.fromEntries(new URLSearchParams(query))};
}
// A link to a state: the view, what is chosen in it, how it is drawn; language and theme stay.
export function link(view, key = '', options = {}) {
  const kept = read(location.hash).options;
  const query = new URLSearchParams({...(kept.lang && {lang: kept.lang}), ...(kept.theme && {theme: kept.theme}), ...options}).toString();
  return `#${view}/${encodeURIComponent(key)}${query ? `?${query}` : ''}`;
}

// -- documents -----------------------------------------------------------------------------------

// A document once it is there: undefined while it loads, null where the page has none.
export function useDocument(name, key) {
  const [found, put] = useState({});
  const place = `${name} ${key}`;
  useEffect(() => {
    let here = true;
    if (name) get(name, key).then(value => here && put({place, value: value ?? null}), error => here && put({place, value: null, error}));
    return () => { here = false; };
  }, [place]);
  if (found.place !== place) return undefined;
  return found.error ?? found.value;
}

// -- small things --------------------------------------------------------------------------------

export const SHAPES = {origin: '◆', unsound: '●', reached: '▶', mask: '▲', hidden: '■', sound: '○', unread: '·'};
export const Status = ({kind}) => html`<span class="status ${kind}"><span class="shape" aria-hidden="true">${SHAPES[kind]}</span>${t(kind)}</span>`;

export function Copy({text}) {
  const [done, put] = useState(false);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); } catch {
      const area = Object.assign(document.createElement('textarea'), {value: text});
      document.body.append(area); area.select(); document.execCommand('copy'); area.remove();
    }
    put(true); setTimeout(() => put(false), 1500);
  };
  return html`<button class="copy" onClick=${copy} aria-label=${`${t('copy')}: ${text}`}>${t(done ? 'copied' : 'copy')}</button>`;
}
export const Command = ({text}) => html`<div class="command"><code>${text}</code><${Copy} text=${text} /></div>`;

export function Code({code, source}) {
  if (!code) return html`<div class="code missing"><p class="file">${source ?? ''}</p><p class="soft">${t('The source is not at hand.')}</p></div>`;
  return html`<figure class="code"><figcaption class="file">${code.file}<b>:${code.line}</b></figcaption>
    <pre tabindex="0" aria-label=${`${code.file}:${code.line}`}>${code.lines.map((text, row) => html`<span class=${code.first + row === code.line ? 'row here' : 'row'}><span class="number" aria-hidden="true">${code.first + row === code.line ? '▸' : ''}${code.first + row}</span>${text || ' '}\n</span>`)}</pre></figure>`;
}

export const shortOp = op => (op ?? '').replace(/^aten::/, '').replace(/\.default$/, '');
export const moduleOf = module => module || t('the model itself');
export const isWrong = stats => Boolean(stats && (stats.nan || stats.pos_inf || stats.neg_inf));
export function wrongWords(stats) {
  return [['pos_inf', 'inf'], ['neg_inf', '−inf'], ['nan', 'NaN']].filter(([name]) => stats?.[name]).map(([name, word]) => `${stats[name]} ${word}`).join(', ');
}

export const CallLink = ({id, name}) => html`<a href=${link('call', id)}>${name ?? id}</a>`;

// How far a tensor's values reach, from minus the limit of its type to plus it, by octaves.
export function Range({stats, limit}) {
  if (!stats || typeof stats.min !== 'number' || typeof stats.max !== 'number' || !limit) return null;
  const octaves = Math.log2(limit) + 24;
  const at = value => 50 + 50 * Math.sign(value) * Math.min(1, Math.max(0, (Math.log2(Math.abs(value) || 1e-300) + 24) / octaves));
  const [low, high] = [at(stats.min), at(stats.max)];
  return html`<span class="range" aria-hidden="true"><span class="zero"></span><span class=${isWrong(stats) ? 'span wrong' : 'span'} style=${{left: `${low}%`, width: `${Math.max(0.8, high - low)}%`}}></span>${isWrong(stats) && html`<span class="beyond">✕</span>`}</span>`;
}
export const TensorLine = ({tensor}) => html`<li class="tensor"><span class="slot">${tensor.slot}</span><code class=${isWrong(tensor.stats) ? 'wrong' : ''}>${tensor.line}</code>${tensor.tensor_name && html`<span class="soft"> ${tensor.tensor_name}</span>`}<${Range} stats=${tensor.stats} limit=${tensor.limit} /></li>`;
export function Tensors({title, tensors}) {
  return tensors.length ? html`<section><h3>${title}</h3><ul class="tensors">${tensors.map(tensor => html`<${TensorLine} tensor=${tensor} />`)}</ul></section>` : null;
}

// The lines of a chart for the tensors of a call that have a history.
export function histories(tensors) {
  return tensors.filter(tensor => tensor.series?.length).map(tensor => ({
    label: `${t(tensor.io)} ${tensor.slot}`,
    points: tensor.series.map(([step, low, high, wrong]) => [step, low === null ? null : Math.max(Math.abs(low), Math.abs(high)), wrong]),
  }));
}
