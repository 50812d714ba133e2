# shellcheck shell=bash
# The checked walk of the main job. Each check prints its command, the first lines of the real output, the time it took
# and ok or FAILED, judged by the content. Sourced by demo.sh.

CHECKS_OK=0
CHECKS_FAILED=()
# Lines of each output that are shown.
SHOWN=5

# check TITLE [by USER] [want CODE] [has REGEX]… [lacks REGEX]… [shows TEXT] -- COMMAND…
#
# The command must end with the wanted code (0), its output (both streams) must match each `has` and no `lacks`.
# `shows` is what is printed as the command where a function of this file runs it.
check() {
	local title=$1 by='' want=0 shown='' has=() lacks=()
	shift
	while [[ $1 != -- ]]; do
		case $1 in
		by) by=$2 ;;
		want) want=$2 ;;
		has) has+=("$2") ;;
		lacks) lacks+=("$2") ;;
		shows) shown=$2 ;;
		*) die "check: unknown word $1" ;;
		esac
		shift 2
	done
	shift
	local output code=0 begin elapsed problem='' pattern
	begin=$(now_ms)
	if [[ -n $by ]]; then
		output=$(as "$by" "$@" 2>&1) || code=$?
	else
		output=$("$@" 2>&1) || code=$?
	fi
	elapsed=$(($(now_ms) - begin))
	if [[ $code != "$want" ]]; then problem="exit code $code instead of $want"; fi
	for pattern in "${has[@]}"; do
		grep -Eq -- "$pattern" <<<"$output" || problem+="${problem:+; }does not have /$pattern/"
	done
	for pattern in "${lacks[@]}"; do
		! grep -Eq -- "$pattern" <<<"$output" || problem+="${problem:+; }has /$pattern/"
	done
	report "$title" "$by" "$elapsed" "$problem" "$output" "${shown:-$(shown_command "$@")}"
}

# report TITLE USER ELAPSED PROBLEM OUTPUT COMMAND
report() {
	local title=$1 by=$2 elapsed=$3 problem=$4 output=$5 command=$6 verdict=ok lines
	[[ -z $problem ]] || verdict="FAILED: $problem"
	printf '\n%s\n  %s$ %s\n' "$title" "$by" "$command"
	lines=$(grep -c '' <<<"$output" || true)
	head -n "$SHOWN" <<<"$output" | cut -c1-180 | sed 's/^/    /'
	((lines <= SHOWN)) || printf '    … %d more lines\n' $((lines - SHOWN))
	printf '  %s (%d ms)\n' "$verdict" "$elapsed"
	if [[ -z $problem ]]; then
		CHECKS_OK=$((CHECKS_OK + 1))
	else
		CHECKS_FAILED+=("$title: $problem")
		printf '    %s\n' "all of the output is in ${WORK#"$REPOSITORY"/}/logs/failed.log" >&2
		printf '== %s\n%s\n' "$title" "$output" >>"$WORK/logs/failed.log"
	fi
}

shown_command() {
	local word words=()
	for word in "$@"; do
		if [[ $word =~ ^[A-Za-z0-9_@%+=:,./-]+$ ]]; then words+=("$word"); else words+=("'$word'"); fi
	done
	local text="${words[*]}"
	echo "${text//"$WORK"/.demo}"
}

# --- helpers that checks run ------------------------------------------------------------------------------------------------

# A refusal for a foreign namespace and one for a missing one, with the names made equal: they must not differ.
compare_refusals() {
	local foreign missing
	foreign=$(kubectl --context demo -n billing-api "$@" 2>&1 | sed 's/billing-api/NAMESPACE/g') || true
	missing=$(kubectl --context demo -n billing-xyz "$@" 2>&1 | sed 's/billing-xyz/NAMESPACE/g') || true
	printf '%s\n' "$foreign"
	[[ $foreign == "$missing" ]] && [[ -n $foreign ]] && echo "the same text for both"
}

