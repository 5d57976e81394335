#!/bin/sh
# Memories from shared objects: the example is trained, resumed, read, evaluated and probed; what is
# no such object, or cannot be, is refused.
#   test_plugin.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
build=$(cd "$(dirname "$dra")" && pwd)
refused=$build/tests/memory/plugins
cd "$scratch" || exit 1
cp "$build/examples/leak.so" . || exit 1
awk 'BEGIN { for (i = 0; i < 600; i++) printf "%d plus %d is %d. ", i % 7, i % 5, i % 7 + i % 5 }' \
    >text
cat >config.json <<'END'
{"model_type": "dra", "vocab": 256, "dim": 16, "depth": 2, "heads": 2, "context": 32,
 "mixer": {"half_life": 5, "memory": "own:leak", "learned": true}}
END
own="--memory-plugin leak.so --threads 1"

# shellcheck disable=SC2086 # a list of options
train() {
    run 0 train $own --config config.json --data text --batch 2 --schedule constant --warmup 1 "$@"
}

# In two parts as in one.
trains() {
    train --steps 6 --out whole && train --steps 4 --out parts || return 1
    # shellcheck disable=SC2086
    run 0 train $own --resume --steps 6 --out parts || return 1
    cmp whole/model.safetensors parts/model.safetensors
}
keeps_options() {
    tr -d ' \n' <whole/config.json | grep -F '"own:leak","half_life":5.0,"learned":true'
}

# shellcheck disable=SC2086
{
    check "trained, and resumed bit for bit" trains
    check "options are in the config" keeps_options
    check "info" says "leak" info $own whole
    check "eval" says "perplexity" eval $own --model whole --data text
    check "generate" run 0 generate $own --model whole --prompt "3 plus" --tokens 4
    check "probe" run 0 probe recall --length 16 --pairs 2 --batch 2 --steps 1 --suite --only gru \
        $own --set mixer.memory=own:leak
    check "init with a preset's mixer" run 0 init $own --preset dra-gru-tiny --out drawn \
        --set mixer.memory=own:leak --set mixer.half_life=3
    check "the same object twice" says "leak" info $own --memory-plugin ./leak.so whole
    check "an option's range" failed "setting: mixer.half_life is -1, expected a number above 0" \
        info $own --config config.json --set mixer.half_life=-1
    check "an option's name" failed "mixer.half_live is not a key; did you mean half_life?" \
        info $own --config config.json --set mixer.half_live=1
}
check "without it" failed "own:leak, which only the program that made it has; --memory-plugin" \
    info whole
check "not there" failed "nowhere.so: no such file" info --memory-plugin nowhere.so whole
check "no shared object" failed "text: is no shared object that can be loaded" \
    info --memory-plugin text whole
check "no entry point" failed "empty.so: has no function dra_memory_plugin" \
    info --memory-plugin "$refused/empty.so" whole
check "another version" failed "later.so: made for another build of dra: the program was compiled" \
    info --memory-plugin "$refused/later.so" whole
check "a name that dra has" failed "memory gru: dra has one of this name" \
    info --memory-plugin "$refused/taken.so" whole
cp leak.so other.so
check "a name that another one has" failed "other.so: memory leak: the name is taken" \
    info --memory-plugin leak.so --memory-plugin other.so whole
tap_end
