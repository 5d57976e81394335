#!/bin/sh
# What the script of a report does, in headless Chromium: numbers under the pointer, the caption.
#   test_page.sh PATH_OF_DRA
set -u
case $1 in
/*) dra=$1 ;;
*) dra=$PWD/$1 ;;
esac
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name || true)
done

# after WIDTH SCRIPT: the page after the script, as a tree, in $out.
after() {
    sed '/<\/body>/d' page.html >after.html
    printf '<script>%s</script></body></html>\n' "$2" >>after.html
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --window-size="$1",800 \
        --user-data-dir="$scratch/browser" --virtual-time-budget=2000 \
        --dump-dom "file://$PWD/after.html" \
        </dev/null >"$out" 2>/dev/null && grep -q '</html>' "$out"
}

# Training at every step, evaluations at every 50; one step is far above the rest.
page() {
    for run in "low 1.5" "high 2"; do
        mkdir "${run% *}"
        awk -v loss="${run#* }" 'BEGIN { for (s = 1; s <= 200; s++) {
            printf "{\"step\":%d,\"loss\":%g,\"grad_norm\":%g}\n", s, loss + 3 / s,
                s == 77 ? 900 : 1 + s % 2
            if (s % 50 == 0) printf "{\"step\":%d,\"eval_loss\":%g}\n", s, loss + s / 1000 } }' \
            >"${run% *}/log.jsonl"
    done
    answers report low high --out page.html
}

point='const svg = document.querySelectorAll("svg.lines")[0];
svg.scrollIntoView({block: "center"});
const box = svg.getBoundingClientRect(), c = charts[0];
const x = box.left + c.sx.at(80) * box.width / (c.box[1] + 18);
svg.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: box.top + 50}));
const tip = c.tip.getBoundingClientRect();'

# An evaluation is shown with the step it was made at, which is not the one that is pointed at.
own_step() {
    after 1280 "$point" && has "$out" '<th>step 80</th>' '<th>evaluation</th>' \
        '2.1<span> at step 100</span>' '1.6<span> at step 100</span>'
}
never_covers() {
    for width in 1280 390; do
        after $width "$point document.title = (tip.bottom <= box.top || tip.top >= box.bottom) +
            ' ' + (tip.left >= 0 && tip.right <= innerWidth) + ' ' + (tip.height > 40);" &&
            has "$out" '<title>true true true</title>' || return 1
    done
}

# The axis of the norm ends above its greatest number, as nothing says that it is cut off.
nothing_cut() {
    after 1280 'const c = charts[1];
        document.title = [c.svg.getAttribute("aria-label"), c.sy.hi > 900,
            !c.svg.parentNode.querySelector(".cut")].join(" ");' &&
        has "$out" '<title>Gradient norm true true</title>'
}
cut_is_said() {
    after 1280 'const cut = charts[0].svg.parentNode.querySelector(".cut"), was = cut.hidden;
        for (const b of document.querySelectorAll("button")) if (b.textContent === "all") b.click();
        document.title = was + " " + cut.hidden;' && has "$out" '<title>false true</title>'
}
# The loss is as wide as the page, the others are not.
wide_loss() {
    after 1280 'const w = charts.map(c => c.svg.getBoundingClientRect().width);
        document.title = (w[0] > 1000) + " " + (w[1] < 700);' &&
        has "$out" '<title>true true</title>'
}
# On a phone all runs are in the table of what differs.
all_runs() {
    mkdir low/train high/train && echo '{"lr": 1}' >low/train/config.json &&
        echo '{"lr": 2}' >high/train/config.json && answers report low high --out page.html &&
        after 390 'const cells = [...document.querySelectorAll(".differ td")];
            const isSeen = e => e.getBoundingClientRect().right <= innerWidth;
            document.title = cells.map(e => getComputedStyle(e, "::before").content +
                e.textContent + isSeen(e)).join(" ");' &&
        has "$out" 'low: ' 'high: ' && grep -q '<title>.*low: .*1true .*high: .*2true' "$out"
}

check "a page" page
# look NAME COMMAND: a check that needs a browser.
look() {
    if [ -n "$browser" ]; then
        check "$@"
    else
        skip "$1" "no chromium"
    fi
}
look "an evaluation is shown at its own step" own_step
look "the numbers never cover the chart" never_covers
look "a chart that is not cut shows all" nothing_cut
look "the caption says whether the top is cut off" cut_is_said
look "the loss is the wide chart" wide_loss
look "a phone shows all runs" all_runs
tap_end