web_pod() {
	kubectl --context "$1" -n "$2" get pods -l app=web -o 'jsonpath={.items[0].metadata.name}'
}

follow_logs() {
	timeout 3 kubectl --context shop@demo logs -f --tail=1 deploy/web || [[ $? == 124 ]]
}

copy_there_and_back() {
	local pod
	pod=$(web_pod shop@demo shop-web)
	head -c 3000000 /dev/urandom >"$WORK/tmp/there"
	# kubectl takes what stands before a colon for a Pod, so the local files are named relative to here.
	cd "$WORK/tmp" || return
	kubectl --context shop@demo cp --retries=3 there "$pod:copied"
	kubectl --context shop@demo cp --retries=3 "$pod:copied" back
	cmp there back && echo "3000000 bytes, byte-exact both ways"
}

# All Pods of the local clusters share this machine's loopback address: the service's health is what listens there.
forward_port() {
	local port pid
	port=$(free_port 18080)
	kubectl --context shop@demo port-forward deploy/web "$port:$METRICS_PORT" >"$WORK/tmp/forward" 2>&1 &
	pid=$!
	CHECK_PIDS+=("$pid")
	until port_open "$port" || ! alive "$pid"; do sleep 0.05; done
	http_get "$port" /healthz
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	cat "$WORK/tmp/forward"
}

config_map() {
	cat <<-END
		apiVersion: v1
		kind: ConfigMap
		metadata: {name: settings}
		data: {colour: $1}
	END
}

apply_twice() {
	config_map green | kubectl --context shop@demo apply -f -
	config_map blue | kubectl --context shop@demo apply -f -
	config_map red | kubectl --context shop@demo apply --server-side --force-conflicts -f -
	kubectl --context shop@demo get configmap settings -o 'jsonpath=colour is {.data.colour}{"\n"}'
}

# What the cluster's administrator takes away comes back.
drift() {
	cluster_admin demo kubectl -n shop-data delete resourcequota,rolebinding -l bailiwick.dev/managed=true
	local deadline=$(($(now_ms) + 10000))
	until cluster_admin demo kubectl -n shop-data get resourcequota -o name | grep -q . &&
		as shop-dev kubectl --context shop@demo -n shop-data get pods >/dev/null 2>&1; do
		(($(now_ms) < deadline)) || { echo "not within 10 s"; return 1; }
		sleep 0.1
	done
	cluster_admin demo kubectl -n shop-data get resourcequota,rolebinding -o name
	echo "back again"
}

# Four more fit beside the two declared ones.
create_namespaces() {
	local n pids=()
	for n in 1 2 3 4; do
		as shop-owner bailiwick project namespace create shop "shop-extra-$n" --cluster demo &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid"; done
}

delete_namespaces() {
	local n
	for n in 1 2 3 4; do as shop-owner bailiwick project namespace delete shop "shop-extra-$n" --cluster demo; done
}

# What the cluster itself has recorded of a request: who, and in which groups.
in_audit_log() {
	grep '"impersonatedUser"' "$WORK/clusters/demo/audit.log" | grep '"bailiwick:user:shop-dev"' |
		grep '"resource":"pods"' | tail -n 1 |
		grep -o '"impersonatedUser":{[^}]*}\|"user":{"username":"[^"]*"\|"verb":"[^"]*"'
}

