# Functions that bring up a real Kubernetes on this machine and end it. Sourced by run in namespaces of its own for the
# network, mounts and processes; every node has further ones (see node). What is left of all of them ends with run. The
# machine's sysctls and iptables stay as they are; only its cgroups are shared, and remove_cgroups removes those of the nodes.
# shellcheck shell=bash disable=SC2154

address=10.99.0.1 # of the API server; node N is 10.99.N.2, and its pods are 10.244.N.0/24
service_range=10.96.0.0/16
dns_address=10.96.0.10
cgroup=peeklock-kubernetes # below it are the cgroups of the nodes
node_volumes=4             # local volumes of each node

# wait_for SECONDS WHAT COMMAND... repeats a command until it succeeds.
wait_for() {
	local seconds=$1 what=$2 end
	shift 2
	end=$((SECONDS + seconds))
	until "$@" >"$work/wait.log" 2>&1; do
		if ((SECONDS > end)); then
			echo "gave up after $seconds s: $what" >&2
			tail -5 "$work/wait.log" >&2
			return 1
		fi
		sleep 0.5
	done
}

# start NAME COMMAND... runs a program in the background with its output in a log.
start() {
	local name=$1
	shift
	"$@" >>"$work/logs/$name.log" 2>&1 &
	echo $! >"$work/pids/$name"
}

network() {
	mount -t tmpfs tmpfs /run # names of network namespaces, and the lock of iptables
	ip link set lo up
	ip addr add "$address/32" dev lo # not 127.0.0.1: the endpoint of the API server for pods
	sysctl -qw net.ipv4.ip_forward=1
	local n
	cp /etc/hosts "$work/hosts"
	mount --bind "$work/hosts" /etc/hosts
	for ((n = 1; n <= spare; n++)); do
		echo "10.99.$n.2 node$n" >>"$work/hosts"
		ip netns add "node$n"
		ip link add "node$n" type veth peer name eth0 netns "node$n"
		ip addr add "10.99.$n.1/24" dev "node$n"
		ip link set "node$n" up
		ip -n "node$n" link set lo up
		ip -n "node$n" addr add "10.99.$n.2/24" dev eth0
		ip -n "node$n" link set eth0 up
		ip -n "node$n" route add default via "10.99.$n.1"
		ip route add "10.244.$n.0/24" via "10.99.$n.2"
	done
}

# authority NAME makes an authority in $work/pki.
authority() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/pki/$1.key" -out "$work/pki/$1.crt" -subj "/CN=$1" -days 2 2>/dev/null
}

# certificate NAME SUBJECT [EXTENSIONS] signs a certificate with the authority $signer, or that of the cluster.
certificate() {
	local name=$1 subject=$2 extensions=${3:-extendedKeyUsage=clientAuth}
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/pki/$name.key" -out "$work/pki/$name.csr" -subj "$subject" 2>/dev/null
	openssl x509 -req -in "$work/pki/$name.csr" -CA "$work/pki/${signer:-ca}.crt" -CAkey "$work/pki/${signer:-ca}.key" -CAcreateserial -days 2 \
		-extfile <(printf '%b' "$extensions") -out "$work/pki/$name.crt" 2>/dev/null
}

# kubeconfig NAME makes the configuration of a client with its certificate.
kubeconfig() {
	local name=$1 k=("$cache/kubectl" --kubeconfig "$work/$1.kubeconfig" config)
	"${k[@]}" set-cluster c --server "https://$address:6443" --certificate-authority "$work/pki/ca.crt" --embed-certs >/dev/null
	"${k[@]}" set-credentials u --client-certificate "$work/pki/$name.crt" --client-key "$work/pki/$name.key" --embed-certs >/dev/null
	"${k[@]}" set-context x --cluster c --user u >/dev/null
	"${k[@]}" use-context x >/dev/null
}

