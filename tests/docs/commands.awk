# Commands of a page as a script: lines "    $ COMMAND", each said before it runs.
# A line that ends in a backslash goes on in the next. ./run does what make does; a folder that
# pages call `run` is in its way.
function said(text) {
    gsub(/'/, "'\\''", text)
    return "echo '$ " text "'"
}

function finish() {
    print said(command)
    print command
    command = ""
}

sub(/^ +\$ /, "") || more {
    sub(/^ +/, "")
    sub(/^\.\/run /, "make ")
    command = command $0
    more = /\\$/
    if (more) sub(/\\$/, "", command)
    else finish()
}
