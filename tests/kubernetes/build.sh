#!/bin/sh
# Builds bailiwick-kube, or with `kubectl 1.32` the kubectl of that Kubernetes
# minor version, or with `helm` Helm 3, if it has not been built yet, and prints
# its path and nothing else on standard output.
#
# The binary is kept in a cache by the content of its sources, so that another
# clone of the same sources finds it and a change builds a new one. Several
# callers at once build only once.
set -eu

# The order of file names must not depend on the caller's locale.
LC_ALL=C
export LC_ALL

needed_go=1.26

fail() {
	echo "tests/kubernetes/build.sh: $*" >&2
	exit 1
}

cd "$(dirname "$0")"

case $# in
0)
	# Tests do not go into the binary, but "all .go files" is easier to keep
	# right than a list.
	what="the local Kubernetes control plane"
	takes="about 6 minutes"
	version=v1.36.3
	name=bailiwick-kube
	kept=kube
	sources="go.mod go.sum build.sh $(echo ./*.go)"
	from=.
	;;
1)
	[ "$1" = helm ] || fail "there is no $1 here"
	cd helm
	what="Helm"
	takes="about two minutes"
	version=$(sed -n 's,^\tk8s.io/client-go v0\([^ ]*\).*,v1\1,p' go.mod)
	name=helm
	kept=helm
	sources="go.mod go.sum ../build.sh"
	from=helm.sh/helm/v3/cmd/helm
	;;
2)
	[ "$1" = kubectl ] && [ -f "kubectl/$2/go.mod" ] ||
		fail "there is no $1 $2 here; there are: $(cd kubectl && echo kubectl [0-9]*)"
	cd "kubectl/$2"
	what="kubectl $2"
	takes="about a minute and a half"
	version=$(sed -n 's,^\tk8s.io/kubectl v0,v1,p' go.mod)
	name=kubectl
	kept=kubectl-$2
	sources="go.mod go.sum main.go ../../build.sh"
	from=.
	;;
*) fail "usage: build.sh [helm | kubectl MINOR_VERSION]" ;;
esac

if [ -n "${BAILIWICK_CACHE_DIR:-}" ]; then
	cache=$BAILIWICK_CACHE_DIR
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
	cache=$XDG_CACHE_HOME/bailiwick
elif [ -n "${HOME:-}" ]; then
	cache=$HOME/.cache/bailiwick
else
	fail "set BAILIWICK_CACHE_DIR, XDG_CACHE_HOME or HOME: there is no place for the binary"
fi

# shellcheck disable=SC2086 # A list of words.
hash=$(sha256sum $sources | sha256sum | cut -c1-16)
case $cache in
/*) ;;
*) cache=$(mkdir -p "$cache" && cd "$cache" && pwd) ;;
esac
folder=$cache/$kept-$hash
binary=$folder/$name

if [ -x "$binary" ]; then
	echo "$binary"
	exit 0
fi

command -v go >/dev/null 2>&1 ||
	fail "Go is not installed: Go $needed_go or newer is needed to build $what"
installed=$(go env GOVERSION)
oldest=$(printf '%s\n%s\n' "$needed_go" "${installed#go}" | sort -V | head -n 1)
[ "$oldest" = "$needed_go" ] ||
	fail "Go $needed_go or newer is needed to build $what, but this is $installed"
command -v flock >/dev/null 2>&1 ||
	fail "flock is not installed (it is in util-linux)"

mkdir -p "$folder"
exec 9>"$folder/lock"
if ! flock -n 9; then
	echo "waiting for another build of $what ..." >&2
	flock 9
fi
# Another caller may have built it in the meantime.
if [ -x "$binary" ]; then
	echo "$binary"
	exit 0
fi

echo "building $what; the first time takes $takes on two cores ..." >&2
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
minor=${version#v1.}
# kubectl refuses to work without a version. -buildvcs is off because the
# repository's state is no part of the binary.
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w \
-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}" \
	-o "$temporary" "$from" 9>&- >&2 ||
	fail "the build failed; the first one needs the Go module proxy or a filled module cache"
mv "$temporary" "$binary"
echo "built in $(($(date +%s) - begin)) s" >&2
echo "$binary"
