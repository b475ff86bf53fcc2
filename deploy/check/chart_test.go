package check

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	chartDir = "../helm/peeklock"
	release  = "broker"
	space    = "messaging"
)

// cases are the sets of values, by the name of their files in testdata.
func cases(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in testdata: %v", err)
	}
	return files
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func values(t *testing.T, file string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// render is what `helm template` gives, by the name of the template.
func render(t *testing.T, given map[string]any) (map[string]string, error) {
	t.Helper()
	return renderAs(t, given, chartutil.ReleaseOptions{Name: release, Namespace: space, Revision: 1, IsInstall: true})
}

func renderAs(t *testing.T, given map[string]any, options chartutil.ReleaseOptions) (map[string]string, error) {
	t.Helper()
	c := load(t)
	all, err := chartutil.ToRenderValues(c, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

func TestChartIsLinted(t *testing.T) {
	for _, file := range cases(t) {
		result := lint.AllWithKubeVersion(chartDir, values(t, file), space, nil)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", filepath.Base(file), m.Error())
			}
		}
	}
}

func TestChartIsAsWritten(t *testing.T) {
	for _, file := range cases(t) {
		files, err := render(t, values(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		names := make([]string, 0, len(files))
		for name, text := range files {
			if strings.TrimSpace(text) != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		var all bytes.Buffer
		for _, name := range names {
			all.WriteString("# " + name + "\n" + strings.TrimSpace(files[name]) + "\n")
		}
		golden := strings.TrimSuffix(file, ".values.yaml") + ".golden.yaml"
		if *update {
			if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, all.Bytes()) {
			t.Errorf("%s is not what the chart gives (go test -update, and read the diff)", golden)
		}
	}
}

// types are the kinds that the chart makes; those of others (ServiceMonitor) have none here.
func types() map[string]func() any {
	return map[string]func() any{
		"apps/v1 StatefulSet":                      func() any { return new(appsv1.StatefulSet) },
		"batch/v1 Job":                             func() any { return new(batchv1.Job) },
		"batch/v1 CronJob":                         func() any { return new(batchv1.CronJob) },
		"v1 ConfigMap":                             func() any { return new(corev1.ConfigMap) },
		"v1 Pod":                                   func() any { return new(corev1.Pod) },
		"v1 PersistentVolumeClaim":                 func() any { return new(corev1.PersistentVolumeClaim) },
		"v1 Service":                               func() any { return new(corev1.Service) },
		"v1 Secret":                                func() any { return new(corev1.Secret) },
		"v1 ServiceAccount":                        func() any { return new(corev1.ServiceAccount) },
		"policy/v1 PodDisruptionBudget":            func() any { return new(policyv1.PodDisruptionBudget) },
		"networking.k8s.io/v1 NetworkPolicy":       func() any { return new(networkingv1.NetworkPolicy) },
		"rbac.authorization.k8s.io/v1 Role":        func() any { return new(rbacv1.Role) },
		"rbac.authorization.k8s.io/v1 RoleBinding": func() any { return new(rbacv1.RoleBinding) },
	}
}

// foreign are kinds that others define; they are only read as YAML.
var foreign = []string{
	"monitoring.coreos.com/v1 ServiceMonitor", "monitoring.coreos.com/v1 PrometheusRule", "keda.sh/v1alpha1 TriggerAuthentication", "keda.sh/v1alpha1 ScaledObject",
	"cert-manager.io/v1 Issuer", "cert-manager.io/v1 Certificate",
}

func decode(t *testing.T, where, text string) (kinds []string) {
	t.Helper()
	for _, document := range strings.Split(text, "\n---") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if head.Kind == "" {
			continue
		}
		kind := head.APIVersion + " " + head.Kind
		kinds = append(kinds, kind)
		make, known := types()[kind]
		if !known {
			if !slices.Contains(foreign, kind) {
				t.Errorf("%s: unknown kind %s", where, kind)
			}
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), make()); err != nil {
			t.Errorf("%s: %s: %v", where, kind, err)
		}
	}
	return kinds
}

func TestManifestsAreOfKubernetes(t *testing.T) {
	seen := make(map[string]bool)
	for _, file := range cases(t) {
		files, err := render(t, values(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for name, text := range files {
			if strings.HasSuffix(name, ".yaml") {
				for _, kind := range decode(t, filepath.Base(file)+", "+name, text) {
					seen[kind] = true
				}
			}
		}
	}
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range examples {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range decode(t, file, string(text)) {
			seen[kind] = true
		}
	}
	for kind := range types() {
		if !seen[kind] {
			t.Errorf("no set of values and no example makes a %s", kind)
		}
	}
}

// The schema of the values has that of declared entities: Helm refuses a misspelt setting.
func TestChartKnowsTheSettingsOfEntities(t *testing.T) {
	const file = chartDir + "/values.schema.json"
	var document map[string]any
	if err := json.Unmarshal(bytes.ReplaceAll(read(t, "../../docs/entities.schema.json"), []byte("#/$defs/"), []byte("#/definitions/")), &document); err != nil {
		t.Fatal(err)
	}
	definitions := document["$defs"].(map[string]any)
	for _, of := range []string{"$defs", "$id", "$schema", "title"} {
		delete(document, of)
	}
	definitions["Document"] = document
	encoded, err := json.Marshal(definitions)
	if err != nil {
		t.Fatal(err)
	}
	text := string(read(t, file))
	before, _, found := strings.Cut(text, "\n  \"definitions\": ")
	if !found {
		t.Fatalf("%s has no definitions", file)
	}
	want := before + "\n  \"definitions\": " + string(encoded) + "\n}\n"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Errorf("%s has other definitions than docs/entities.schema.json (go test -update)", file)
	}
}

// What cannot work is refused before anything is installed, with words.
func TestValuesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		want   string
	}{
		"not encrypted": {map[string]any{}, "allowRemotePlain"},
		"founders":      {map[string]any{"allowRemotePlain": true, "replicas": 1}, "founders"},
		"each alone":    {map[string]any{"allowRemotePlain": true, "founders": 1}, "cluster of its own"},
		"unknown":       {map[string]any{"allowRemotePlain": true, "replica": 3}, "replica"},
		"no issuer":     {map[string]any{"certManager": map[string]any{"enabled": true}, "peers": map[string]any{"gossipSecret": "g"}}, "issuerRef"},
		"wrong type":    {map[string]any{"allowRemotePlain": true, "partitions": "many"}, "partitions"},
		"no entities":   {map[string]any{"allowRemotePlain": true, "entities": map[string]any{"declared": map[string]any{"Queues": []any{}}}}, "Queues"},
		"misspelt":      {map[string]any{"allowRemotePlain": true, "entities": map[string]any{"declared": map[string]any{"queues": []any{map[string]any{"name": "a", "lockDuraton": "1m"}}}}}, "lockDuraton"},
		"one target":    {map[string]any{"allowRemotePlain": true, "backup": map[string]any{"schedule": "@daily", "to": "s3://backups/broker"}}, "{time}"},
		"no volume":     {map[string]any{"allowRemotePlain": true, "backup": map[string]any{"schedule": "@daily", "to": "/backups/{time}"}}, "existingClaim"},
	} {
		_, err := render(t, c.values)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %q", name, err, c.want)
		}
	}
}

