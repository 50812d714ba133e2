# shellcheck shell=bash
# Functions of the demo: saying things, starting and stopping processes. Sourced by demo.sh.

# --- saying things ------------------------------------------------------------------------------------------------------

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

STARTED_MS=$(now_ms)

# A line of progress with the time since the start.
say() {
	local ms=$(($(now_ms) - STARTED_MS))
	printf '[%3d.%d s] %s\n' $((ms / 1000)) $((ms % 1000 / 100)) "$*" >&2
}

die() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

# --- what the machine must have -------------------------------------------------------------------------------------------

need() {
	command -v "$1" >/dev/null 2>&1 || MISSING+=("$1: $2")
}

check_machine() {
	MISSING=()
	[[ $(uname -s) == Linux ]] || MISSING+=("Linux: this is $(uname -s), and the local clusters run only there")
	((BASH_VERSINFO[0] >= 5)) || MISSING+=("bash 5 or newer: this is $BASH_VERSION")
	need cargo "Rust, from https://rustup.rs (rust-toolchain.toml names the version)"
	need timeout "in coreutils"
	need tar "for kubectl cp"
	need go "Go 1.26 or newer, from https://go.dev/dl, builds the local Kubernetes"
	need flock "in util-linux"
	need sha256sum "in coreutils"
	if ((${#MISSING[@]})); then
		printf 'demo: this machine lacks something:\n' >&2
		printf '  - %s\n' "${MISSING[@]}" >&2
		exit 1
	fi
	if [[ -n ${DEMO_KUBECONFIG:-} && ! -r $DEMO_KUBECONFIG ]]; then
		die "DEMO_KUBECONFIG: $DEMO_KUBECONFIG cannot be read"
	fi
}

# --- processes ------------------------------------------------------------------------------------------------------------

# pid=name of what was started, in order.
PROCESSES=()
# Processes that single checks have in the background.
CHECK_PIDS=()

# start NAME COMMAND...: in the background, output to a log file. Its own session, so that Ctrl-C reaches only this
# script, which stops everything in the right order; and it ends when this script is killed.
start() {
	local name=$1
	shift
	local prefix=()
	if command -v setsid >/dev/null 2>&1; then prefix+=(setsid); fi
	if command -v setpriv >/dev/null 2>&1; then prefix+=(setpriv --pdeathsig TERM); fi
	"${prefix[@]}" "$@" </dev/null >"$WORK/logs/$name.log" 2>&1 &
	PROCESSES+=("$!=$name")
}

alive() { kill -0 "$1" 2>/dev/null; }

# Stops everything that was started, the last first, and waits for each.
stop_all() {
	local entry pid name i
	for pid in "${CHECK_PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
	for ((i = ${#PROCESSES[@]} - 1; i >= 0; i--)); do
		entry=${PROCESSES[i]} pid=${PROCESSES[i]%%=*} name=${entry#*=}
		# The clusters stop side by side: each takes a few seconds.
		kill -TERM "$pid" 2>/dev/null || true
		[[ $name == cluster-* ]] || wait_end "$pid" "$name" 15
	done
	for entry in "${PROCESSES[@]}"; do wait_end "${entry%%=*}" "${entry#*=}" 30; done
	PROCESSES=()
}

wait_end() {
	local pid=$1 name=$2 deadline=$(($(now_ms) + $3 * 1000))
	while alive "$pid" && (($(now_ms) < deadline)); do sleep 0.05; done
	if alive "$pid"; then
		say "$name does not stop by itself; killing it"
		kill -KILL "$pid" 2>/dev/null || true
	fi
	wait "$pid" 2>/dev/null || true
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds. Ends the demo when it never does, or when a process that
# is needed has ended.
wait_for() {
	local seconds=$1 what=$2 deadline=$(($(now_ms) + $1 * 1000)) entry
	shift 2
	until "$@" >/dev/null 2>&1; do
		for entry in "${PROCESSES[@]}"; do
			if ! alive "${entry%%=*}"; then
				tail -n 15 "$WORK/logs/${entry#*=}.log" >&2
				die "${entry#*=} has ended while $what was waited for; its log is $WORK/logs/${entry#*=}.log"
			fi
		done
		if (($(now_ms) >= deadline)); then
			"$@" >&2 || true
			die "$what: not within $seconds s; the logs are in $WORK/logs"
		fi
		sleep 0.1
	done
}

# --- ports and small HTTP ---------------------------------------------------------------------------------------------------

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The first free port from $1 on.
free_port() {
	local port=$1
	while port_open "$port"; do port=$((port + 1)); done
	echo "$port"
}

# http_get PORT PATH: the whole answer of a plain HTTP server on this machine.
http_get() {
	local line
	exec 4<>"/dev/tcp/127.0.0.1/$1" || return 1
	printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&4
	while IFS= read -r -t 5 line <&4; do printf '%s\n' "${line%$'\r'}"; done
	[[ -z ${line:-} ]] || printf '%s\n' "${line%$'\r'}"
	exec 4>&- 4<&-
}

http_ok() { http_get "$1" "$2" | head -n 1 | grep -q ' 200 '; }

# --- people -----------------------------------------------------------------------------------------------------------------

# as USER COMMAND...: with that person's sign-in and kubeconfig.
as() {
	local user=$1
	shift
	XDG_CONFIG_HOME="$WORK/home/$user" KUBECONFIG="$WORK/kubeconfigs/$user.yaml" "$@"
}

# A password that nobody knows, of characters that need no quoting.
new_password() {
	local bytes
	bytes=$(od -An -N18 -tx1 /dev/urandom | tr -d ' \n')
	echo "Demo-${bytes:0:12}-${bytes:12:12}-${bytes:24:12}"
}

# write_private FILE: standard input into a file for its owner only.
write_private() {
	(umask 077 && cat >"$1.new" && mv "$1.new" "$1")
}
