#!/usr/bin/env bash
# Two local Kubernetes clusters, the service, and the platform of deploy/demo/*.yaml on them.
#
#   make demo            stays until Ctrl-C, then stops everything that it started
#   make demo CHECK=1    walks the main job, judges each step, stops everything; exit code 0 only if all were ok
#
# Environment: DEMO_KUBECONFIG (an existing cluster in place of the local `demo`; its current context must be an
# administrator's), DEMO_DIR (default .demo), PROFILE (dev or release), BAILIWICK_CACHE_DIR (where the built Kubernetes
# is kept).
set -euo pipefail

# Started in the background by a script, it would have inherited a deaf ear for Ctrl-C, which bash cannot cure itself.
if [[ -z ${DEMO_SIGNALS:-} ]] && env --default-signal=INT,QUIT true 2>/dev/null; then
	DEMO_SIGNALS=reset exec env --default-signal=INT,QUIT "${BASH_SOURCE[0]}" "$@"
fi

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
REPOSITORY=$PWD
DEMO=$REPOSITORY/deploy/demo
WORK=$(realpath -m "${DEMO_DIR:-.demo}")
PROFILE=${PROFILE:-dev}
CHECK=${CHECK:-}

# shellcheck source=deploy/demo/lib.sh
source "$DEMO/lib.sh"
# shellcheck source=deploy/demo/check.sh
source "$DEMO/check.sh"

CLUSTERS=(demo prod)
# Who gets a kubeconfig for the clusters; admin and auditor have no rights there.
MEMBERS=(shop-owner shop-dev billing-owner billing-viewer floater)

# --- steps ------------------------------------------------------------------------------------------------------------------

build() {
	say "building bailiwick (profile $PROFILE); the first time takes some minutes"
	cargo build --locked --profile "$PROFILE" --bin bailiwick
	local target=$PROFILE
	[[ $PROFILE != dev ]] || target=debug
	BAILIWICK=${CARGO_TARGET_DIR:-$REPOSITORY/target}/$target/bailiwick
	say "local Kubernetes: looking for the built one"
	KUBE=$(tests/kubernetes/build.sh)
}

# Leaves nothing of an earlier demo.
prepare_folder() {
	if [[ -d $WORK && ! -e $WORK/lock && -n $(ls -A "$WORK") ]]; then
		die "$WORK holds something else; choose another folder with DEMO_DIR"
	fi
	mkdir -p "$WORK"
	exec 8>"$WORK/lock"
	flock -n 8 || die "another demo runs in $WORK; stop it first, or set DEMO_DIR"
	rm -rf "${WORK:?}"/{bin,data,home,kubeconfigs,passwords,logs,clusters,tmp,env,admin-password,bootstrap-password}
	(umask 077 && mkdir -p "$WORK"/{bin,data,home,kubeconfigs,passwords,logs,clusters,tmp})
	ln -s "$BAILIWICK" "$WORK/bin/bailiwick"
	# The binary behaves as the component that it is called by.
	ln -s "$KUBE" "$WORK/bin/kubectl"
	export PATH=$WORK/bin:$PATH
	KUBECTL=$WORK/bin/kubectl
}

admin_kubeconfig() {
	if [[ $1 == demo && -n ${DEMO_KUBECONFIG:-} ]]; then
		realpath "$DEMO_KUBECONFIG"
	else
		echo "$WORK/clusters/$1/admin.kubeconfig"
	fi
}

# cluster_admin CLUSTER COMMAND...: as the administrator of the cluster itself, past the service.
cluster_admin() {
	local kubeconfig
	kubeconfig=$(admin_kubeconfig "$1")
	shift
	KUBECONFIG=$kubeconfig "$@"
}

start_clusters() {
	local cluster
	for cluster in "${CLUSTERS[@]}"; do
		if [[ $cluster == demo && -n ${DEMO_KUBECONFIG:-} ]]; then
			say "cluster demo: the one of $DEMO_KUBECONFIG"
			continue
		fi
		say "cluster $cluster: starting"
		start "cluster-$cluster" "$KUBE" cluster --name "$cluster" --dir "$WORK/clusters/$cluster"
	done
}

await_cluster() {
	if [[ $1 == demo && -n ${DEMO_KUBECONFIG:-} ]]; then
		cluster_admin demo kubectl version >/dev/null || die "DEMO_KUBECONFIG: its cluster does not answer"
		return
	fi
	wait_for 90 "cluster $1" test -s "$WORK/clusters/$1/ready.json"
}

