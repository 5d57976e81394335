#!/bin/sh
# dra report as a process: pages from logs made by hand and from a small run; what is broken is
# counted, what is text stays text, nothing is fetched from elsewhere.
#   test_report.sh PATH_OF_DRA
set -u
case $1 in
/*) dra=$1 ;;
*) dra=$PWD/$1 ;;
esac
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

lacks() {
    ! grep -F -e "$2" "$1"
}

# Tags are closed in their order, and nothing refers to another place.
well_formed() {
    ! grep -Eo "(src|href|url|@import|https?:)[^ ]*//[^ ]*" "$1" || return 1
    command -v python3 >/dev/null 2>&1 || return 0
    python3 - "$1" <<'END'
import html.parser, sys, xml.etree.ElementTree
class Page(html.parser.HTMLParser):
    open, drawings, described = [], 0, 0
    def handle_starttag(self, tag, attrs):
        if tag == "meta": return
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)): sys.exit("<%s> has an attribute twice" % tag)
        if any(name in ("src", "href", "action") for name in names): sys.exit("a link in " + tag)
        if tag == "svg": self.drawings += 1
        self.described += tag == "desc" or (tag == "svg" and ("aria-hidden", "true") in attrs)
        if tag in ("link", "img", "iframe", "object"): sys.exit("a page with a " + tag)
        self.open.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: sys.exit("</%s> too many" % tag)
text = open(sys.argv[1], encoding="utf-8").read()
page = Page()
page.feed(text)
if page.open: sys.exit("not closed: %s" % page.open)
if page.drawings != page.described: sys.exit("a drawing without a text that describes it")
for drawing in text.split("<svg ")[1:]:
    xml.etree.ElementTree.fromstring("<svg " + drawing.split("</svg>")[0] + "</svg>")
END
}

# ---- logs made by hand ---------------------------------------------------------------------------

mkdir hand odd
awk 'BEGIN {
    for (s = 1; s <= 4000; s++) {
        printf "{\"step\":%d,\"loss\":%s,\"lr\":0.001,\"grad_norm\":%g,\"tokens\":%d,", s,
            s == 2000 ? "null" : 2 + 3 / s, s == 1234 ? 777 : 1, 100 * s
        printf "\"tokens_per_second\":5000,\"seconds\":%g,\"skipped\":%d,\"drift\":0.25}\n", s / 50,
            (s >= 2000)
        if (s % 1000 == 0)
            printf "{\"step\":%d,\"tokens\":%d,\"eval_loss\":%g,\"best_loss\":1}\n", s, 100 * s, 2.5
        if (s % 800 == 0)
            printf "{\"step\":%d,\"sample\":\"<b>tags</b> &amp; \\u201ctext\\u201d %d\"}\n", s, s
    }
}' >hand/log.jsonl
# What a kill, a full disk or a stranger may leave: none of it is a line of a log.
{
    printf '{"step":5,"loss"\n[1,2]\n{"loss":1}\nnothing\n{"step":"5","loss":1}\n'
    printf '{"step":5,"loss":1e}\n{"step":5,"a":"\\u12"}\n{"step":5}}\n{"step":5,"x":nan}\n{"step":'
} >>hand/log.jsonl
{
    printf '{"step":1,"loss":3,"x<y":1,"nested":{"a":[1,{"b":2}]}}\n\n\r\n'
    printf '{"step":2,"loss":2,"x<y":2}\n\377\n'
} >odd/log.jsonl
{
    printf '{"probe":"recall","model":"gru <1>","seed":3,"length":1024,"accuracy":0.875,"s":1}\n'
    printf '{"probe":"recall","model":"slots","seed":3,"length":4096,"accuracy":0.5,"s":2}\n'
    printf '{"probe":"copy","length":64,"loss":1.25}\n{"probe":"copy","length":9,"accuracy":null}\n'
} >probes.jsonl

by_hand() {
    answers report hand && [ "$(cat "$out")" = hand/report.html ] && well_formed hand/report.html
}
numbers() {
    has hand/report.html '4000</td>' '400k</td>' '2.0008</td>' '2.5000</td>' '0:01:20</td>' \
        'Learning rate' 'Gradient norm' 'Skipped steps' 'drift' 'step 4000: 2.5</title>'
}
broken_lines() { has hand/report.html 'hand: 10 of 4019 lines could not be read and are left out'; }
escaped() {
    has hand/report.html '&lt;b&gt;tags&lt;/b&gt; &amp;amp; “text” 4000' '5 of 5, newest first' &&
        lacks hand/report.html '<b>tags'
}

