#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: pictures are pictures: a rasteriser draws them, every GPU and link shows, and load shows as colour.
# Method: rsvg-convert makes PNG; a few lines of Python count pixels of the colours that must be there.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
fixtures=${IST_SOURCE_DIR:?}/tests/topology/fixtures
if ! command -v rsvg-convert >/dev/null; then
    echo "rsvg-convert is not here"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/pixels.py" <<'PY'
import struct, sys, zlib

def load(path):
    """Width, height and rows of RGB bytes of an 8-bit PNG without interlacing."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and interlace == 0, body
            step = 3 if colour == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, rows, above = zlib.decompress(packed), [], bytes(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        method, line = raw[start], bytearray(raw[start + 1:start + 1 + width * step])
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            up = above[i]
            corner = above[i - step] if i >= step else 0
            if method == 1:
                line[i] = line[i] + left & 255
            elif method == 2:
                line[i] = line[i] + up & 255
            elif method == 3:
                line[i] = line[i] + (left + up) // 2 & 255
            elif method == 4:
                guess = left + up - corner
                best = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                line[i] = line[i] + best[2] & 255
        rows.append(bytes(line))
        above = bytes(line)
    return width, height, step, rows

def count(path, colour):
    width, height, step, rows = load(path)
    wanted = bytes.fromhex(colour)
    return sum(row[x * step:x * step + 3] == wanted for row in rows for x in range(width))

path, checks = sys.argv[1], sys.argv[2:]
for check in checks:
    colour, least, most = check.split(":")
    found = count(path, colour)
    if not int(least) <= found <= int(most):
        sys.exit(f"{path}: {found} pixels of #{colour}, {least} to {most} expected")
PY
draw() {
    local name=$1
    shift
    "$isthmus" topo convert "$@" -o "$work/$name.svg"
    rsvg-convert -z 0.5 "$work/$name.svg" -o "$work/$name.png"
}

# At half size a GPU's box has about 600 pixels of its fill, whatever crosses and stands in it: 4 of them.
draw machine "$fixtures/nccl_two_sockets.xml" --to svg
python3 "$work/pixels.py" "$work/machine.png" cfe8cf:1500:3200 cfe0f5:1500:3200 a9d3a9:700:1300 2e8b2e:10:9999 2b62ad:5:9999

# No load: no red. An all-to-all over two machines: the busiest link is red.
"$isthmus" topo convert '2x(h200:4 nvswitch nic:4x400G)' --to svg -o "$work/idle.svg"
! grep -q '#f01e1e' "$work/idle.svg"
draw busy '2x(h200:4 nvswitch nic:4x400G)' --to svg --load all-to-all
python3 "$work/pixels.py" "$work/busy.png" f01e1e:500:9999

# Heat map of 16 GPUs in two machines: 112 and 128 squares of 14.5 by 14.5.
draw heat 2x8 --to heat
python3 "$work/pixels.py" "$work/heat.png" 1a7f37:20500:24500 4a78c2:23500:28000

# A link that is down and one that is degraded are dashed.
"$isthmus" topo convert "$fixtures/nccl_faults.xml" --to svg -o "$work/faults.svg"
grep -q 'stroke-dasharray="2 6"' "$work/faults.svg"
grep -q 'stroke-dasharray="8 4"' "$work/faults.svg"
