#!/bin/sh
# Presets start with logits of standard deviation 0.8 to 1.2: all layers of a memory together.
#   test_first_logits.sh PATH_OF_DRA
set -u
dra=$1
. "$(dirname "$0")/process.sh"
cd "$scratch" || exit 1

tokens=$(awk 'BEGIN { for (i = 0; i < 128; i++) printf "%s%d", i ? "," : "", i * i * 7 % 251 }')

# numbers FILE SUFFIX: those of all tensors of a safetensors file whose names end so, one a line.
numbers() {
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    dd if="$1" bs=1 skip=8 count="$length" 2>/dev/null | tr '}' '\n' |
        sed -n "s/.*\"[^\"]*$2\":.*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p" |
        while read -r from to; do
            od -An -v -w4 -t f4 -j $((8 + length + from)) -N $((to - from)) "$1"
        done
}

# in_range PRESET SUFFIX: what is not seen is -1e30.
in_range() {
    "$dra" forward --preset "$1" --tokens "$tokens" --outputs scores --out scores >&2 || return 1
    numbers scores "$2" | awk '
        $1 > -1e29 { n++; sum += $1; squares += $1 * $1 }
        END { std = n ? sqrt(squares / n - (sum / n) ^ 2) : 0; print std; exit !(std >= 0.8 && std <= 1.2)
        }'
}

for preset in gpt2 adr dra-ema dra-gru dra-pooled dra-slot-gru dra-slots; do
    check "logits of $preset" in_range $preset-tiny scores
done
check "logits of hybrid: attention" in_range hybrid-tiny a.scores
check "logits of hybrid: slots" in_range hybrid-tiny b.scores
tap_end
