# RabbitMQ: three nodes from Debian's packages, with the Erlang and the libraries of the same suite. They are unpacked
# into a folder and run with it as their root, in a user namespace where the caller is not root. Nothing is installed.
# `run` reads this file; it sets cache, data and log.

rabbit_port=22100
rabbit_epmd_port=22109
rabbit_root() { echo "$cache/rabbitmq"; }

# Debian's suites with RabbitMQ 4, the newest first.
rabbit_suites=${RABBITMQ_SUITES:-sid forky trixie}

rabbit_install() {
	local root suite
	root=$(rabbit_root)
	[[ -e $root/version ]] && return
	for suite in $rabbit_suites; do
		rabbit_download "$suite" >>"$log" 2>&1 && break
	done
	compgen -G "$cache/apt/archives/rabbitmq-server_*.deb" >/dev/null || {
		echo "no suite of $rabbit_suites gives rabbitmq-server: see $log" >&2
		return 1
	}
	rm -rf "$root" && mkdir -p "$root"/{proc,dev,tmp,run,etc,root,data}
	local package
	# First what has the links from /bin, /lib and /sbin to /usr.
	for package in "$cache"/apt/archives/base-files_*.deb "$cache"/apt/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --no-same-owner --keep-directory-symlink --exclude './dev/*'
	done
	echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
	echo 'root:x:0:' >"$root/etc/group"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
	rm -rf "$cache/apt"
	rabbit_version_of "$root" >"$root/version"
}

rabbit_version_of() { basename "$1"/usr/lib/rabbitmq/lib/rabbitmq_server-* | sed 's/rabbitmq_server-//'; }
rabbit_version() { cat "$(rabbit_root)/version"; }

# rabbit_download SUITE fetches the packages and all that they depend on, with the sources of this machine.
rabbit_download() {
	local apt=$cache/apt uri
	uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT) $(IDENTIFIER)' | awk '$2 == "Debian" && $3 == "main" && $4 == "Packages" && $1 !~ /security/ { print $1; exit }')
	[[ -n $uri ]] || { echo "apt knows no source of Debian: run apt-get update" >&2; return 1; }
	rm -rf "$apt" && mkdir -p "$apt"/{archives/partial,state/lists/partial,cache}
	: >"$apt/status"
	echo "deb $uri $1 main" >"$apt/sources.list"
	local options=(
		-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State="$apt/state" -o Dir::State::status="$apt/status"
		-o Dir::Cache="$apt/cache" -o Dir::Cache::Archives="$apt/archives" -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
		-o APT::Install-Recommends=false -o Debug::NoLocking=1
	)
	apt-get "${options[@]}" update && apt-get "${options[@]}" --yes --download-only install \
		rabbitmq-server base-files dash bash coreutils sed grep gawk procps util-linux hostname
}

# rabbit_inside ENV... COMMAND... replaces this shell by a command in the folder.
rabbit_inside() {
	local root
	root=$(rabbit_root)
	exec unshare --user --map-root-user --mount bash -c '
		set -e
		root=$1; data=$2; shift 2
		mount --rbind /proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount --bind "$data" "$root/data"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/data LANG=C.UTF-8 "$@"
	' rabbit "$root" "$data" "$@"
}

# rabbit_node I COMMAND... replaces this shell by a command with the environment of node I.
rabbit_node() {
	local i=$1
	shift
	rabbit_inside RABBITMQ_NODENAME=rabbit"$i"@localhost RABBITMQ_NODE_PORT=$((rabbit_port + i)) RABBITMQ_DIST_PORT=$((rabbit_port + 10 + i)) \
		ERL_EPMD_PORT=$rabbit_epmd_port ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_MNESIA_BASE=/data/"$i" RABBITMQ_LOG_BASE=/data/"$i"/log \
		RABBITMQ_PID_FILE=/data/"$i"/pid RABBITMQ_CONFIG_FILE=/data/"$i"/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=/data/"$i"/plugins \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' "$@"
}

rabbitctl() {
	local i=$1
	shift
	(rabbit_node "$i" /usr/lib/rabbitmq/bin/rabbitmqctl --quiet "$@")
}

rabbit_start() {
	local i
	printf peers >"$data/.erlang.cookie" && chmod 600 "$data/.erlang.cookie"
	(rabbit_inside /usr/bin/epmd -port $rabbit_epmd_port -address 127.0.0.1 >>"$log" 2>&1) &
	helpers+=($!)
	for i in 0 1 2; do
		mkdir -p "$data/$i/log"
		echo '[].' >"$data/$i/plugins"
		cat >"$data/$i/rabbitmq.conf" <<-CONF
			listeners.tcp.1 = 127.0.0.1:$((rabbit_port + i))
			log.console.level = warning
			log.file = false
			cluster_name = peers
			cluster_formation.peer_discovery_backend = classic_config
			cluster_formation.classic_config.nodes.1 = rabbit0@localhost
			cluster_formation.classic_config.nodes.2 = rabbit1@localhost
			cluster_formation.classic_config.nodes.3 = rabbit2@localhost
			cluster_formation.target_cluster_size_hint = 3
		CONF
		(rabbit_node "$i" /usr/lib/rabbitmq/bin/rabbitmq-server >>"$log" 2>&1) &
		starting+=($!)
	done
	members=()
	for i in 0 1 2; do
		await "node $i of RabbitMQ" test -s "$data/$i/pid"
		members+=("$(tr -dc 0-9 <"$data/$i/pid")")
	done
	await "the cluster of RabbitMQ" rabbit_is_ready
	rabbit_queues >"$data/definitions.json"
	rabbitctl 0 import_definitions /data/definitions.json >>"$log"
	rabbit_check
	addresses=127.0.0.1:$rabbit_port,127.0.0.1:$((rabbit_port + 1)),127.0.0.1:$((rabbit_port + 2))
	load_options=(-protocol amqp -user guest:guest -prefix /queues/)
}

rabbit_is_ready() { rabbitctl 0 await_online_nodes 3 --timeout 20 >>"$log" 2>&1; }

# rabbit_queues prints the definitions of all queues of the rows: quorum queues with three replicas.
rabbit_queues() {
	local name comma=
	echo '{"queues": ['
	while read -r name; do
		printf '%s{"name": "%s", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3, "x-queue-leader-locator": "balanced"}}\n' "$comma" "$name"
		comma=,
	done < <("$load" queues)
	echo ']}'
}

# rabbit_check fails unless every queue is a quorum queue with three members online.
rabbit_check() {
	rabbitctl 0 list_queues --no-table-headers name type members online | tee -a "$log" |
		awk '{ n++; if ($2 != "quorum" || gsub(/rabbit[0-2]@localhost/, "") != 6) { bad++ } } END { exit !(n > 0 && !bad) }' ||
		{ echo "the queues of RabbitMQ do not have three replicas: see $log" >&2; return 1; }
}

rabbit_count() { rabbitctl 0 list_queues --no-table-headers name messages; }
