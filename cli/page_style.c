/* How a page looks, light and dark, and its few lines of script. */
#include "page.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#f7f6f2;--card:#fff;--ink:#22262c;--soft:#5b6370;"
    "--line:#e4e2db;--c0:#2b6a9b;--c1:#b4532a;--c2:#3a7a4a;--c3:#7856a5;--c4:#a53f6c;--c5:#6f6620;"
    "--c6:#23797f;--c7:#646b77}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14161a;--card:#1c1f25;--ink:#e7e6e2;"
    "--soft:#a2a9b5;--line:#32363f;--c0:#7cb5df;--c1:#e59b70;--c2:#86c694;--c3:#bba5e3;"
    "--c4:#e192b5;--c5:#c8c06e;--c6:#72c5cb;--c7:#aab1bc}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);"
    "font:15px/1.5 system-ui,sans-serif}\n"
    "main{max-width:1400px;margin:0 auto;padding:20px 16px 48px}h1{font-size:1.5rem;margin:8px 0}"
    "h2{font-size:1.1rem;margin:32px 0 10px}p{margin:6px 0}.soft{color:var(--soft)}\n"
    ".cards{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,390px),"
    "1fr));align-items:start}\n"
    "figure,.card{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:12px 12px 8px;min-width:0;max-width:640px}\n"
    "figcaption{font-size:.92rem;min-height:1.6em}figcaption span{color:var(--soft);"
    "font-size:.84rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}\n"
    "svg{display:block;width:100%;height:auto}svg text{font:12.5px system-ui,sans-serif;"
    "fill:var(--soft)}svg .mid{text-anchor:middle}svg .end{text-anchor:end}"
    "svg .strong{fill:var(--ink)}\n"
    ".grid{stroke:var(--line);fill:none}.frame{fill:none;stroke:var(--line)}.cross{"
    "stroke:var(--soft);stroke-dasharray:2 3}polyline{fill:none;stroke-width:1.8;"
    "stroke-linejoin:round}polyline.faint{stroke-width:1;opacity:.28}polyline.again{"
    "stroke-dasharray:6 3}\n"
    "circle,rect{stroke:none}path.cell{stroke:none!important}.span{stroke-width:2;opacity:.45}"
    ".moved{stroke-width:1.2;"
    "opacity:.6}circle.hollow{fill:var(--card)!important;stroke-width:1.6}\n"
    ".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);"
    "border-radius:8px}table{border-collapse:collapse;width:100%;font-size:.9rem;"
    "font-variant-numeric:tabular-nums}th,td{padding:7px 12px;text-align:right;"
    "white-space:nowrap}th{font-weight:600;color:var(--soft)}td:first-child,th:first-child,"
    "td:nth-child(2),th:nth-child(2){text-align:left}tr+tr td{border-top:1px solid var(--line)}\n"
    ".key{display:inline-block;width:18px;height:0;border-top:3px solid;margin-right:7px;"
    "vertical-align:middle}.key.again{border-top-style:dashed}.legend{position:sticky;top:0;"
    "z-index:1;background:var(--bg);padding:6px 0;display:flex;flex-wrap:wrap;gap:2px 18px;"
    "font-size:.88rem}\n"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,monospace;"
    "margin:6px 0 10px}details{border-top:1px solid var(--line);padding:4px 0}"
    "summary{cursor:pointer;color:var(--soft);font-size:.9rem}\n";

/* The point of each line that is nearest to the pointer, in the caption. */
static const char script[] =
    "for(const s of document.querySelectorAll('svg.lines')){\n"
    "const[x0,x1,l,r,y0,y1,b,t,log]=s.dataset.scale.split(' ').map(Number);\n"
    "const note=s.parentNode.querySelector('figcaption span')||s.parentNode.querySelector("
    "'figcaption').appendChild(document.createElement('span')),said=note.textContent;\n"
    "const cross=document.createElementNS(s.namespaceURI,'path');\n"
    "cross.setAttribute('class','cross');s.append(cross);\n"
    "const value=y=>{const p=(y-b)/(t-b);return log?y0*Math.pow(y1/y0,p):y0+p*(y1-y0)};\n"
    "s.onpointermove=e=>{const box=s.getBoundingClientRect(),w=s.viewBox.baseVal.width;\n"
    "const x=Math.min(r,Math.max(l,(e.clientX-box.left)*w/box.width)),near=new Map();\n"
    "for(const p of s.querySelectorAll('polyline:not(.faint)'))for(const q of p.points){\n"
    "const k=p.dataset.name,o=near.get(k);if(!o||Math.abs(q.x-x)<Math.abs(o.x-x))near.set(k,q)}\n"
    "cross.setAttribute('d','M'+x+' '+t+'V'+b);\n"
    "note.textContent=s.dataset.x+' '+Math.round(x0+(x-l)/(r-l)*(x1-x0))+': '+"
    "[...near].map(([k,q])=>k+"
    "' '+Number(value(q.y).toPrecision(4))).join(', ')};\n"
    "s.onpointerleave=()=>{cross.removeAttribute('d');note.textContent=said}}\n";

void page_head(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          out);
    svg_text(out, title);
    fprintf(out, "</title>\n<style>\n%s", style);
    for (int i = 0; i < SVG_COLOURS; i++)
        fprintf(out,
                "polyline.c%d,path.c%d,circle.c%d.hollow{stroke:var(--c%d)}"
                "circle.c%d,rect.c%d,.cell.c%d{fill:var(--c%d)}.key.c%d{color:var(--c%d)}\n",
                i, i, i, i, i, i, i, i, i, i);
    fputs("</style></head>\n<body><main>\n", out);
}

void page_script(FILE *out) { fprintf(out, "<script>\n%s</script>\n", script); }
