#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: the page of a failing run works in a browser: its script runs without an error, lanes, arrows and
# marks are there, keys and wheel do what they say, light and dark are readable, nothing comes from
# elsewhere. Method: headless Chromium prints the page's elements and takes pictures, whose pixels are
# counted; what a user does is done by a script that is appended to a copy of the page.
set -euo pipefail

broken=${IST_BROKEN:?}
browser=$(command -v chromium || command -v chromium-browser || true)
if [[ -z $browser ]]; then
    echo "Chromium is not here"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export HOME=$scratch

show() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --window-size=1400,900 --virtual-time-budget=4000 "$@" 2>browser.err || {
        cat browser.err
        exit 1
    }
}
for name in race wait bytes; do
    "$broken" broken-$name --faults none --out . >/dev/null && exit 1
    mv broken-$name-*.html $name.html
done
# Four ranks on the network, several steps, a rank that dies: thousands of events, puts and signals.
cat >large.json <<'JSON'
{"isthmus_case":1,"scenario":"ep-two-handles-gin","params":{"ranks":[4,2],"tokens":[4,1],"hidden":[16,4],
"experts":[6,1],"topk":[2,1],"steps":[4,1]},"seed":"0000000000000007","scheduler":"random","depth":0,"steps":0,
"choices":[],"finding":"none","status":"IST_OK","digest":"0000000000000000","device_ops":0,
"faults":{"faults":[{"kind":"kill","rank":2,"at_point":"ep.combine.sent","nth":3}]}}
JSON
"$broken" --replay large.json --out . >/dev/null && exit 1
for name in race wait bytes large; do
    if grep -nEi '(src|href) *= *["'\'']?(https?:|//)|@import|fetch\(|XMLHttpRequest' $name.html; then
        echo "$name.html asks for something from elsewhere"
        exit 1
    fi
    show --dump-dom "file://$scratch/$name.html" >$name.dom
    show --screenshot="$scratch/$name.png" "file://$scratch/$name.html" >/dev/null
done
show --force-dark-mode --screenshot="$scratch/dark.png" "file://$scratch/race.html" >/dev/null

# A user: next mark, events, zoom, both axes, drag, wheel; each must have its effect.
cat >user.js <<'JS'
<script>
const must = (what, holds) => { if (!holds) throw new Error(what); };
const key = (k) => window.dispatchEvent(new KeyboardEvent("keydown", {key: k, cancelable: true}));
key("m"); must("mark", marks.length === 0 || document.querySelector("#shapes .picked.mark"));
if (marks.length === 0) key("j");
must("told", $("detail").children.length > 0);
const first = $("detail").textContent;
key("j"); key("j"); must("step", document.querySelectorAll("#shapes .picked").length === 1);
key("k"); must("back", $("detail").textContent !== first);
key("0"); const whole = view.scale; key("+"); must("zoom in", view.scale > whole);
const from = view.from; key("ArrowRight"); must("right", view.from > from);
key("ArrowLeft"); key("-"); key("0"); must("zoom out", Math.abs(view.scale - whole) < 1e-9);
key("t"); must("axis", byTime && $("axis").textContent.includes("time")); key("t");
const at = stage.getBoundingClientRect();
stage.dispatchEvent(new WheelEvent("wheel", {deltaY: -1, clientX: at.left + 500, clientY: at.top + 60, cancelable: true}));
must("wheel", view.scale > whole);
const before = view.from;
stage.dispatchEvent(new PointerEvent("pointerdown", {clientX: at.left + 600, clientY: at.top + 60}));
window.dispatchEvent(new PointerEvent("pointermove", {clientX: at.left + 500, clientY: at.top + 60}));
window.dispatchEvent(new PointerEvent("pointerup", {}));
must("drag", view.from > before);
key("0");
document.querySelector("#shapes [data-id]").dispatchEvent(new PointerEvent("pointermove", {clientX: 300, clientY: 300, bubbles: true}));
must("tooltip", $("tip").style.display === "block" && $("tip").textContent.length > 0);
document.body.dataset.driven = "1";
</script>
JS
for name in race large; do
    { sed 's|</body>||; s|</html>||' $name.html; cat user.js; echo "</body></html>"; } >driven-$name.html
    show --dump-dom "file://$scratch/driven-$name.html" >driven-$name.dom
done

python3 - <<'PYTHON'
import json, re, struct, zlib

def pixels(path):
    """Width, height and rows of an 8-bit PNG without interlacing, RGB."""
    data, at, packed = open(path, "rb").read(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and interlace == 0
            step = 3 if colour == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, rows, above = zlib.decompress(packed), [], bytes(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        method, line = raw[start], bytearray(raw[start + 1:start + 1 + width * step])
        for i in range(len(line)):
            left, up = line[i - step] if i >= step else 0, above[i]
            corner = above[i - step] if i >= step else 0
            if method == 1:
                line[i] = line[i] + left & 255
            elif method == 2:
                line[i] = line[i] + up & 255
            elif method == 3:
                line[i] = line[i] + (left + up) // 2 & 255
            elif method == 4:
                guess = left + up - corner
                line[i] = line[i] + min((abs(guess - left), 0, left), (abs(guess - up), 1, up),
                                        (abs(guess - corner), 2, corner))[2] & 255
        rows.append(bytes(line))
        above = bytes(line)
    count = {}
    for row in rows:
        for x in range(0, width * step, step):
            rgb = row[x:x + 3]
            count[rgb] = count.get(rgb, 0) + 1
    return width * height, count

def told(name):
    dom = open(name + ".dom").read()
    body = re.search(r"<body[^>]*>", dom).group(0)
    data = dict(re.findall(r'data-(\w+)="([^"]*)"', body))
    assert "error" not in data and data.get("ready") == "1", (name, body)
    return dom, data

for name, marks, ranks in (("race", 2, 2), ("wait", 2, 2), ("bytes", 1, 2), ("large", 0, 4)):
    dom, data = told(name)
    page = open(name + ".html").read()
    case = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    kinds = [event[2] for event in case["events"]]
    flags, puts = kinds.count(7), kinds.count(8)
    shapes = re.search(r'<g id="shapes">(.*?)</g>', dom, re.S).group(1)
    assert int(data["events"]) == len(kinds) and case["ranks"] == ranks
    # program, kernels, network, flags, mask; and at least one block a rank
    assert int(data["lanes"]) >= 6 * ranks == dom.count('class="rank"') * 6, (name, data)
    assert dom.count('class="name lane"') == int(data["lanes"])
    assert shapes.count('class="arrow') == int(data["arrows"]) >= flags + puts, (name, data, flags, puts)
    assert shapes.count("mark") - shapes.count("marker") == int(data["marks"]) == marks, (name, data)
    assert case["finding"]["text"].split("\n")[0] in dom.replace("&lt;", "<")
    print(name, data)
    size, colours = pixels(name + ".png")
    assert len(colours) > 40 and max(colours.values()) < size * 0.98, (name, len(colours))
    assert colours.get(bytes.fromhex("ffffff"), 0) > size * 0.3, name
    if marks:
        assert colours.get(bytes.fromhex("c62828"), 0) > 100, name

dom, data = told("large")
assert int(data["events"]) > 2000 and int(data["arrows"]) > 300, data
for part in ("arrow put", "dot signal", "dot fault", "dot lost", "wait late", "dot point"):
    assert f'class="{part}' in dom, part
dom, data = told("race")
assert 'class="access mark"' in dom and 'class="arrow missing"' in dom
dom, data = told("wait")
assert 'class="wait mark"' in dom
for name in ("driven-race", "driven-large"):
    assert told(name)[1].get("driven") == "1", name
size, colours = pixels("dark.png")
assert colours.get(bytes.fromhex("14171b"), 0) > size * 0.3 and colours.get(bytes.fromhex("ff6b6b"), 0) > 100, "dark"
PYTHON
