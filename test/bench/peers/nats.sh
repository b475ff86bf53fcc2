# NATS: three servers with JetStream. `run` reads this file; it sets cache, data, log and sync.

nats_port=22200

nats_install() { (cd "$here" && go build -o "$cache/nats-server" github.com/nats-io/nats-server/v2); }
nats_version() { "$cache/nats-server" --version | sed 's/.*v//'; }

# nats_start starts the servers. sync is always, or empty for the default of two minutes.
nats_start() {
	local i routes=nats://127.0.0.1:$((nats_port + 10)),nats://127.0.0.1:$((nats_port + 11)),nats://127.0.0.1:$((nats_port + 12))
	members=()
	for i in 0 1 2; do
		mkdir -p "$data/$i"
		cat >"$data/$i.conf" <<-CONF
			server_name: nats$i
			listen: "127.0.0.1:$((nats_port + i))"
			http: "127.0.0.1:$((nats_port + 20 + i))"
			jetstream { store_dir: "$data/$i"${sync:+, sync_interval: $sync} }
			cluster { name: peers, listen: "127.0.0.1:$((nats_port + 10 + i))", routes: [${routes//,/, }] }
		CONF
		"$cache/nats-server" -c "$data/$i.conf" >>"$log" 2>&1 &
		members+=($!)
	done
	starting=("${members[@]}")
	for i in 0 1 2; do
		await "server $i of NATS" "${curl[@]}" "http://127.0.0.1:$((nats_port + 20 + i))/healthz"
	done
	addresses=127.0.0.1:$nats_port,127.0.0.1:$((nats_port + 1)),127.0.0.1:$((nats_port + 2))
	await "the queues of NATS" nats_create
	load_options=(-protocol nats)
}

nats_create() { "$load" create -members "$addresses" >>"$log" 2>&1; }

nats_count() { "$load" count -members "$addresses"; }