start_service() {
	PORT=$(free_port 8443)
	METRICS_PORT=$(free_port 9443)
	BAILIWICK_URL=https://127.0.0.1:$PORT
	BAILIWICK_CA_FILE=$WORK/data/ca.crt
	export BAILIWICK_URL BAILIWICK_CA_FILE
	new_password | write_private "$WORK/bootstrap-password"
	say "service: starting at $BAILIWICK_URL"
	start service "$BAILIWICK" serve --data-dir "$WORK/data" --listen "127.0.0.1:$PORT" \
		--metrics-listen "127.0.0.1:$METRICS_PORT" --public-url "$BAILIWICK_URL" \
		--bootstrap-password-file "$WORK/bootstrap-password"
	wait_for 30 "the service" http_ok "$METRICS_PORT" /readyz
}

# The bootstrap password must be changed at the first sign-in.
sign_in_admin() {
	new_password | write_private "$WORK/admin-password"
	as admin bailiwick login --username admin --password-stdin \
		< <(cat "$WORK/bootstrap-password" "$WORK/admin-password") 2>>"$WORK/logs/login.log" ||
		die "the administrator cannot sign in: $(tail -n 3 "$WORK/logs/login.log")"
	rm -f "$WORK/bootstrap-password"
	say "administrator: signed in, password changed"
}

import_cluster() {
	local cluster=$1 version log=$WORK/logs/import-$1.log
	await_cluster "$cluster"
	say "cluster $cluster: ready; applying the import manifest"
	version=$(cluster_admin "$cluster" kubectl version 2>/dev/null | sed -n 's/^Server Version: v\([0-9]*\.[0-9]*\).*/\1/p')
	bailiwick cluster manifest "$cluster" --kubernetes-version "${version:-1.36}" >"$WORK/tmp/manifest-$cluster.yaml"
	cluster_admin "$cluster" kubectl apply --server-side -f "$WORK/tmp/manifest-$cluster.yaml" >"$log" ||
		die "cluster $cluster: the manifest was not applied; see $log"
	as admin bailiwick cluster import "$cluster" --kubeconfig "$(admin_kubeconfig "$cluster")" >>"$log" 2>&1 ||
		die "cluster $cluster: not imported: $(tail -n 5 "$log")"
	say "cluster $cluster: imported"
}

import_clusters() {
	local cluster pids=()
	for cluster in "${CLUSTERS[@]}"; do
		import_cluster "$cluster" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
}

apply_platform() {
	as admin bailiwick apply -f "$DEMO" >"$WORK/logs/apply.log" 2>&1 ||
		die "deploy/demo/*.yaml was not applied: $(tail -n 5 "$WORK/logs/apply.log")"
	say "platform: teams, projects and grants applied"
}

# join_user USER: a password from the administrator, a sign-in, a kubeconfig for whoever has projects.
join_user() {
	local user=$1 password=$WORK/passwords/$1
	new_password | write_private "$password"
	as admin bailiwick user set-password "$user" --password-stdin <"$password" || return 1
	if [[ " ${MEMBERS[*]} " != *" $user "* ]]; then
		# Nothing on any cluster: the sign-in writes a context for the service's own API.
		as "$user" bailiwick login --username "$user" --password-stdin <"$password"
		return
	fi
	as "$user" bailiwick login --username "$user" --password-stdin --no-kubeconfig <"$password" || return 1
	as "$user" bailiwick kubeconfig --expires 7d --output "$WORK/kubeconfigs/$user.yaml"
}

join_users() {
	local user pids=()
	for user in auditor "${MEMBERS[@]}"; do
		join_user "$user" >"$WORK/logs/user-$user.log" 2>&1 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || die "people: $(tail -qn 2 "$WORK"/logs/user-*.log)"
	done
	say "people: passwords set, kubeconfigs written"
}

project_ready() {
	as admin bailiwick get project "$1" -o yaml | grep -Eq "^ *ready: ['\"]?True"
}

await_projects() {
	wait_for 60 "project shop" project_ready shop
	wait_for 60 "project billing" project_ready billing
	say "projects: ready on their clusters"
}

# deploy USER CONTEXT NAMESPACE: the workload, by a member, through the service.
deploy() {
	local log=$WORK/logs/deploy-$2-$3.log
	as "$1" kubectl --context "$2" -n "$3" apply -f "$DEMO/workloads" >"$log" 2>&1 &&
		as "$1" kubectl --context "$2" -n "$3" rollout status deployment/web --timeout=60s >>"$log" 2>&1 && return
	die "workload in $3 of $2: $(tail -n 4 "$log")"
}

