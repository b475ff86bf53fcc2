//go:build ignore

// A test in the package of KEDA's scalers: build copies the files of the Service Bus scaler and of the metrics-api scaler,
// unmodified, from KEDA's module beside it, because the whole package imports the clients of a hundred products. The triggers
// are those of deploy/examples/keda.yaml.
package scalers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"sigs.k8s.io/yaml"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	kedautil "github.com/kedacore/keda/v2/pkg/util"
)

// The constants of files that are not here.
const (
	externalMetricType = "External"
	sumOperation       = "sum"
	maxOperation       = "max"
	avgOperation       = "avg"
)

//go:embed keda.yaml
var examples string

const (
	exampleHost = "broker-peeklock.messaging.svc"
	timeMax     = 60 * time.Second // for one test, and for one request
	keyName     = "RootManageSharedAccessKey"
)

// target is the cluster: PEEKLOCK_HOST and the key PEEKLOCK_KEY. KEDA trusts the authorities in /custom/ca, or in the folder
// PEEKLOCK_CA_DIR.
type target struct{ host, key, connection string }

func open(t *testing.T) target {
	t.Helper()
	host, key := os.Getenv("PEEKLOCK_HOST"), os.Getenv("PEEKLOCK_KEY")
	if dir := os.Getenv("PEEKLOCK_CA_DIR"); dir != "" {
		kedautil.SetCACertDirs([]string{dir})
	}
	return target{host, key, fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s", host, keyName, key)}
}

// token signs a token for the control API as the example describes.
func (c target) token() string {
	resource, end := url.QueryEscape("https://"+c.host+"/"), fmt.Sprint(time.Now().Add(time.Hour).Unix())
	sum := hmac.New(sha256.New, []byte(c.key))
	sum.Write([]byte(resource + "\n" + end))
	return "SharedAccessSignature sr=" + resource + "&sig=" + url.QueryEscape(base64.StdEncoding.EncodeToString(sum.Sum(nil))) + "&se=" + end + "&skn=" + keyName
}

// fill creates the entities of the examples and sends messages to them: orders has 3 and a dead letter, audit 2, the regions 4 and 1.
func (c target) fill(ctx context.Context, t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	options := &admin.ClientOptions{ClientOptions: policy.ClientOptions{Transport: kedautil.CreateHTTPClient(timeMax, false)}}
	entities, err := admin.NewClientFromConnectionString(c.connection, options)
	must(err)
	for _, queue := range []string{"orders", "region-eu", "region-us", "region-2"} {
		_, err := entities.CreateQueue(ctx, queue, nil)
		must(err)
	}
	_, err = entities.CreateTopic(ctx, "events", nil)
	must(err)
	_, err = entities.CreateSubscription(ctx, "events", "audit", nil)
	must(err)
	client, err := azservicebus.NewClientFromConnectionString(c.connection, &azservicebus.ClientOptions{TLSConfig: kedautil.CreateTLSClientConfig(false)})
	must(err)
	defer client.Close(ctx)
	for entity, messages := range map[string]int{"orders": 4, "events": 2, "region-eu": 4, "region-us": 1, "region-2": 9} {
		sender, err := client.NewSender(entity, nil)
		must(err)
		for range messages {
			must(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("x")}, nil))
		}
	}
	receiver, err := client.NewReceiverForQueue("orders", nil)
	must(err)
	got, err := receiver.ReceiveMessages(ctx, 1, nil)
	must(err)
	must(receiver.DeadLetterMessage(ctx, got[0], nil))
}

// triggers are those of the examples by the name of their object.
func triggers(t *testing.T, host string) map[string][]kedav1alpha1.ScaleTriggers {
	t.Helper()
	found := map[string][]kedav1alpha1.ScaleTriggers{}
	for _, document := range strings.Split(strings.ReplaceAll(examples, exampleHost, host), "\n---\n") {
		var object kedav1alpha1.ScaledObject
		if !strings.Contains(document, "kind: ScaledObject") {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		found[object.Name] = object.Spec.Triggers
	}
	return found
}

func TestScalersOfKEDAMeasureTheExamples(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeMax)
	defer cancel()
	c := open(t)
	c.fill(ctx, t)
	measured := 0
	for name, list := range triggers(t, c.host) {
		for i, trigger := range list {
			config := &scalersconfig.ScalerConfig{
				ScalableObjectName: name, TriggerType: trigger.Type, TriggerIndex: i, GlobalHTTPTimeout: timeMax, MetricType: trigger.MetricType,
				TriggerMetadata: trigger.Metadata, AuthParams: map[string]string{"connection": c.connection, "apiKey": c.token()},
			}
			var scaler Scaler
			var err error
			switch trigger.Type {
			case "azure-servicebus":
				scaler, err = NewAzureServiceBusScaler(config)
			case "metrics-api":
				scaler, err = NewMetricsAPIScaler(config, nil)
			default:
				continue // prometheus does not ask the cluster
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			metric := scaler.GetMetricSpecForScaling(ctx)[0].External.Metric.Name
			values, active, err := scaler.GetMetricsAndActivity(ctx, metric)
			want := map[string]int64{"orders-worker": 3, "audit-worker": 2, "region-worker": 5, "dead-letter-worker": 1}[name]
			if err != nil || len(values) != 1 || values[0].Value.Value() != want || !active {
				t.Errorf("%s: %v, active %t, %v; want %d", name, values, active, err, want)
			}
			measured++
		}
	}
	if measured != 4 {
		t.Errorf("%d triggers were measured", measured)
	}
}

// What a trigger must not take for an empty queue is an error: an entity that does not exist, and a key that is not valid.
func TestScalersOfKEDAReportErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeMax)
	defer cancel()
	c := open(t)
	for name, config := range map[string]*scalersconfig.ScalerConfig{
		"no such queue": {TriggerMetadata: map[string]string{"queueName": "missing"}, AuthParams: map[string]string{"connection": c.connection}},
		"wrong key":     {TriggerMetadata: map[string]string{"queueName": "orders"}, AuthParams: map[string]string{"connection": c.connection[:len(c.connection)-4] + "AAA="}},
	} {
		config.GlobalHTTPTimeout = timeMax
		scaler, err := NewAzureServiceBusScaler(config)
		if err != nil {
			t.Fatal(err)
		}
		if values, active, err := scaler.GetMetricsAndActivity(ctx, "m"); err == nil {
			t.Errorf("%s: %v, active %t", name, values, active)
		}
	}
}
