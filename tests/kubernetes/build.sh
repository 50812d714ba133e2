#!/bin/sh
# Builds bailiwick-kube, if it has not been built yet, and prints its path and
# nothing else on standard output.
#
# The binary is kept in a cache by the content of its sources, so that another
# clone of the same sources finds it and a change builds a new one. Several
# callers at once build only once.
set -eu

kubernetes_version=1.36.3
needed_go=1.26

fail() {
	echo "tests/kubernetes/build.sh: $*" >&2
	exit 1
}

cd "$(dirname "$0")"

if [ -n "${BAILIWICK_CACHE_DIR:-}" ]; then
	cache=$BAILIWICK_CACHE_DIR
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
	cache=$XDG_CACHE_HOME/bailiwick
elif [ -n "${HOME:-}" ]; then
	cache=$HOME/.cache/bailiwick
else
	fail "set BAILIWICK_CACHE_DIR, XDG_CACHE_HOME or HOME: there is no place for the binary"
fi

# Tests do not go into the binary, but "all .go files" is easier to keep right
# than a list. The order must not depend on the caller's locale.
hash=$(LC_ALL=C sha256sum go.mod go.sum build.sh ./*.go | sha256sum | cut -c1-16)
case $cache in
/*) ;;
*) cache=$(mkdir -p "$cache" && cd "$cache" && pwd) ;;
esac
folder=$cache/kube-$hash
binary=$folder/bailiwick-kube

if [ -x "$binary" ]; then
	echo "$binary"
	exit 0
fi

command -v go >/dev/null 2>&1 ||
	fail "Go is not installed: Go $needed_go or newer is needed to build the local Kubernetes control plane"
version=$(go env GOVERSION)
oldest=$(printf '%s\n%s\n' "$needed_go" "${version#go}" | sort -V | head -n 1)
[ "$oldest" = "$needed_go" ] ||
	fail "Go $needed_go or newer is needed to build the local Kubernetes control plane, but this is $version"
command -v flock >/dev/null 2>&1 ||
	fail "flock is not installed (it is in util-linux)"

mkdir -p "$folder"
exec 9>"$folder/lock"
if ! flock -n 9; then
	echo "waiting for another build of the local Kubernetes control plane ..." >&2
	flock 9
fi
# Another caller may have built it in the meantime.
if [ -x "$binary" ]; then
	echo "$binary"
	exit 0
fi

echo "building the local Kubernetes control plane; the first time takes about 6 minutes on two cores ..." >&2
begin=$(date +%s)
temporary=$folder/.building.$$
(
	while sleep 15 </dev/null 2>/dev/null; do
		echo "  ... still building, $(($(date +%s) - begin)) s" >&2
	done
) 9>&- >/dev/null &
heartbeat=$!
# The heartbeat's sleep outlives it by a few seconds. Nothing waits for it,
# because neither the lock nor any of the caller's streams is open in it.
trap 'kill "$heartbeat" 2>/dev/null || true; rm -f "$temporary"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

package=k8s.io/component-base/version
# kubectl refuses to work without a version. -buildvcs is off because the
# repository's state is no part of the binary.
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w \
-X $package.gitVersion=v$kubernetes_version -X $package.gitMajor=1 -X $package.gitMinor=36" \
	-o "$temporary" . 9>&- >&2 ||
	fail "the build failed; the first one needs the Go module proxy or a filled module cache"
mv "$temporary" "$binary"
echo "built in $(($(date +%s) - begin)) s" >&2
echo "$binary"