certificates() {
	authority ca
	openssl genrsa -out "$work/pki/accounts.key" 2048 2>/dev/null
	openssl rsa -in "$work/pki/accounts.key" -pubout -out "$work/pki/accounts.pub" 2>/dev/null
	local both='extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=' name n
	certificate apiserver /CN=apiserver "${both}DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:10.96.0.1,IP:$address"
	certificate admin /O=system:masters/CN=admin
	for name in kube-controller-manager kube-scheduler kube-proxy; do certificate "$name" "/CN=system:$name"; done
	authority front-proxy-ca # by its certificates the servers of further APIs know the API server
	signer=front-proxy-ca certificate front-proxy /CN=front-proxy
	for name in admin kube-controller-manager kube-scheduler kube-proxy; do kubeconfig "$name"; done
	for ((n = 1; n <= spare; n++)); do
		certificate "node$n" "/O=system:nodes/CN=system:node:node$n" "${both}DNS:node$n,IP:10.99.$n.2"
		kubeconfig "node$n"
	done
}

# image NAME:TAG BINARY CONFIG makes an image that holds one binary at /NAME and the folder /data. Nodes import it when they start.
image() {
	local tag=$1 binary=$2 config=$3 dir
	dir=$(mktemp -d "$work/image.XXXX")
	mkdir -p "$dir/files/data"
	cp "$binary" "$dir/files/${tag%%:*}"
	chmod 755 "$dir/files/${tag%%:*}"
	tar -C "$dir/files" --owner 65532 --group 65532 -cf "$dir/layer.tar" .
	printf '{"architecture":"amd64","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
		"$config" "$(sha256sum "$dir/layer.tar" | cut -d' ' -f1)" >"$dir/config.json"
	printf '[{"Config":"config.json","RepoTags":["localhost/%s"],"Layers":["layer.tar"]}]' "$tag" >"$dir/manifest.json"
	tar -C "$dir" -cf "$work/images/${tag/:/-}.tar" config.json manifest.json layer.tar
	rm -rf "$dir"
}

# late_image NAME:TAG BINARY CONFIG makes an image for pods of node1 only, while the nodes run.
late_image() {
	image "$@"
	nsenter --target "$(<"$work/pids/node1")" --mount ctr -a /run/containerd.sock -n k8s.io image import "$work/images/${1/:/-}.tar"
	rm "$work/images/${1/:/-}.tar" # nodes that start later do not need it
}

# settings_of DOCKERFILE prints what it sets, as the configuration of an image.
settings_of() {
	jq -nc --arg user "$(sed -n 's/^USER //p' "$1")" --arg env "$(sed -n 's/^ENV //p' "$1")" --arg volume "$(sed -n 's/^VOLUME //p' "$1")" \
		--argjson entrypoint "$(sed -n 's/^ENTRYPOINT //p' "$1")" --argjson cmd "$(sed -n 's/^CMD //p' "$1")" \
		'{User: $user, Env: ($env | split(" ")), Entrypoint: $entrypoint, Cmd: $cmd, Volumes: {($volume): {}}}'
}

control_plane() {
	start etcd "$cache/etcd" --data-dir "$work/etcd" --unsafe-no-fsync --log-level warn
	start apiserver "$cache/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --secure-port 6443 --advertise-address "$address" \
		--service-cluster-ip-range "$service_range" --tls-cert-file "$work/pki/apiserver.crt" --tls-private-key-file "$work/pki/apiserver.key" \
		--client-ca-file "$work/pki/ca.crt" --service-account-issuer https://kubernetes.default.svc \
		--service-account-key-file "$work/pki/accounts.pub" --service-account-signing-key-file "$work/pki/accounts.key" \
		--kubelet-client-certificate "$work/pki/admin.crt" --kubelet-client-key "$work/pki/admin.key" --kubelet-certificate-authority "$work/pki/ca.crt" \
		--kubelet-preferred-address-types InternalIP --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
		--requestheader-client-ca-file "$work/pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy \
		--requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group --requestheader-extra-headers-prefix X-Remote-Extra- \
		--proxy-client-cert-file "$work/pki/front-proxy.crt" --proxy-client-key-file "$work/pki/front-proxy.key" --enable-aggregator-routing=true
	wait_for 120 'the API server is ready' kubectl get --raw /readyz
	start controller-manager "$cache/kube-controller-manager" --kubeconfig "$work/kube-controller-manager.kubeconfig" \
		--authentication-kubeconfig "$work/kube-controller-manager.kubeconfig" --authorization-kubeconfig "$work/kube-controller-manager.kubeconfig" \
		--service-account-private-key-file "$work/pki/accounts.key" --root-ca-file "$work/pki/ca.crt" --use-service-account-credentials --leader-elect=false
	start scheduler "$cache/kube-scheduler" --kubeconfig "$work/kube-scheduler.kubeconfig" \
		--authentication-kubeconfig "$work/kube-scheduler.kubeconfig" --authorization-kubeconfig "$work/kube-scheduler.kubeconfig" --leader-elect=false
}

