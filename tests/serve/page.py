"""The page in headless Chromium, by its debugging protocol: page.py URL CHROMIUM PICTURES. What is
shown is looked at: innerText, boxes and screenshots, not only the tree. Prints TAP lines."""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import websocket  # websocket-client
except ImportError:
    websocket = None

url, chromium, pictures = sys.argv[1:4]
if not shutil.which(chromium) or websocket is None:
    print("ok 1 - the page # SKIP needs chromium and the package websocket-client\n1..1")
    sys.exit(0)

done = bad = 0


def check(name, well, found=""):
    global done, bad
    done += 1
    bad += not well
    print(f"{'ok' if well else 'not ok'} {done} - {name}{'' if well else f' # {found}'}", flush=True)


class Page:
    def __init__(self, port):
        for _ in range(100):
            try:
                tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
                break
            except OSError:
                time.sleep(0.1)
        page = next(t for t in tabs if t["type"] == "page")
        self.ws = websocket.create_connection(page["webSocketDebuggerUrl"], suppress_origin=True)
        self.n = 0
        self.said = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.n += 1
        self.ws.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            m = json.loads(self.ws.recv())
            if m.get("id") == self.n:
                return m.get("result", {})
            level = m.get("params", {}).get("entry", {}).get("level")
            if m.get("method") == "Runtime.exceptionThrown" or level == "error":
                self.said.append(json.dumps(m["params"])[:300])

    def run(self, script):
        r = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return r.get("result", {}).get("value")

    def wait(self, script, seconds=20):
        end = time.time() + seconds
        while time.time() < end:
            if self.run(script):
                return True
            time.sleep(0.05)
        return False

    def key(self, key, text=None):
        code = {"Enter": 13, "Escape": 27}.get(key, 0)
        down = {"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
        if text:
            down["text"] = text
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        self.run("document.getElementById('say').focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector):
        box = self.run(f"""(() => {{ const r = document.querySelector({json.dumps(selector)})
            .getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                      clickCount=1)

    def picture(self, name):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        with open(os.path.join(pictures, name), "wb") as f:
            f.write(data)
        return len(data)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=phone)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])


ANSWER = "document.querySelector('#messages li:last-child .text').innerText"
IDLE = "document.getElementById('stop').disabled"
scratch = tempfile.mkdtemp()
port = 20000 + os.getpid() % 20000
browser = subprocess.Popen([chromium, "--headless=new", "--no-sandbox", "--disable-gpu",
                            f"--remote-debugging-port={port}", f"--user-data-dir={scratch}",
                            "--remote-allow-origins=*", "about:blank"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    p = Page(port)
    p.size(1200, 800)
    p.scheme("light")
    p.call("Page.navigate", url=url)
    check("the page shows the model", p.wait("document.getElementById('model').value === 'tiny'"))
    check("and its facts", p.wait("document.getElementById('facts').children.length > 4"))
    p.run("document.getElementById('max_tokens').value = 60")
    p.type("<b>hello</b>")
    p.key("Enter", "\r")
    check("an answer comes", p.wait(ANSWER + ".length > 0"))
    check("and ends", p.wait(IDLE))
    check("what was said is shown as text", p.run(
        "document.querySelector('#messages li.user .text').innerText") == "<b>hello</b>" and
        p.run("document.querySelectorAll('#messages b').length") == 0)
    check("norms of the memory are drawn", p.run(
        "document.querySelectorAll('#memory polyline').length") > 0)
    check("with some height", p.run("""[...document.querySelectorAll('#memory polyline')]
        .some((x) => x.getBoundingClientRect().width > 50)"""))
    check("figures", "written" in (p.run("document.getElementById('figures').innerText") or ""))
    light = p.run("getComputedStyle(document.body).backgroundColor")
    check("a picture, light", p.picture("page-light.png") > 5000)
    p.scheme("dark")
    dark = p.run("getComputedStyle(document.body).backgroundColor")
    check("a picture, dark", p.picture("page-dark.png") > 5000 and light != dark, f"{light} {dark}")

    p.run("document.getElementById('max_tokens').value = 4000")
    p.type("and now a long one")
    p.key("Enter", "\r")
    p.wait(ANSWER + ".length > 3")
    p.key("Escape")
    check("Escape stops an answer", p.wait(IDLE, 5))
    stopped = p.run(ANSWER)
    time.sleep(0.3)
    check("and no more comes", p.run(ANSWER) == stopped)

    names = "[...document.querySelectorAll('#states .name')].map((x) => x.innerText)"
    said = p.run(names)
    check("a conversation is one state, named by its first words",
          len([x for x in said if re.fullmatch(r"b-hello-b\.\d\d\.\d\d\.\d\d", x)]) == 1, said)
    turns = p.run("document.querySelectorAll('#messages li').length")
    p.click("#messages li.assistant .who button")
    check("a fork goes on from its message", p.wait(
        f"document.querySelectorAll('#messages li').length < {turns}"), turns)
    p.run("document.getElementById('max_tokens').value = 8")
    p.type("again")
    p.key("Enter", "\r")
    check("and is a state of its own", p.wait(f"{IDLE} && {names}.length === {len(said) + 1}"),
          p.run(names))
    p.type("and again")
    p.key("Enter", "\r")
    p.wait(f"{IDLE} && document.querySelectorAll('#messages li').length === 6")
    check("that later answers replace", p.wait(f"{names}.length === {len(said) + 1}"), p.run(names))
    sent = "window.sent.filter((x) => x.messages)"
    p.run("""(() => { window.sent = []; const old = window.fetch; window.fetch = (path, how) => {
        if (how && how.body) window.sent.push(JSON.parse(how.body)); return old(path, how); }; })()""")
    p.type("a third")
    p.key("Enter", "\r")
    p.wait(f"{IDLE} && document.querySelectorAll('#messages li').length === 8")
    check("only what is new is sent, after the state of the last answer", p.run(
        f"{sent}.length === 1 && {sent}[0].messages.length === 1 && {sent}[0].dra_after_answer && "
        f"{sent}[0].dra_state === {sent}[0].dra_save_state"), p.run(f"JSON.stringify({sent})"))
    p.run("document.getElementById('system').value = 'Be brief.'")
    p.type("a fourth")
    p.key("Enter", "\r")
    p.wait(f"{IDLE} && document.querySelectorAll('#messages li').length === 10")
    check("another instruction is one of the whole", p.run(
        f"{sent}.length === 2 && {sent}[1].messages.length === 10 && !{sent}[1].dra_state"),
        p.run(f"JSON.stringify({sent}[1])"))
    p.run("fetch('/states/' + talk.name + '?model=tiny', { method: 'DELETE' }).then((r) => r.status)")
    p.type("a fifth")
    p.key("Enter", "\r")
    p.wait(f"{IDLE} && document.querySelectorAll('#messages li').length === 12")
    check("and where the state is gone all is sent again", p.run(
        f"{sent}.length === 4 && {sent}[2].messages.length === 1 && "
        f"{sent}[3].messages.length === 12 && {ANSWER}.length > 0"), p.run(f"JSON.stringify({sent})"))
    p.said = [x for x in p.said if "404" not in x]  # the browser tells of the one that was gone
    p.run("document.getElementById('system').value = ''")
    p.run("document.getElementById('state-name').value = 'mine'")
    p.click("#keep button")
    check("a conversation is kept by a name", p.wait(
        "[...document.querySelectorAll('#states .name')].some((x) => x.innerText === 'mine')"))
    said = p.run("document.getElementById('messages').innerText.length")
    p.call("Page.reload")
    check("loading the page again shows the conversation", p.wait(
        f"document.getElementById('messages').innerText.length === {said}"))
    p.wait("document.querySelectorAll('#states li').length > 0")
    p.run("""[...document.querySelectorAll('#states li')].find((x) => x.innerText.includes('mine'))
        .querySelector('button').click()""")
    check("loading a state shows its memory", p.wait(
        "document.querySelectorAll('#memory rect').length > 0"))
    p.run("document.getElementById('max_tokens').value = 8")
    p.type("go on")
    p.key("Enter", "\r")
    check("and goes on from it", p.wait(f"{IDLE} && {ANSWER}.length > 0"),
          p.run("document.getElementById('notice').innerText"))
    p.run("""[...document.querySelectorAll('#states li')].find((x) => x.innerText.includes('mine'))
        .querySelectorAll('button')[1].click()""")
    check("a state is deleted", p.wait("""[...document.querySelectorAll('#states .name')]
        .every((x) => x.innerText !== 'mine')"""))

    own = p.run("talk.name")
    p.click("#fresh")
    check("the state of a conversation goes with it", own and p.wait(
        f"!{names}.includes({json.dumps(own)}) && document.querySelectorAll('#messages li').length === 0"),
        p.run(names))
    check("but not that of another", p.run(f"{names}.length > 0"), p.run(names))

    p.run("""Promise.all(['tiny', 'tiny-q4_0'].map((model) => fetch('/states/both', { method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ prompt: 'x', model }) }))).then(show_states)""")
    both = "[...document.querySelectorAll('#states li')].filter((x) => x.innerText.includes('both'))"
    check("states of two models say whose they are", p.wait(f"{both}.length === 2") and p.run(
        f"{both}.every((x) => x.innerText.includes('tiny'))"), p.run(names))
    p.run(f"{both}.find((x) => x.innerText.includes('q4_0')).querySelector('button').click()")
    check("loading one chooses its model", p.wait(
        "document.getElementById('model').value === 'tiny-q4_0'") and p.wait(
        "document.querySelectorAll('#memory rect').length > 0"))
    p.run(f"{both}.find((x) => x.innerText.includes('q4_0')).querySelectorAll('button')[1].click()")
    check("and only that one is deleted", p.wait(f"{both}.length === 1") and p.run(
        f"!{both}[0].innerText.includes('q4_0')"))

    p.size(390, 780, True)
    check("a phone needs no sideways scrolling", p.run(
        "document.documentElement.scrollWidth <= 390"),
        p.run("document.documentElement.scrollWidth"))
    check("a picture, phone", p.picture("page-phone.png") > 5000)
    p.click("#panels")
    check("settings open on a phone", p.run(
        "document.getElementById('side').getBoundingClientRect().width > 300"))
    check("no errors", not p.said, p.said)
finally:
    browser.terminate()
    browser.wait()
    shutil.rmtree(scratch, ignore_errors=True)
print(f"1..{done}")
sys.exit(bad > 0)