// An existing cluster may have fewer members than had bootstrapped it.
func TestStandingClusterMayBecomeSmallerThanItsFounders(t *testing.T) {
	small := map[string]any{"allowRemotePlain": true, "replicas": 2}
	if _, err := renderAs(t, small, chartutil.ReleaseOptions{Name: release, Namespace: space, Revision: 2, IsUpgrade: true}); err != nil {
		t.Error(err)
	}
	if _, err := render(t, small); err == nil {
		t.Error("installed with more founders than replicas")
	}
}

// restricted fails the test unless the pod security standard "restricted" admits the pod.
func restricted(t *testing.T, where string, pod corev1.PodSpec) {
	t.Helper()
	c := pod.SecurityContext
	if c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: %+v", where, c)
	}
	of := pod.Containers[0].SecurityContext // the others are those of the user
	if of == nil || of.AllowPrivilegeEscalation == nil || *of.AllowPrivilegeEscalation || of.ReadOnlyRootFilesystem == nil || !*of.ReadOnlyRootFilesystem ||
		of.Capabilities == nil || !slices.Equal(of.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s: %+v", where, of)
	}
}

// pods are the templates of the pods that a set of values makes, without those of the members.
func pods(t *testing.T, files map[string]string) (list []corev1.PodTemplateSpec) {
	t.Helper()
	for _, text := range files {
		for _, document := range strings.Split(text, "\n---") {
			var head struct{ Kind string }
			if yaml.Unmarshal([]byte(document), &head) != nil {
				continue // the notes
			}
			var pod corev1.Pod
			var job batchv1.Job
			var cron batchv1.CronJob
			into := map[string]any{"Pod": &pod, "Job": &job, "CronJob": &cron}[head.Kind]
			if into == nil {
				continue
			}
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Fatal(err)
			}
			for _, template := range []corev1.PodTemplateSpec{{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, job.Spec.Template, cron.Spec.JobTemplate.Spec.Template} {
				if len(template.Spec.Containers) > 0 {
					list = append(list, template)
				}
			}
		}
	}
	return list
}

