// SPDX-License-Identifier: Apache-2.0
// One call with all that is known of it.
import {Chart} from 'opscope/chart';
import {Cells} from 'opscope/compare';
import {CallLink, Code, Command, Range, histories, html, isWrong, moduleOf, useDocument} from 'opscope/parts';
import {t} from 'opscope/words';

const number = value => typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;

function References({title, process, numbers, names, more = 0}) {
  const shown = (numbers ?? []).filter(one => one !== null && one !== undefined);
  if (!shown.length) return null;
  return html`<div class="references"><dt>${title}</dt><dd>${shown.map(one => html`<${CallLink} id=${`${process}.${one}`} name=${names[`${process}.${one}`]?.[0]} /> `)}${more > 0 && html`<span class="soft">+${more}</span>`}</dd></div>`;
}

function Picture({picture}) {
  if (!picture?.cells) return null;
  const largest = Math.max(1, ...picture.counts);
  return html`<p class="small soft">${t('values')}: ${picture.edges[0] ?? ''} … ${picture.edges.at(-1) ?? ''}</p><div class="histogram" role="img" aria-label=${t('values')}>${picture.counts.map((count, place) => html`<span style=${{height: `${Math.max(count ? 3 : 0, 100 * count / largest)}%`}} title=${`${picture.edges[place]} … ${picture.edges[place + 1]}: ${count}`}></span>`)}</div>
    <div class="picture"><${Cells} picture=${picture} label=${t('magnitude of the elements')} /><p class="small soft">${t('magnitude of the elements')} · ${t('largest')} ${Number(picture.largest).toPrecision(3)}${picture.shape.length > 2 ? ` · [${picture.shape.slice(0, -1).join('×')}, ${picture.shape.at(-1)}]` : ''}</p></div>`;
}

function Tensor({tensor, process, names}) {
  const lines = histories([tensor]);
  const stats = Object.entries(tensor.stats);
  return html`<article class="card tensor-card ${isWrong(tensor.stats) ? 'bad' : ''}"><header><h3>${t(tensor.io)} ${tensor.slot}</h3><code class=${isWrong(tensor.stats) ? 'wrong' : ''}>${tensor.line}</code>${tensor.tensor_name && html`<span class="soft">${tensor.tensor_name}</span>`}</header>
    <${Range} stats=${tensor.stats} limit=${tensor.limit} />
    <dl class="pairs">${stats.length ? stats.map(([name, value]) => html`<div><dt>${name}</dt><dd>${number(value)}</dd></div>`) : html`<div><dd class="soft">${t('no statistics')}</dd></div>`}
      ${['role', 'device', 'stride', 'layout', 'version', 'digest'].filter(name => tensor[name] !== undefined).map(name => html`<div><dt>${name}</dt><dd>${String(tensor[name])}</dd></div>`)}</dl>
    <dl><${References} title=${t('made by')} process=${process} numbers=${[tensor.maker]} names=${names} />
    <${References} title=${t('read by')} process=${process} numbers=${tensor.readers} names=${names} more=${(tensor.readings ?? 0) - (tensor.readers?.length ?? 0)} /></dl>
    ${lines.length > 0 && html`<${Chart} series=${lines} limit=${tensor.limit ?? undefined} label=${tensor.dtype} height=${170} />`}
    <${Picture} picture=${tensor.picture} />${!tensor.kept && html`<p class="soft small">${t('values not kept; record with --values full to keep them')}</p>`}
  </article>`;
}

export function Call({state}) {
  const [names, run] = [useDocument('names'), useDocument('verdict')];
  const key = state.key || run?.findings?.find(one => one.id)?.id;
  const call = useDocument(key ? 'calls' : '', key);
  if (names === undefined || run === undefined || (key && call === undefined)) return html`<p class="soft">${t('loading')} …</p>`;
  if (!key) return html`<p class="soft">${t('Choose a call in another view, or search for one.')}</p>`;
  if (call === null || call instanceof Error) return html`<p class="soft">${t('This file does not hold that call; opscope serve shows every one.')}</p>`;
  const known = call.names ?? names ?? {};
  const facts = [['operator', call.op], ['module', moduleOf(call.module)], ['phase', t(call.phase)], ['step', call.step], ['rank', call.rank], ['index', call.index], ['level', t(call.level)], ['device', call.device], ['status', call.status === undefined ? undefined : `0x${call.status.toString(16)}`], ['error', call.error]];
  const quoted = text => /^[\w./:#~@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
  const where = run?.runs?.[0];
  return html`<div class="hero call"><p class="over">${t('step')} ${call.step} · ${t(call.phase)}</p><h1>${call.name}</h1>
      <dl class="pairs broad">${facts.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => html`<div><dt>${t(name)}</dt><dd>${value}</dd></div>`)}</dl></div>
    <div class="columns"><section class="left"><h2>${t('tensors')}</h2>${call.tensors.map(tensor => html`<${Tensor} tensor=${tensor} process=${call.process} names=${known} />`)}</section>
    <section class="right"><h2>${t('source')}</h2><${Code} code=${call.code} source=${call.source} />
      <dl><${References} title=${t('forward call')} process=${call.process} numbers=${[call.forward_index]} names=${known} />
      <${References} title=${t('backward calls')} process=${call.process} numbers=${call.backward} names=${known} />
      <${References} title=${t('inside')} process=${call.process} numbers=${[call.parent]} names=${known} /></dl>
      ${call.frames.length > 0 && html`<section><h3>${t('stack, innermost first')}</h3><ol class="stack">${call.frames.map(frame => html`<li><span>${frame.place}</span>${frame.code && html`<code>${frame.code}</code>`}</li>`)}</ol>${call.foreign > 0 && html`<p class="soft small">${t('{n} frames in installed packages', {n: call.foreign})}</p>`}</section>`}
      ${call.args && html`<section><h3>${t('arguments')}</h3><pre class="args" tabindex="0">${call.args}</pre></section>`}
      ${where && html`<section><h3>${t('next')}</h3>${[`opscope repro ${quoted(where)} ${quoted(`r${call.rank}/s${call.step}/${call.name}`)} -o case`, `opscope show ${quoted(where)} ${quoted(`r${call.rank}/s${call.step}/${call.name}`)} --values`].map(text => html`<${Command} text=${text} />`)}</section>`}
    </section></div>`;
}
