# shellcheck shell=sh
# TAP for shell tests: `. tests/tap.sh`, then check NAME COMMAND..., at the end tap_end.
tap_done=0
tap_bad=0

# check NAME COMMAND...: one test, passed when the command succeeds.
check() {
    tap_name=$1
    shift
    tap_done=$((tap_done + 1))
    if tap_said=$("$@" 2>&1); then
        echo "ok $tap_done - $tap_name"
    else
        tap_bad=$((tap_bad + 1))
        echo "not ok $tap_done - $tap_name"
        printf '%s\n' "$*" "$tap_said" | sed 's/^/# /'
    fi
}

# skip NAME REASON...: one test that cannot be run here.
skip() {
    tap_done=$((tap_done + 1))
    tap_name=$1
    shift
    echo "ok $tap_done - $tap_name # SKIP $*"
}

# Whether commands can be run at a terminal; containers often have no pseudo terminals.
has_terminal() { script -qec true /dev/null </dev/null >/dev/null 2>&1; }
no_terminal="no pseudo terminal, see script of util-linux"

tap_end() {
    echo "1..$tap_done"
    [ "$tap_bad" -eq 0 ]
}