// The pods that clients reach are members only: the other pods of the chart do not have their labels. All pods are restricted.
func TestOnlyMembersAreSelected(t *testing.T) {
	var names []string
	for _, file := range cases(t) {
		files, err := render(t, values(t, file))
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal([]byte(files["peeklock/templates/statefulset.yaml"]), &set); err != nil {
			t.Fatal(err)
		}
		members := set.Spec.Template.Labels["app.kubernetes.io/name"]
		restricted(t, file, set.Spec.Template.Spec)
		for _, pod := range pods(t, files) {
			name := pod.Labels["app.kubernetes.io/name"]
			names = append(names, name)
			if members != "peeklock" || name == "" || name == members {
				t.Errorf("%s: a client is called %q like the members %q", file, name, members)
			}
			restricted(t, file+", "+name, pod.Spec)
		}
	}
	for _, name := range []string{"peeklock-test", "peeklock-entities", "peeklock-backup"} {
		if !slices.Contains(names, name) {
			t.Errorf("no set of values makes a pod %s", name)
		}
	}
}

// A pod has the token of a service account only where a job writes the connection strings, and that account may patch this one
// secret, and do nothing else.
func TestOnlyTheJobMayWriteTheConnectionStrings(t *testing.T) {
	tokens := 0
	for _, file := range cases(t) {
		files, err := render(t, values(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods(t, files) {
			if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
				tokens++
				if args := pod.Spec.Containers[0].Args; !slices.Contains(args, "--kubernetes-secret") || pod.Spec.ServiceAccountName != "broker-peeklock-entities" {
					t.Errorf("%s: %q has the token of %s", file, args, pod.Spec.ServiceAccountName)
				}
			}
		}
		for _, document := range strings.Split(files["peeklock/templates/entities.yaml"], "\n---") {
			var role rbacv1.Role
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			if role.Kind != "Role" {
				continue
			}
			want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"broker-peeklock-connections"}, Verbs: []string{"patch"}}}
			if !reflect.DeepEqual(role.Rules, want) {
				t.Errorf("%s: got %+v, want %+v", file, role.Rules, want)
			}
		}
	}
	if tokens != 1 {
		t.Errorf("%d pods have a token, want the job alone", tokens)
	}
}

// The alert on drift is of kube-state-metrics: it fires while the last run that was due has not succeeded.
func TestDriftHasAnAlert(t *testing.T) {
	files, err := render(t, values(t, "testdata/jobs.values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Spec rules }
	if err := yaml.Unmarshal([]byte(files["peeklock/templates/rules.yaml"]), &object); err != nil {
		t.Fatal(err)
	}
	last := object.Spec.Groups[len(object.Spec.Groups)-1]
	if len(object.Spec.Groups) < 3 || last.Name != "peeklock-entities" || len(last.Rules) != 1 {
		t.Fatalf("got %d groups, the last %+v", len(object.Spec.Groups), last)
	}
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(last.Rules[0].Expr)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			names[s.Name] = true
			if !strings.Contains(s.String(), `cronjob="broker-peeklock-drift"`) || !strings.Contains(s.String(), `namespace="messaging"`) {
				t.Errorf("%s is not about the CronJob", s)
			}
		}
		return nil
	})
	if len(names) != 2 || !strings.Contains(files["peeklock/templates/entities.yaml"], "name: broker-peeklock-drift") {
		t.Errorf("got metrics %v", names)
	}
}