# 4000 points become few, but none that sticks out is lost: the top of the norm's chart is 777.
thinned() {
    [ "$(wc -c <hand/report.html)" -lt 120000 ] && has hand/report.html '>1000</text>' &&
        [ "$(tr ' ' '\n' <hand/report.html | grep -c '^[0-9.]*,[0-9.]*$')" -lt 8000 ]
}

several() {
    answers report hand odd probes.jsonl --out all.html --title 'Two & a <table>' &&
        well_formed all.html &&
        has all.html '<title>Two &amp; a &lt;table&gt;</title>' \
            '<h1>Two &amp; a &lt;table&gt;</h1>' \
            'class="legend"' 'key c1' 'data-name="hand"' 'data-name="odd"' 'x&lt;y' \
            'odd: 1 of 3 lines' 'recall' '>gru &lt;1&gt;<' '>length 1024<' \
            'gru &lt;1&gt;, length 1024: 87.5 %' \
            '>87.5 %<' '>1.25<' \
            'probes.jsonl: 1 of 4 lines could not be read and is left out'
}
same_bytes() { cp all.html before && several && cmp all.html before; }
dark_and_light() { has all.html 'prefers-color-scheme:dark' 'width=device-width'; }
same_names() {
    mkdir -p a/run b/run && cp odd/log.jsonl a/run && cp odd/log.jsonl b/run &&
        answers report a/run b/run/ --out same.html && has same.html '>a/run<' '>b/run/<'
}
# The headline is computed: of two runs, the one that ended lower, and by how much.
finding() {
    mkdir low high
    for run in "low 1.5" "high 2"; do
        awk -v loss="${run#* }" 'BEGIN { for (s = 1; s <= 100; s++) {
            printf "{\"step\":%d,\"loss\":%g,\"tokens\":%d,\"seconds\":%g}\n", s, loss + 3 / s,
                s * 10, s * loss
            if (s % 20 == 0) printf "{\"step\":%d,\"eval_loss\":%g}\n", s, loss } }' \
            >"${run% *}/log.jsonl"
    done
    answers report high low --out found.html && well_formed found.html &&
        has found.html 'class="finding"><b>low</b> ended with the lowest evaluation loss:' \
            '<b>1.5000</b>, 0.5 (25&nbsp;%) below high (2.0000), after 1000 tokens in 0:02:30' \
            '25&nbsp;% less time than high' 'lines: training, dots: evaluation' &&
        answers report low --out one.html && well_formed one.html &&
        has one.html 'evaluation loss ended at <b>1.5000</b> at step 100, from 1.5000 at step 20' &&
        lacks one.html 'class="legend"' && lacks found.html 'equally long'
}
# Runs of different lengths are said to be; the page of several is not that of one.
lengths() {
    mkdir -p short/run && head -n 48 low/log.jsonl >short/run/log.jsonl && rm -f high/report.html &&
        answers report high short/run && [ "$(cat "$out")" = report-high-run.html ] &&
        [ ! -e high/report.html ] && well_formed report-high-run.html &&
        has report-high-run.html ' The runs are not equally long: 460 to 1000 tokens.' &&
        answers report short/run/ high && [ "$(cat "$out")" = short/report-run-high.html ]
}
# Steps are whole, also those of a short run.
whole_steps() {
    mkdir brief && printf '{"step":5,"loss":2}\n{"step":6,"loss":1}\n' >brief/log.jsonl &&
        answers report brief && has brief/report.html '>5</text>' '>6</text>' &&
        lacks brief/report.html '>5.2</text>' && lacks brief/report.html '>5.5</text>'
}
# A training loss of the headline is in the table, too.
training_finding() {
    mkdir plain && grep -v eval low/log.jsonl >plain/log.jsonl && answers report plain &&
        has plain/report.html 'The mean training loss ended at <b>1.5314</b>' \
            '<th>mean at end</th>' '>1.5314</td>'
}
# Nothing is promised that is not there.
no_promises() {
    lacks same.html 'dots: evaluation' && lacks same.html '<h2>Probes' &&
        lacks same.html '<h2>Settings' && lacks same.html 'best eval' && lacks empty.html '<h2>'
}
five() {
    for i in 1 2 3 4 5; do
        mkdir "five$i" && cp low/log.jsonl "five$i"
    done
    answers report five1 five2 five3 five4 five5 --out five.html && well_formed five.html &&
        has five.html '<h1>5 runs</h1>' 'key c4' 'the same as five2'
}
# Intervals are Wilson's: 70 of 100 is 60.4 to 78.1 %. Chance is what the row says.
intervals() {
    {
        printf '{"probe":"recall","model":"gru","length":128,"vocab":138,"accuracy":0.7,'
        printf '"chance":0.015625,"answers":100}\n{"probe":"recall","model":"slots","length":64,'
        printf '"vocab":138,"accuracy":0.9,"chance":0.015625,"answers":100}\n'
        printf '{"probe":"facts","model":"gru","tokens":"below 50",'
        printf '"accuracy":0.5,"asked":10,"guess":0.3333}\n'
    } >sure.jsonl
    answers report sure.jsonl --out sure.html && well_formed sure.html &&
        has sure.html 'gru, length 128: 70.0 %, 95 % interval 60.4 % to 78.1 %, n = 100' \
            'chance: 1.6 %' 'chance: 33.3 %' 'n = 10<' &&
        [ "$(grep -n '>length 64<' sure.html | cut -d: -f1)" -lt \
            "$(grep -n '>length 128<' sure.html | cut -d: -f1)" ]
}
# Names from anywhere: of folders, keys, commands and settings.
hostile() {
    bad='<img onerror="x">&'
    mkdir -p "$bad/train" && cp low/log.jsonl "$bad" || return 1
    printf '{"command": "dra </code><script>alert(1)</script>", "date": "<u>", "threads": 2}\n' \
        >"$bad/train/started.jsonl"
    printf '{"steps": 3, "</td>": {"<i>": "<b>\\"q"}, "list": [1, {"a": "]"}], "lr": 1e-3}' \
        >"$bad/train/config.json"
    printf '{"option": "data", "value": "a<s>"}\n{"option": "data", "value": "b"}\nnoise\n' \
        >"$bad/train/sources.jsonl"
    answers report "$bad" --out hostile.html && well_formed hostile.html &&
        has hostile.html '&lt;img onerror=&quot;x&quot;&gt;&amp;' '&lt;/td&gt;.&lt;i&gt;' \
            '&lt;b&gt;&quot;q' '[1,{&quot;a&quot;:&quot;]&quot;}]' '<td>0.001</td>' \
            'a&lt;s&gt;, b' \
            '&lt;script&gt;alert' '2 threads' 'seed 0' && lacks hostile.html '<script>alert' &&
        lacks hostile.html '<img'
}
# Settings that are damaged leave the rest of the page as it is.
damaged_settings() {
    mkdir -p torn/train && cp low/log.jsonl torn && printf '{"a": "b' >torn/train/config.json &&
        printf '{"a": {"b": [1, 2' >torn/train/sources.jsonl && : >torn/train/started.jsonl &&
        answers report torn && well_formed torn/report.html && has torn/report.html 'Training'
}
bytes_in_units() {
    printf '{"position":1,"bytes of state":1024}\n{"position":2,"bytes of state":262144000}\n' \
        >bytes.jsonl
    answers report bytes.jsonl --out bytes.html && well_formed bytes.html &&
        has bytes.html '>MiB</text>' '>250</text>' '>token</text>' && lacks bytes.html '250M'
}
empty() {
    : >empty.jsonl
    answers report empty.jsonl --out empty.html && well_formed empty.html
}