# Open streams of shop-dev, a suspension, and how long it takes until nothing more comes.
cut_off() {
	local pids=() names=(exec watch logs) name i begin now deadline
	as shop-dev kubectl --context shop@demo exec deploy/web -- sh -c 'while :; do echo running; sleep 0.05; done' \
		>"$WORK/tmp/exec" 2>"$WORK/tmp/exec.err" &
	pids+=($!)
	as shop-dev kubectl --context shop@demo get pods --watch >"$WORK/tmp/watch" 2>"$WORK/tmp/watch.err" &
	pids+=($!)
	as shop-dev kubectl --context shop@demo logs -f deploy/web >"$WORK/tmp/logs" 2>"$WORK/tmp/logs.err" &
	pids+=($!)
	CHECK_PIDS+=("${pids[@]}")
	deadline=$(($(now_ms) + 5000))
	for name in "${names[@]}"; do
		until [[ -s $WORK/tmp/$name ]]; do
			(($(now_ms) < deadline)) || { echo "$name did not begin: $(cat "$WORK/tmp/$name.err")"; return 1; }
			sleep 0.05
		done
	done
	as admin bailiwick user suspend shop-dev --reason "demo"
	begin=$(now_ms)
	for i in 0 1 2; do
		while alive "${pids[i]}" && (($(now_ms) - begin < 3000)); do sleep 0.01; done
		now=$(($(now_ms) - begin))
		if alive "${pids[i]}"; then
			echo "${names[i]} still runs after $now ms"
			kill "${pids[i]}"
		elif ((now <= 1000)); then
			echo "${names[i]} ended within $now ms"
		else
			echo "${names[i]} ended too late, after $now ms"
		fi
		wait "${pids[i]}" 2>/dev/null || true
	done
}

sign_in_again() {
	bailiwick login --username shop-dev --password-stdin --no-kubeconfig <"$WORK/passwords/shop-dev"
	bailiwick kubeconfig --expires 7d --merge "$KUBECONFIG"
	kubectl --context shop@demo get pods
}

wrong_trust() {
	env -u BAILIWICK_CA_FILE XDG_CONFIG_HOME="$WORK/tmp/nobody" \
		"$BAILIWICK" login "$BAILIWICK_URL" --username admin --password-stdin --no-kubeconfig <"$WORK/admin-password"
}

# --- the walk -----------------------------------------------------------------------------------------------------------------

walk() {
	walk_seeing
	walk_working
	walk_borders
	walk_projects
	walk_administration
	walk_cut_off
	summary
}

walk_seeing() {
	check "A kubeconfig has a context for each cluster and project, and no more" by shop-dev \
		has 'shop@demo' has 'shop@prod' lacks billing \
		-- kubectl config get-contexts -o name
	check "kubectl through the service" by shop-dev has '^web-.* +1/1 +Running' \
		-- kubectl --context shop@demo get pods
	check "The same person on the other cluster" by shop-dev has '^web-.* +1/1 +Running' \
		-- kubectl --context prod -n shop-data get pods
	check "Who one is to the cluster" by shop-dev \
		has 'bailiwick:user:shop-dev' has 'bailiwick:tenant' lacks 'system:masters' lacks billing \
		-- kubectl --context shop@demo auth whoami
	check "All of one's namespaces at once, and no other" by shop-dev has 'shop-web +web-.*Running' has 'shop-data' \
		lacks 'billing-' lacks 'kube-system' \
		-- kubectl --context demo get pods -A
	check "The namespaces are one's own" by shop-dev has '^shop-web +Active' has '^shop-data +Active' \
		lacks 'billing-' lacks 'kube-system' \
		-- kubectl --context demo get namespaces
	check "The quota is visible" by shop-dev has 'requests.cpu' has 'pods' \
		-- kubectl --context shop@demo describe resourcequota
	check "How full the project is, and what stands in the way" by shop-dev has 'Project shop: ready' has ' of ' \
		has 'Pod Security level restricted' \
		-- bailiwick project status shop
	check "One person in two projects, with another role in each" by floater has 'shop@demo' has 'billing@demo' \
		-- kubectl config get-contexts -o name
}

