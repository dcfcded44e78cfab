"""The style sheet of `report.html`: light, dark, phone and paper."""

__all__ = ["STYLE"]

STYLE = """
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#5b6168;--line:#d7dadf;
--page:#fff;--card:#f6f7f9;--good:#00694b;--bad:#a63c00;--mixed:#8a6a00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#a2a9b1;--line:#3a3f46;
--page:#16181b;--card:#1f2226;--good:#4fc79b;--bad:#ff9a5c;--mixed:#e0bd3a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1rem 1.25rem 3rem;background:var(--page);
color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:0 0 .4rem}
.soft,caption,figcaption{color:var(--soft);font-size:.875rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.8125rem}
caption{caption-side:bottom;text-align:left;padding-top:.5rem}
th,td{padding:.35rem .45rem;border-bottom:1px solid var(--line);text-align:right;
white-space:nowrap}
thead th{white-space:normal;vertical-align:bottom;line-height:1.2}
th:first-child,td:first-child{text-align:left}
.main th:first-child,.beside tbody th,.beside th[rowspan]{position:sticky;left:0;
background:var(--page)}
.main tbody th{white-space:normal;min-width:7rem;max-width:11rem}
.facts{width:100%}
.facts th,.facts td{text-align:left;white-space:normal;vertical-align:top}
.facts th{font-weight:600;width:11rem}.facts td{overflow-wrap:anywhere}
.verdicts{list-style:none;padding:0;margin:.8rem 0}
.verdicts li{padding:.3rem 0 .3rem .8rem;border-left:4px solid var(--line);
margin-bottom:.35rem}
.verdicts .good{border-color:var(--good)}.verdicts .bad{border-color:var(--bad)}
.verdicts .mixed{border-left:6px double var(--mixed)}
.best{font-size:1.1rem;margin:.6rem 0 1rem}
.first .verdicts{margin:.4rem 0}.card summary{font-weight:600;padding:.35rem .45rem}
.note{background:var(--card);border-left:4px solid var(--bad);padding:.5rem .8rem;
margin:.5rem 0}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));
gap:1.2rem;align-items:start}
figure,.card{margin:0;background:var(--card);padding:.9rem;border-radius:.4rem;
break-inside:avoid;min-width:0}
figure svg{display:block;width:100%;height:auto;max-width:38rem;margin:auto}
.inputs{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));
gap:.7rem;margin:.8rem 0 1.2rem}
.inputs figure{padding:.5rem;text-align:center}
.inputs img{width:5.5rem;height:auto;image-rendering:pixelated;background:#fff}
.inputs figcaption{font-size:.75rem;line-height:1.35;overflow-wrap:anywhere}
.beside td.paper{color:var(--soft);border-left:1px solid var(--line)}
.beside{font-size:.75rem}.beside th,.beside td{padding:.3rem .3rem}
.beside thead th{text-align:center}
.beside thead th:first-child[rowspan]{text-align:left}.doubt{color:var(--bad)}
.beside tbody th,.plain tbody th,.words tbody th{white-space:normal;min-width:7rem;
max-width:14rem}
.words td,.words th{text-align:left;white-space:normal;vertical-align:top}
code,pre{font-size:.85rem;font-family:ui-monospace,monospace}
pre{white-space:pre-wrap;background:var(--card);padding:.8rem;border-radius:.4rem;
margin:.5rem 0}
summary{cursor:pointer}section>details>summary{font-size:1.25rem;font-weight:600;
margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line)}
dt{font-weight:600;margin-top:.6rem}dd{margin:0 0 0 1rem}
.math{font-family:Cambria,Georgia,serif;font-style:italic}
@media(max-width:32rem){body{padding:.75rem}figure,.card{padding:.6rem}
.facts th{width:7rem}
.main tr>:nth-child(2),.main tr>:nth-child(3){display:none}}
@media print{html{font-size:11px}body{max-width:none;font-size:1rem}
.scroll{overflow:visible}
table{font-size:8px}th,td{padding:.15rem .2rem}.main tbody th{min-width:0}
.beside{font-size:7px}.beside th,.beside td{padding:.1rem}
.inputs{grid-template-columns:repeat(6,1fr)}h2{break-after:avoid}
.grid{grid-template-columns:1fr 1fr}}
"""