deploy_workloads() {
	local pids=()
	deploy shop-dev shop@demo shop-web & pids+=($!)
	deploy shop-dev shop@demo shop-data & pids+=($!)
	deploy shop-dev shop@prod shop-web & pids+=($!)
	deploy shop-dev shop@prod shop-data & pids+=($!)
	deploy floater billing@demo billing-api & pids+=($!)
	for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
	say "workloads: running, deployed by shop-dev and floater through the service"
}

write_env() {
	write_private "$WORK/env" <<-END
		BAILIWICK_URL=$BAILIWICK_URL
		BAILIWICK_CA_FILE=$BAILIWICK_CA_FILE
		BAILIWICK_ADMIN_PASSWORD_FILE=$WORK/admin-password
		CLUSTER_ADMIN_KUBECONFIG=$(admin_kubeconfig demo)
		PROD_ADMIN_KUBECONFIG=$(admin_kubeconfig prod)
		KUBECTL=$KUBECTL
	END
}

print_next() {
	local relative=${WORK#"$REPOSITORY"/}
	cat <<-END

		Everything runs. In another terminal, in $REPOSITORY:

		  set -a; . $relative/env; set +a; export PATH=$relative/bin:\$PATH

		What a developer of the shop sees, and what not:
		  export KUBECONFIG=$relative/kubeconfigs/shop-dev.yaml
		  kubectl config get-contexts
		  kubectl --context shop@demo get pods
		  kubectl --context shop@demo logs -f deploy/web
		  kubectl --context shop@demo exec deploy/web -- sh -c 'echo inside'
		  kubectl --context demo -n billing-api get pods          # refused, and says what is yours

		What the administrator does:
		  export KUBECONFIG=$relative/kubeconfigs/admin.yaml       # the service's own API, with plain kubectl
		  kubectl get bailiwick; kubectl describe project shop; kubectl explain project.spec.clusters
		  bailiwick login -u admin --password-stdin --no-kubeconfig < $relative/admin-password
		  bailiwick user suspend shop-dev                          # ends shop-dev's logs -f and exec at once
		  bailiwick user resume shop-dev                           # no old kubeconfig comes back to life
		  bailiwick audit --user shop-dev --since 10m

		Passwords of the others: $relative/passwords/; logs: $relative/logs/. Ctrl-C stops everything.
	END
}

# Stays until something ends or Ctrl-C.
stay() {
	local entry pids=()
	for entry in "${PROCESSES[@]}"; do pids+=("${entry%%=*}"); done
	wait -n "${pids[@]}" || true
	for entry in "${PROCESSES[@]}"; do
		alive "${entry%%=*}" || die "${entry#*=} has ended by itself; its log is $WORK/logs/${entry#*=}.log"
	done
}

# --- the whole --------------------------------------------------------------------------------------------------------------

# In a cluster that was there before, the projects' namespaces go, by the service's own clean-up. The import manifest
# stays: it is the administrator's, harmless alone, and wanted by the next demo.
leave_cluster() {
	[[ -n ${DEMO_KUBECONFIG:-} && -s $WORK/tmp/manifest-demo.yaml ]] || return 0
	say "cluster demo: removing the projects' namespaces"
	as admin timeout 30 bailiwick delete -f "$DEMO" --ignore-not-found >"$WORK/logs/leave.log" 2>&1 || true
	cluster_admin demo timeout 60 kubectl wait --for=delete namespace/shop-web namespace/shop-data \
		namespace/billing-api --timeout=50s >>"$WORK/logs/leave.log" 2>&1 ||
		say "some of them are still there; see $WORK/logs/leave.log"
	say "cluster demo: to remove the import manifest, too: kubectl delete -f $WORK/tmp/manifest-demo.yaml"
}

finish() {
	local code=$?
	trap - EXIT
	trap '' INT TERM HUP
	say "stopping"
	leave_cluster
	stop_all
	say "stopped; nothing is left running"
	exit "$code"
}

check_machine
build
prepare_folder
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
STARTED_MS=$(now_ms)

start_clusters
start_service
sign_in_admin
import_clusters
apply_platform
join_users
await_projects
deploy_workloads
write_env

if [[ -n $CHECK && $CHECK != 0 ]]; then
	walk
else
	print_next
	# Ctrl-C is how this is meant to end.
	trap 'exit 0' INT
	stay
fi