walk_working() {
	check "Logs, followed" by shop-dev has 'line [0-9]+ from shop-web' \
		shows 'timeout 3 kubectl --context shop@demo logs -f --tail=1 deploy/web' \
		-- follow_logs
	check "A command in a Pod, with its exit code" by shop-dev want 7 has '^inside$' has 'exit code 7' \
		-- kubectl --context shop@demo exec deploy/web -- sh -c 'echo inside; exit 7'
	check "Its standard input, to the end" by shop-dev has '^hello pod$' \
		shows 'echo hello pod | kubectl --context shop@demo exec -i deploy/web -- cat' \
		-- bash -c 'echo hello pod | kubectl --context shop@demo exec -i deploy/web -- cat'
	check "Files into a Pod and back" by shop-dev has 'byte-exact both ways' \
		shows 'kubectl --context shop@demo cp there WEB-POD:copied; kubectl cp WEB-POD:copied back; cmp there back' \
		-- copy_there_and_back
	if [[ -z ${DEMO_KUBECONFIG:-} ]]; then
		check "A port of a Pod" by shop-dev has '^HTTP/1.1 200' has 'Handling connection' \
		shows 'kubectl --context shop@demo port-forward deploy/web 18080:PORT & curl http://127.0.0.1:18080/healthz' \
		-- forward_port
	fi
	check "Apply, client-side and server-side" by shop-dev has 'created' has 'configured' has 'serverside-applied' \
		has 'colour is red' \
		shows 'kubectl apply -f -; kubectl apply -f -; kubectl apply --server-side --force-conflicts -f -' \
		-- apply_twice
	check "What one may" by shop-dev has '^yes$' -- kubectl --context shop@demo auth can-i create deployments
	check "What one may not" by shop-dev want 1 has '^no' \
		-- kubectl --context shop@demo auth can-i create rolebindings
}

walk_borders() {
	check "A foreign namespace is refused, and the text says what is one's own" by shop-dev want 1 \
		has 'Forbidden' has 'shop-web' lacks 'web-[0-9a-f]+-' \
		-- kubectl --context demo -n billing-api get pods
	check "It cannot be told from one that does not exist" by shop-dev has 'the same text for both' \
		shows 'diff <(kubectl -n billing-api get pods) <(kubectl -n billing-xyz get pods)' \
		-- compare_refusals get pods
	check "A viewer looks" by floater has '^web-.*Running' -- kubectl --context shop@demo get pods
	check "and does not touch" by floater want 1 has 'Forbidden' -- kubectl --context shop@demo delete pods --all
	check "nor runs commands" by floater want 1 has 'orbidden' \
		-- kubectl --context shop@demo exec deploy/web -- true
	check "The same person works where it is a member" by floater has '^working$' \
		-- kubectl --context billing@demo exec deploy/web -- echo working
	check "Nobody becomes somebody else" by shop-dev want 1 has 'orbidden' \
		-- kubectl --context shop@demo --as system:admin --as-group system:masters get pods
	check "A name of another project's is refused" by shop-owner want 1 has 'Error from server' has 'shop-' \
		-- bailiwick project namespace create shop billing-x --cluster demo
}

walk_projects() {
	check "What somebody removes by hand comes back" has 'back again' \
		shows 'cluster-admin: kubectl -n shop-data delete resourcequota,rolebinding -l bailiwick.dev/managed=true' \
		-- drift
	check "Namespaces within the limit of six" has 'namespace shop-extra-1 created' has 'namespace shop-extra-4 created' \
		shows 'bailiwick project namespace create shop shop-extra-{1,2,3,4} --cluster demo' \
		-- create_namespaces
	check "can be used at once" by shop-dev has 'created' \
		-- kubectl --context shop@demo -n shop-extra-1 create configmap first --from-literal=a=b
	check "The seventh is refused" by shop-owner want 1 has 'Error from server' has '6' \
		-- bailiwick project namespace create shop shop-extra-5 --cluster demo
	check "They are given back" has 'is being deleted' \
		shows 'bailiwick project namespace delete shop shop-extra-{1,2,3,4} --cluster demo' \
		-- delete_namespaces
}

