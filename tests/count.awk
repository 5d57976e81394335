# Reads `ctest -V` and counts the TAP lines of each test program; used by tests/run.sh.
#   -v label=NAME     shown before each program
#   -v counts=FILE    gets "passed failed skipped" per program
#   -v names=FILE     gets one line per failure and skipped test, for the end of the run
# "7: text" is a line of test 7, "3/9 Test #7: ops/test_add ...   Passed   0.10 sec" its end.
# Programs run side by side, so lines are kept by number until the end of theirs.

# ctest's own preface comes with the number of the test too; it ends with the timeout.
/^[0-9]+: Test timeout computed/ { id = number($0); lines[id] = 0; next }
/^[0-9]+: / { id = number($0); sub(/^[0-9]+: /, ""); line[id, ++lines[id]] = $0; next }

/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    id = $0; sub(/^[^#]*#/, "", id)
    rest = $0; sub(/^[^:]*: /, "", rest); sub(/ sec.*$/, "", rest)
    name = rest; sub(/ .*/, "", name)
    seconds = rest; sub(/^.* /, "", seconds)
    how = rest; sub(/ +[0-9.]+$/, "", how); sub(/^[^ ]+ \.*( +)?/, "", how)
    gsub(/\*\*\*(Exception: *)?/, "", how)
    finish(number(id), name, how, seconds)
    next
}

# A build may have none of the tests that were picked; that none ran at all is a failure anyway.
/^No tests were found/ && ENVIRON["DRA_TEST_ONLY"] != "" { next }
/^No tests were found|^CMake Error|^Cannot find file/ { report(label, ": " $0, 0, 1, 0) }

function number(text) { return text + 0 }

function report(program, what, ok, bad, skip) {
    print ok + 0, bad + 0, skip + 0 >>counts
    if (bad) print "failed   " program what >>names
}

# Everything about one program: a line, below it what failed and what was skipped.
function finish(id, name, how, seconds,
                i, text, ok, bad, skip, plans, plan, inside, shown, wrong) {
    for (i = 1; i <= lines[id]; i++) {
        text = line[id, i]
        if (text ~ /^1\.\.[0-9]+/) { plans++; plan += substr(text, 4) }
        else if (text ~ /^(not )?ok .*# SKIP/) { skip++; skipped(name, text) }
        else if (text ~ /^ok( |$)/) ok++
        else if (text ~ /^not ok( |$)/) {
            bad++; inside = 1
            shown = shown "    " text "\n"
            continue
        }
        else if (inside && text ~ /^ *#/) { shown = shown "      " text "\n"; continue }
        inside = 0
    }
    if (how == "Passed" && !plans && !(ok + bad + skip)) ok = 1   # no TAP: the program is the test
    wrong = trouble(how, ok + bad + skip, bad, plan)
    if (wrong) shown = shown tail(id, 40)
    else if (bad) shown = shown said(id)

    printf "%-7s %-36s %4d ok%s%s%s  %s s\n%s", label, name, ok, bad ? ", " bad " FAILED" : "",
        wrong ? ", FAILED: " wrong : "", skip ? ", " skip " skipped" : "", seconds, shown
    fflush() # what is known so far stays, if the run is stopped
    report(label " " name, wrong ? ": " wrong : "", ok, bad + (wrong != ""), skip)
}

# What went wrong beyond tests that say `not ok`, or nothing.
function trouble(how, done, bad, plan) {
    if (how != "Passed" && how != "Failed") return how
    if (done < plan) return "stopped after " done " of " plan " tests"
    if (how == "Passed" && !done) return "ran no tests"
    if (how == "Failed" && !bad) return "exit status not 0"
    return ""
}

function skipped(name, text) {
    sub(/^(not )?ok [0-9]* *(- )?/, "", text)
    print "skipped  " label " " name ": " text >>names
}

# The last lines of a program.
function tail(id, most,    i, text) {
    for (i = lines[id] > most ? lines[id] - most + 1 : 1; i <= lines[id]; i++)
        text = text "      | " line[id, i] "\n"
    return text
}

# What a program said outside of TAP: cmocka writes the text of fail_msg() to stderr.
function said(id,    i, text) {
    for (i = 1; i <= lines[id]; i++)
        if (line[id, i] !~ /^ *(#|1\.\.|ok |not ok )/) text = text "      | " line[id, i] "\n"
    return text
}
