// SPDX-License-Identifier: Apache-2.0
// The frame around the views: which there are, search, keys, theme and language.
import {render} from 'preact';
import {html, link, read, useDocument, useEffect, useMemo, useRef, useState} from 'opscope/parts';
import {get, live} from 'opscope/source';
import {Verdict} from 'opscope/verdict';
import {Aicore} from 'opscope/aicore';
import {Call} from 'opscope/call';
import {Compare} from 'opscope/compare';
import {Model} from 'opscope/model';
import {Ranks} from 'opscope/ranks';
import {Timeline} from 'opscope/timeline';
import {Training} from 'opscope/training';
import {languages, speak, t} from 'opscope/words';

const VIEWS = [
  {name: 'verdict', title: 'Verdict', needs: 'verdict', view: Verdict},
  {name: 'timeline', title: 'Timeline', needs: 'timeline', view: Timeline},
  {name: 'model', title: 'Model', needs: 'model', view: Model},
  {name: 'call', title: 'Call', needs: 'calls', view: Call},
  {name: 'compare', title: 'Compare', needs: 'compare', view: Compare},
  {name: 'ranks', title: 'Ranks', needs: 'ranks', view: Ranks},
  {name: 'aicore', title: 'AI Core', needs: 'aicore', view: Aicore},
  {name: 'training', title: 'Training', needs: 'training', view: Training},
];
const FOUND = 12;

function useHash() {
  const [state, put] = useState(read(location.hash));
  useEffect(() => {
    const changed = () => put(read(location.hash));
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return state;
}

function Search() {
  const names = useDocument('names');
  const [text, put] = useState('');
  const [row, move] = useState(0);
  const box = useRef(null);
  useEffect(() => {
    const pressed = event => {
      if (event.key === '/' && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName)) { event.preventDefault(); box.current.focus(); }
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
  const [told, tell] = useState({});
  useEffect(() => {
    if (!live || !text.trim()) return undefined;
    const waiting = setTimeout(() => get('search', text.trim().toLowerCase()).then(rows => tell({text, rows: Object.entries(rows)}), () => {}), 200);
    return () => clearTimeout(waiting);
  }, [text]);
  const found = useMemo(() => {
    if (live) return text.trim() && told.rows ? told.rows.slice(0, FOUND) : [];
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length || !names || names instanceof Error) return [];
    const fits = ([, known]) => { const line = `${known[0]} ${known[1]} ${known[2]}`.toLowerCase(); return words.every(word => line.includes(word)); };
    return Object.entries(names).filter(fits).slice(0, FOUND);
  }, [text, names, told]);
  const go = id => { put(''); box.current.blur(); location.hash = link('call', id); };
  const pressed = event => {
    if (event.key === 'Escape') { put(''); box.current.blur(); }
    if (event.key === 'ArrowDown') { event.preventDefault(); move(Math.min(row + 1, found.length - 1)); }
    if (event.key === 'ArrowUp') { event.preventDefault(); move(Math.max(row - 1, 0)); }
    if (event.key === 'Enter' && found[row]) go(found[row][0]);
  };
  return html`<div class="search"><input ref=${box} type="search" role="combobox" aria-expanded=${found.length > 0} aria-controls="found" aria-autocomplete="list" aria-activedescendant=${found.length ? `found-${row}` : undefined} placeholder=${`${t('search calls')}  /`} aria-label=${t('search calls')} value=${text} onInput=${event => { put(event.target.value); move(0); }} onKeyDown=${pressed} />
    <ul id="found" role="listbox" aria-label=${t('search calls')} hidden=${!found.length}>${found.map(([id, known], place) => html`<li id=${`found-${place}`} role="option" aria-selected=${place === row} onMouseDown=${() => go(id)}><b>${known[0]}</b> <span class="soft">${known[1]} · ${t('step')} ${known[2]}</span></li>`)}</ul></div>`;
}

function Frame() {
  const state = useHash();
  const run = useDocument('run');
  const content = useRef(null);
  const set = (name, value) => { const options = {...state.options}; if (value) options[name] = value; else delete options[name]; location.hash = `${link(state.view, state.key).split('?')[0]}?${new URLSearchParams(options)}`; };
  speak(state.options.lang ?? (navigator.language?.startsWith('zh') ? 'zh' : 'en'));
  document.documentElement.dataset.theme = state.options.theme ?? 'system';
  const there = run?.views ?? ['verdict', 'calls'];
  const shown = VIEWS.filter(one => there.includes(one.needs));
  const current = shown.find(one => one.name === state.view) ?? shown[0];
  useEffect(() => {
    const pressed = event => {
      if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName)) return;
      const place = Number(event.key) - 1;
      if (shown[place]) location.hash = link(shown[place].name);
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  });
  useEffect(() => { scrollTo(0, 0); document.title = `opscope · ${t(current.title)}${state.key ? ` · ${state.key}` : ''}`; }, [state.view, state.key]);
  const mode = state.options.theme ?? 'system';
  return html`<a class="skip" href="#content" onClick=${event => { event.preventDefault(); content.current.focus(); }}>${t('skip to content')}</a>
    <header class="bar"><a class="mark" href=${link('verdict')}><svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><circle cx="10" cy="10" r="8.2" /><path d="M1.5 10h5l2-5 3 10 2-5h5" /></svg>opscope</a>
      <nav aria-label="views">${shown.map((one, place) => html`<a href=${link(one.name, one.name === state.view ? state.key : '')} aria-current=${one === current ? 'page' : undefined} title=${String(place + 1)}>${t(one.title)}</a>`)}</nav>
      <${Search} /><${Growing} run=${run} />
      <label class="choice"><span class="hidden">${t('theme')}</span><select value=${mode} onChange=${event => set('theme', event.target.value === 'system' ? '' : event.target.value)}><option value="system">◐ ${t('as the system')}</option><option value="light">○ ${t('light')}</option><option value="dark">● ${t('dark')}</option></select></label>
      <label class="choice"><span class="hidden">${t('language')}</span><select value=${document.documentElement.lang.startsWith('zh') ? 'zh' : 'en'} onChange=${event => set('lang', event.target.value)}>${Object.entries(languages).map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select></label></header>
    <main id="content" ref=${content} tabindex="-1">${run !== undefined && html`<${current.view} key=${`${mode} ${state.options.lang}`} state=${state} />`}</main>
    <footer class="foot"><span>${run?.path ?? ''}</span>${run?.command?.length > 0 && html`<span>${run.command.join(' ')}</span>`}<span>${live ? 'live' : ''}</span></footer>`;
}

// A live page says when its run has grown; what is shown stays until one asks for more.
function Growing({run}) {
  const [grown, put] = useState(false);
  const runs = useDocument('runs');
  useEffect(() => {
    if (!live || !run || run.sealed) return undefined;
    let first;
    const asking = setInterval(async () => {
      try { const {state} = await fetch('data/state').then(answer => answer.json()); first ??= state; put(state !== first); } catch { /* the server ended; what is shown stays */ }
    }, 3000);
    return () => clearInterval(asking);
  }, [run?.sealed]);
  const here = Number(location.pathname.split('/').at(-2));
  return html`${runs?.length > 1 && html`<label class="choice"><span class="hidden">${t('runs')}</span><select value=${here} onChange=${event => { location.href = `../${event.target.value}/`; }}>${runs.map((name, place) => html`<option value=${place}>${name}</option>`)}</select></label>`}
    ${grown && html`<button class="copy" onClick=${() => location.reload()}>${t('more was recorded: show it')}</button>`}`;
}

const page = document.getElementById('page');
page.textContent = '';
render(html`<${Frame} />`, page);
