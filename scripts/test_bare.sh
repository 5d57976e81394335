#!/bin/sh
# The two commands of README.md on a bare machine: ./run demo and ./run test in a minimal Debian 12,
# where nothing is installed but what every Debian has.
#   scripts/test_bare.sh [FOLDER]        default build/bare
# Needs root, debootstrap and git. The commit HEAD is cloned; what is not committed does not count.
# Containers often have no pseudo terminals, so all tests run without them first, and then those of
# the command line and the pages with them. FOLDER/base is kept for the next time; the output goes
# to FOLDER/log as well. DRA_TEST_ONLY and the like are passed on.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/bare}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

fail() {
    echo "test-bare: $*" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || fail "expected root, as mounts and chroot need it"
for program in debootstrap unshare chroot git; do
    command -v "$program" >/dev/null || fail "$program is not installed"
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
tree=$folder/tree

# The copy of the base takes seconds, where making it takes minutes.
make_tree() {
    [ ! -d "$folder/base.part" ] || rm -rf "$folder/base.part"
    if [ ! -d "$folder/base" ]; then
        echo "bare   debootstrap" >&2
        debootstrap --variant=minbase bookworm "$folder/base.part" "$mirror" \
            >"$folder/debootstrap" || fail "debootstrap failed, see $folder/debootstrap"
        mv "$folder/base.part" "$folder/base"
    fi
    rm -rf "$tree"
    cp -a "$folder/base" "$tree"
    cp /etc/resolv.conf "$tree/etc/resolv.conf"
    rm -rf "$tree/dev/ptmx" "$tree/dev/pts"
    git clone -q --no-hardlinks . "$tree/srv/dra"
}

# in_tree MOUNTS COMMAND: in the tree, with a proc of its own; all mounts end with the command.
in_tree() {
    unshare --mount --pid --fork sh -c "
        mount --make-rprivate / && mount -t proc proc '$tree/proc' && $1 &&
        exec env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=xterm \
            \${DRA_TEST_ONLY:+DRA_TEST_ONLY=\"\$DRA_TEST_ONLY\"} \
            \${DRA_TEST_JOBS:+DRA_TEST_JOBS=\"\$DRA_TEST_JOBS\"} \
            chroot '$tree' sh -c 'cd /srv/dra && $2'"
}

terminals="mkdir -p '$tree/dev/pts' && ln -sf pts/ptmx '$tree/dev/ptmx' &&
    mount -t devpts -o newinstance,ptmxmode=0666 devpts '$tree/dev/pts'"

# timed MOUNTS COMMAND: in_tree, and how long it took. A bare Debian has no `time`.
timed() {
    began=$(date +%s)
    in_tree "$1" "$2" || return 1
    echo "bare   took $((($(date +%s) - began) / 60)) min $((($(date +%s) - began) % 60)) s"
}

run_all() {
    echo "bare   $(git log -1 --format=%h): ./run demo, without pseudo terminals"
    timed true "./run demo" || return 1
    echo "bare   ./run test, without pseudo terminals"
    timed true "./run test" || return 1
    echo "bare   ./run test, the command line and the pages, with pseudo terminals"
    DRA_TEST_ONLY=${DRA_TEST_ONLY:-'^(cli|docs)/'}
    export DRA_TEST_ONLY
    timed "$terminals" "./run test" || return 1
    echo "bare   all well"
}

make_tree
: >"$folder/log"
run_all 2>&1 | tee "$folder/log"
tail -n 1 "$folder/log" | grep -q '^bare   all well$'
