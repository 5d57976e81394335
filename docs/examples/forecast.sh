#!/bin/sh
# How good forecasts of the next year are: those of a model next to two that need none.
#   forecast.sh ROWS OUT
# ROWS has x (N, T, 1): the last year of each row is to be predicted from the others. OUT is what
# `dra forward --inputs ROWS --out OUT` wrote: out (N, T, 1), or (N, T, 2) with the logarithm of the
# variance after each mean. x is sqrt(number) / 10; errors are those of numbers.
set -eu

years=$(grep -ao '"shape":\[[0-9,]*' "$1" | cut -d , -f 2)
list() { # the F32 numbers of a safetensors file, one in a line: they follow its header
    tail -c +$(($(od -An -tu4 -N4 "$1") + 9)) "$1" | od -An -v -tf4 -w4
}

{
    list "$1"
    echo out
    list "$2"
} | awk -v T="$years" '
    function number(x) { return x > 0 ? 100 * x * x : 0 }
    function add(who, x) { sum[who] += (number(x) - truth) ^ 2 }
    function line(name, who) { printf "%-24s %.1f\n", name, sqrt(sum[who] / N) }
    $1 == "out" { n = m; m = 0; next }
    n { out[m++] = $1; next }
    { x[m++] = $1 }
    END {
        N = n / T
        width = m / n
        for (row = 0; row < N; row++) {
            last = row * T + T - 1 # the year to predict
            truth = number(x[last])
            mean = out[(last - 1) * width]
            add("model", mean)
            add("naive", x[last - 1])
            add("cycle", x[last - 11])
            if (width == 2) inside += (x[last] - mean) ^ 2 < 1.645 ^ 2 * exp(out[2 * last - 1])
        }
        print "forecasts                " N
        line("error of the model", "model")
        line("the number a year ago", "naive")
        line("the number 11 years ago", "cycle")
        if (width == 2) printf "in the 90 %% interval     %.0f %%\n", 100 * inside / N
    }'
