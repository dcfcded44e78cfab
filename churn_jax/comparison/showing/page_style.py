"""What the page of a comparison adds to the style sheet of all pages."""

STYLE = """
header h1,.compare tbody th{overflow-wrap:anywhere}
.compare.history tbody th{overflow-wrap:break-word}
.compare thead th{min-width:4.2rem}
.said p{margin:.5rem 0}.said .lead{font-size:1.15rem}
.said .outcome{font-size:1.5rem;font-weight:700;padding:.5rem .9rem;margin:1rem 0 .6rem;
border:2px solid;border-radius:.4rem}
.outcome.good,.good>b{color:var(--good)}.outcome.bad,.bad>b{color:var(--bad)}
.verdicts li{border-left-width:6px;overflow-wrap:anywhere}
.remark{border-left-color:var(--soft)}.remark p{margin:.25rem 0}
.compare small{display:block;font-size:.75rem;font-weight:400;color:var(--soft)}
.compare .text{text-align:left}
.compare td.text{white-space:normal;overflow-wrap:anywhere}
.compare tbody td{vertical-align:top}
.compare tbody th{white-space:normal;vertical-align:top;min-width:9rem;
max-width:16rem;position:sticky;left:0;background:var(--page);font-weight:600}
.compare caption{caption-side:top;padding:0 0 .4rem}
.compare td.text{min-width:5rem;max-width:16rem}
.compare .better{color:var(--good);font-weight:600}
.compare .worse{color:var(--bad);font-weight:600}
.compare .bar{display:block;width:7rem;height:.9rem;margin:.1rem 0 0 auto}
.numbers{margin-top:1.2rem}.numbers th:last-child{text-align:left}
.numbers td:last-child{text-align:left;white-space:normal;min-width:11rem;
max-width:28rem;color:var(--soft)}
th button{font:inherit;color:inherit;background:none;border:0;padding:.1rem 0;margin:0;
text-align:inherit;cursor:pointer;width:100%;line-height:1.2}
th button::after{content:"\\a0\\2195";opacity:.45}
th[aria-sort=ascending] button::after{content:"\\a0\\2191";opacity:1}
th[aria-sort=descending] button::after{content:"\\a0\\2193";opacity:1}
th button:hover,th[aria-sort] button{text-decoration:underline}
th button:focus-visible,.scroll:focus-visible{outline:2px solid #0072b2;
outline-offset:1px}
section>details>summary{font-size:1rem;margin:.8rem 0;border:0}
@media(max-width:32rem){.compare tbody th{min-width:5rem;max-width:8.5rem}
.numbers th:last-child,.numbers td:last-child{display:none}
.versions td,.versions th{padding:.35rem .25rem}
.versions small{white-space:normal}.versions tbody th{min-width:4rem}
.said .outcome{font-size:1.2rem}}
@media print{.compare{font-size:9px}.compare th,.compare td{padding:.2rem .35rem}
dt{break-after:avoid}dd{break-inside:avoid}
.compare tbody th{position:static}
.compare small{font-size:inherit}th button::after{content:""!important}
thead{display:table-header-group}tr,li{break-inside:avoid}}
"""
