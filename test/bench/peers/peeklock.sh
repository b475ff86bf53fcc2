# Peeklock: three members as separate processes. `run` reads this file; it sets cache, data, log, binary and store.

peeklock_port=22000
peeklock_key=$(printf '0%.0s' {1..32}) # of the members among themselves, on loopback

peeklock_install() { (cd "$here/../../.." && go build -o "$cache/peeklock" ./cmd/peeklock); }
peeklock_version() { if [[ $binary == "$cache/peeklock" ]]; then git -C "$here" describe --always --dirty; else echo "$binary"; fi; }

peeklock_start() {
	local i port join=127.0.0.1:$((peeklock_port + 3)),127.0.0.1:$((peeklock_port + 13)),127.0.0.1:$((peeklock_port + 23))
	local options=()
	[[ -z $store ]] || options=(--log-store "$store")
	members=()
	for i in 0 1 2; do
		port=$((peeklock_port + 10 * i))
		"$binary" serve --name "m$i" --dir "$data/m$i" --expect 3 --replication 3 --amqp 127.0.0.1:$port --admin 127.0.0.1:$((port + 1)) \
			--peer 127.0.0.1:$((port + 2)) --gossip 127.0.0.1:$((port + 3)) --join "$join" --key "$peeklock_key" --trust-loopback "${options[@]}" >>"$log" 2>&1 &
		members+=($!)
	done
	starting=("${members[@]}")
	for i in 0 1 2; do
		await "member $i of Peeklock" "${curl[@]}" "http://127.0.0.1:$((peeklock_port + 10 * i + 1))/readyz"
	done
	local name
	while read -r name; do
		peeklock_ctl queue create "$name" >>"$log"
	done < <("$load" queues)
	addresses=127.0.0.1:$peeklock_port,127.0.0.1:$((peeklock_port + 10)),127.0.0.1:$((peeklock_port + 20))
	load_options=(-protocol amqp -user "RootManageSharedAccessKey:$peeklock_key")
}

peeklock_ctl() { "$binary" --server "http://127.0.0.1:$((peeklock_port + 1))" "$@"; }

peeklock_count() { peeklock_ctl queue list | awk 'NR > 1 { print $1, $2 }'; }