# ---- a run ---------------------------------------------------------------------------------------

awk 'BEGIN { while (i++ < 200) print "line", i, "of a text that says little,", i * i % 97 }' >text

# train RUN PRESET OPTIONS...: a small one.
train() {
    folder=$1
    preset=$2
    shift 2
    run 0 train --preset "$preset" --set dim=32 --set heads=2 --set depth=2 --data text \
        --split 0.1 --out "$folder" --steps 12 --batch 2 --context 32 --log-every 1 \
        --save-every 4 --keep 3 --eval-every 6 --sample-every 6 --sample-prompt line \
        --sample-tokens 12 --threads 2 "$@"
}

real_run() {
    train gru dra-gru-tiny && train slots dra-slots-tiny &&
        answers report gru slots --out runs.html && well_formed runs.html &&
        has runs.html 'gru, 2 × 32, 2 heads' 'slots, 2 × 32, 2 heads' 'Half-lives of memory' \
            'lines lead from step 4 to 12' 'layer 1, head 0, gru' 'What a sample reads' \
            'class="in-light">darker</span><span class="in-dark">brighter</span> means more' \
            'gru, layer 1</b> <span>attention' 'slots, layer 1</b> <span>occupancy of slots' \
            'Samples' '<details class="card"><summary>' '>weight</text>' '>token that is read<' \
            '>loss (nats per token)</text>' '>half-life (tokens)<'
}

