#!/bin/sh
# The files of a release: scripts/dist.sh BUILD [PLUGIN] puts into BUILD/dist the source of HEAD as
# an archive, the wheel in BUILD/wheel/dist, the Debian package of BUILD/deb, where PLUGIN
# (libdra-cuda.so) is given the wheel dra-cuda13 with it, and SHA256SUMS. All have the version of
# dra/base.h, and CHANGELOG.md must have an entry for it.
set -eu
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
plugin=${2:-}
python=${PYTHON:-python3}
out=$build/dist

fail() {
    echo "dist: $*" >&2
    exit 1
}

number() { sed -n "s/^#define DRA_VERSION_$1 //p" include/dra/base.h; }

version=$(number MAJOR).$(number MINOR).$(number PATCH)

check_state() {
    grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no entry '## $version'"
    [ -z "$(git status --porcelain)" ] ||
        echo "dist   there are changes that are not committed: the archive is that of HEAD" >&2
    [ -e "$build"/wheel/dist/dra-"$version"-*.whl ] ||
        fail "no wheel of $version in $build/wheel/dist: make wheel"
}

archive_source() { # the same bytes for the same commit
    git archive --format=tar --prefix="dra-$version/" -o "$out/dra-$version.tar" HEAD
    gzip -n9 "$out/dra-$version.tar"
}

package_debian() {
    if ! command -v dpkg-shlibdeps >/dev/null; then
        echo "dist   no Debian package: dpkg-shlibdeps is not there (dpkg-dev)" >&2
        return
    fi
    (cd "$build/deb" && rm -f ./*.deb && cpack >cpack.log 2>&1) ||
        { tail -n 20 "$build/deb/cpack.log" >&2 && fail "cpack failed"; }
    cp "$build"/deb/*.deb "$out"
}

check_state
rm -rf "$out"
mkdir -p "$out"
archive_source
cp "$build"/wheel/dist/dra-"$version"-*.whl "$out"
[ -z "$plugin" ] || "$python" python/plugin_wheel.py "$plugin" "$version" "$out"
package_debian
(cd "$out" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS && cat SHA256SUMS)