walk_administration() {
	check "They are gone from the cluster, and the project is as it should be" by admin has 'condition met' \
		-- kubectl wait --for=condition=Ready project/shop --timeout=30s
	check "A member makes a namespace with kubectl" by shop-dev has 'namespace/shop-lab created' \
		-- kubectl --context demo create namespace shop-lab
	check "and works in it at once" by shop-dev has 'created' \
		-- kubectl --context demo -n shop-lab create configmap first --from-literal=a=b
	check "A name outside of the prefix is refused with the prefix" by shop-dev want 1 has 'Forbidden' has '"shop-"' \
		-- kubectl --context demo create namespace lab
	check "and owners delete what was made so" by shop-owner has 'deleted' \
		-- kubectl --context demo delete namespace shop-lab
	check "The project is as it should be again" by admin has 'condition met' \
		-- kubectl wait --for=condition=Ready project/shop --timeout=30s
	check "The platform with plain kubectl" by admin has 'shop +.*True' has 'billing +.*True' \
		-- kubectl get projects
	check "An auditor reads everything" by auditor has '^shop ' has '^billing ' -- bailiwick get projects
	check "and changes nothing" by auditor want 1 has 'Forbidden' -- bailiwick delete project shop
	check "A member sees the own project only" by shop-dev has 'shop' lacks 'billing' -- bailiwick whoami
	check "Every right and guard, probed in the cluster" by admin has 'ok' lacks 'MISSING' -- bailiwick cluster check demo
	check "An unknown certificate is not accepted" want 3 has 'is not trusted' \
		shows 'bailiwick login URL --username admin --password-stdin   # without --ca-file' \
		-- wrong_trust
	if [[ -z ${DEMO_KUBECONFIG:-} ]]; then
		check "The cluster's own audit log has the person and the group" \
			has '"username":"bailiwick:user:shop-dev"' has 'bailiwick:project:shop:[0-9a-f]{8}:member' \
			has 'system:serviceaccount:bailiwick-system:forwarding' lacks 'system:masters' \
		shows 'grep bailiwick:user:shop-dev .demo/clusters/demo/audit.log | tail -n 1' \
		-- in_audit_log
	fi
}

walk_cut_off() {
	check "Suspended: open exec, watch and logs end within a second" has 'shop-dev suspended' \
		has '^exec ended within' has '^watch ended within' has '^logs ended within' \
		shows 'bailiwick user suspend shop-dev   # while exec, get --watch and logs -f run' \
		-- cut_off
	check "New requests are refused" by shop-dev want 1 has 'Unauthorized|must be logged in' \
		-- kubectl --context shop@demo get pods
	check "Resuming the account" by admin has 'shop-dev resumed' -- bailiwick user resume shop-dev
	check "brings no old token back to life" by shop-dev want 1 has 'Unauthorized|must be logged in' \
		-- kubectl --context shop@demo get pods
	check "It signs in anew, and the new token takes the old one's place in the kubeconfig" by shop-dev \
		has 'Signed in to' has '^web-.* +1/1 +Running' \
		shows 'bailiwick login -u shop-dev …; bailiwick kubeconfig --merge FILE; kubectl --context shop@demo get pods' \
		-- sign_in_again
	check "The audit log has it all" by admin has 'suspend' has 'resume' -- bailiwick audit --since 10m --limit 1000
	check "each command in a Pod, with the role that permitted it" by admin has 'pods/exec' has 'member' \
		-- bailiwick audit --user shop-dev --verb get --since 10m --limit 1000
	check "and what was refused" by admin has 'refused' has 'billing-api' \
		-- bailiwick audit --user shop-dev --refused --since 10m --limit 1000
}

summary() {
	local total=$((CHECKS_OK + ${#CHECKS_FAILED[@]}))
	printf '\n%d of %d checks ok, %d s\n' "$CHECKS_OK" "$total" $((($(now_ms) - STARTED_MS) / 1000))
	if ((${#CHECKS_FAILED[@]})); then
		printf '  FAILED %s\n' "${CHECKS_FAILED[@]}"
		return 1
	fi
}