# node NUMBER starts a node in namespaces of its own. When its process is killed, everything on the node ends with it.
node() {
	start "node$1" nsenter "--net=/run/netns/node$1" unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
		bash "$here/node" "$1" "$work" "$cache" "$cgroup" "$dns_address"
}

node_ready() { wait_for 180 "node$1 is ready" kubectl wait --for condition=Ready "node/node$1" --timeout 1s; }

# addons are the resolver of the cluster, and volumes on the disks of the nodes.
addons() {
	sed -e "s|@dns@|$dns_address|" "$here/coredns.yaml" | kubectl apply -f - >/dev/null
	{
		printf 'apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}\nprovisioner: kubernetes.io/no-provisioner\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true\n'
		local n i
		for ((n = 1; n <= spare; n++)); do for ((i = 0; i < node_volumes; i++)); do volume "$n" "$i"; done; done
	} | kubectl apply -f - >/dev/null
	wait_for 180 'the resolver runs' kubectl -n kube-system wait --for condition=Available deployment/coredns --timeout 1s
}

# volume NODE NUMBER makes an empty folder and prints the manifest of a volume in it.
volume() {
	local dir=$work/volumes/$1-$2
	rm -rf "$dir"
	mkdir -p "$dir"
	chown 65532:65532 "$dir"
	printf -- '---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk-%s}\nspec: {capacity: {storage: 20Gi}, accessModes: [ReadWriteOnce], storageClassName: local, persistentVolumeReclaimPolicy: Retain, local: {path: %s}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node%s]}]}]}}}\n' "$1-$2" "$dir" "$1"
}

kubectl() { timeout "$step_seconds" "$cache/kubectl" --kubeconfig "$work/admin.kubeconfig" "$@"; }
helm() { HELM_CACHE_HOME=$work/helm HELM_CONFIG_HOME=$work/helm HELM_DATA_HOME=$work/helm "$cache/helm" --kubeconfig "$work/admin.kubeconfig" "$@"; }

cluster_up() {
	local n
	network
	certificates
	image pause:1 "$cache/pause" '{"Entrypoint":["/pause"]}'
	image coredns:1 "$cache/coredns" '{"Entrypoint":["/coredns"]}'
	for ((n = 1; n <= nodes; n++)); do node "$n"; done
	control_plane
	for ((n = 1; n <= nodes; n++)); do node_ready "$n"; done
	addons
}

# remove_cgroups removes the cgroups of the nodes as soon as their processes have ended.
remove_cgroups() {
	local try folder
	for ((try = 0; try < 20; try++)); do
		for folder in /sys/fs/cgroup/"$cgroup" /sys/fs/cgroup/*/"$cgroup"; do
			if [[ -d $folder ]]; then find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
		done
		compgen -G "/sys/fs/cgroup/*/$cgroup" >/dev/null || return 0
		sleep 0.5
	done
}

# remove_devices detaches the loop devices of the run.
remove_devices() {
	local device file
	losetup --noheadings --output NAME,BACK-FILE | while read -r device file; do
		if [[ $file == "$work"/* ]]; then losetup --detach "$device"; fi
	done
}