# How it was made: as the folder says, and what differs first.
settings() {
    grep -q '^{"threads": 2, "date": "2.* UTC", "command": "dra train --preset dra-gru-tiny' \
        gru/train/started.jsonl &&
        has runs.html 'What differs' 'What all runs share' \
            '<th>mixer.memory</th><td data-label="gru">gru</td>' \
            '2 threads' 'seed 0' '<summary>Commands</summary>' \
            '<th>batch</th><td colspan="2">2</td>' 'data-label="gru">' 'data-label="slots">' \
            '--preset dra-slots-tiny' || return 1
    run 0 train --resume --out gru --steps 14 --threads 1 && answers report gru &&
        [ "$(wc -l <gru/train/started.jsonl)" -eq 2 ] &&
        has gru/report.html '<th>resumed (times)</th><td>1</td>' '2 threads' 'All settings' ||
        return 1
    run 0 train --resume --out gru --steps 14 && [ "$(wc -l <gru/train/started.jsonl)" -eq 2 ]
}

# The page has the numbers that the log has.
same_numbers() {
    loss=$(sed -n 's/^{"step":12,"loss":\([0-9.]*\),.*/\1/p' gru/log.jsonl)
    [ -n "$loss" ] && has runs.html ">$(printf '%.4f' "$loss")</td>"
}

damaged() {
    cp -r gru hurt && rm hurt/model.safetensors && echo x >hurt/model.safetensors &&
        answers report hurt && well_formed hurt/report.html &&
        has hurt/report.html 'gru, 2 × 32' 'hurt/model.safetensors: ' &&
        lacks hurt/report.html 'Half-lives'
}

# A run that never saved, and a model without a log.
parts_of_runs() {
    mkdir -p early model && cp gru/config.json gru/log.jsonl early &&
        cp gru/config.json gru/model.safetensors model &&
        answers report early model --out early/report.html && well_formed early/report.html &&
        has early/report.html 'Half-lives of memory'
}

events() {
    train board dra-gru-tiny --tensorboard || return 1
    set -- board/events.out.tfevents.*
    [ $# -eq 1 ] && [ -s "$1" ] && grep -q 'brain.Event:2' "$1" && grep -q eval/loss "$1" &&
        grep -q train/learning_rate "$1"
}

check "a log made by hand" by_hand
check "its numbers are on the page" numbers
check "broken lines are counted" broken_lines
check "text is escaped" escaped
check "many points are thinned" thinned
check "several runs and probes" several
check "the same input gives the same page" same_bytes
check "light and dark, small and large" dark_and_light
check "runs of one name" same_names
check "nothing at all" empty
check "no empty parts" no_promises
check "the finding" finding
check "runs of different lengths" lengths
check "steps are whole" whole_steps
check "the finding about training is in the table" training_finding
check "five runs" five
check "intervals and chance of probes" intervals
check "hostile names" hostile
check "damaged settings" damaged_settings
check "bytes in MiB" bytes_in_units
check "small runs" real_run
check "the numbers of the log" same_numbers
check "damaged weights are a note" damaged
check "a run that never saved; a model alone" parts_of_runs
check "settings, machine and command" settings
check "an event file" events
echo "no JSON" >noise
check "a file of something else" failed \
    "noise: expected lines of JSON with a step or a probe, found none" report noise
check "no such run" failed "nowhere: cannot open it" report nowhere
check "a folder that is no run" failed "a: expected a run, found neither log.jsonl nor " report a
check "nowhere to write" failed "dra: --out: no/page.html cannot be written" \
    report hand --out no/page.html
check "JSON" \
    says '^{"page": "j.html", "runs": \["hand", "odd"\]}$' report hand odd --out j.html --json
check "no run named" misused "dra report: RUN is required, as in: dra report run-a" report
tap_end
