#!/bin/sh
# Renders the pictures of docs/pictures: pages and terminal output, by headless Chromium.
#   pictures.sh PATH_OF_DRA FOLDER_FOR_RUNS report|demo...
# report: three small runs and a probe, under a minute of training. demo: the whole demo.
set -eu
dra=$(realpath "$1")
work=$2
shift 2
cd "$(dirname "$0")/.."
pictures=$PWD/docs/pictures
mkdir -p "$work"
work=$(realpath "$work")

browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name || true)
done
if [ -z "$browser" ]; then
    echo "pictures: expected chromium, found none; on Debian: apt-get install chromium" >&2
    exit 1
fi

chromium() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$work/browser" --allow-file-access-from-files "$@" </dev/null 2>/dev/null
}

# picture PAGE NAME WIDTH light|dark [HEIGHT]: the page in a frame of that width, because a window
# has a least width. Without a height, all of it.
picture() {
    scheme=1
    [ "$4" = light ] || scheme=0
    cat >"$work/frame.html" <<END
<body style="margin:0"><iframe src="$1" style="border:0;display:block;width:$3px;height:9000px"
onload="document.title=this.contentDocument.body.scrollHeight"></iframe></body>
END
    height=${5:-$(chromium --window-size="$3",9000 --virtual-time-budget=4000 --dump-dom \
        "file://$work/frame.html" | sed -n 's/.*<title>\([0-9]*\)<.*/\1/p')}
    sed -i "s/height:9000px/height:${height}px/" "$work/frame.html"
    chromium --window-size="$3","$height" --virtual-time-budget=4000 \
        --blink-settings=preferredColorScheme=$scheme --screenshot="$pictures/$2" \
        "file://$work/frame.html"
    echo "pictures  docs/pictures/$2  $3 x $height"
}

# run NAME PRESET: a small one.
run() {
    "$dra" train --preset "$2" --set dim=96 --set depth=2 --set heads=4 --data corpus.txt \
        --split 0.1 --out "$1" --steps 400 --batch 8 --context 64 --lr 0.003 --log-every 1 \
        --save-every 100 --eval-every 50 --keep 4 --sample-every 200 --sample-prompt "The model" \
        --sample-tokens 120 --force </dev/null 2>/dev/null
}

report() {
    (
        cd "$work"
        rm -rf gru slots attention
        cat "$OLDPWD"/docs/*.md >corpus.txt
        run attention gpt2-tiny
        run gru dra-gru-tiny
        run slots dra-slots-tiny
        for model in attention gru slots; do
            "$dra" probe recall --model $model --length 32,64 --pairs 4 --steps 120 --json \
                </dev/null 2>/dev/null >$model/probes.jsonl
        done
        "$dra" report attention gru slots --out report.html --title "Three memories" >/dev/null
    )
    picture "$work/report.html" report-whole.png 1280 light
    picture "$work/report.html" report-dark.png 1280 dark 900
    picture "$work/report.html" report-phone.png 390 dark 1400
}

# terminal FROM TO NAME: the lines of the demo from one to another, as a terminal shows them.
terminal() {
    {
        echo '<!DOCTYPE html><meta charset="utf-8"><style>'
        echo 'body{margin:0;background:#1c1f26;color:#dfe1e6}'
        echo 'pre{margin:14px 18px;font:15px/19px "DejaVu Sans Mono",monospace}</style><pre>'
        sed -n "/^$1  /,/^$2  /p" "$work/demo.txt" | # lines of progress are gone at a terminal
            sed '$d;/^  reading /d;/ of .* left$/d;s/&/\&amp;/g;s/</\&lt;/g'
        echo '</pre>'
    } >"$work/terminal.html"
    picture "$work/terminal.html" "$3" 780 dark
}

demo() {
    (cd "$work" && "$dra" demo --out demo </dev/null >demo.txt 2>&1)
    demo_pictures
}

demo_pictures() { # of the last demo
    terminal 2 3 learning.png
    terminal 4 7 demo.png
    picture "$work/demo/report.html" report.png 1280 light 1400
}

for what in "$@"; do
    "$what"
done
