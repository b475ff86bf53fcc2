package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// EnvironmentHelp describes, for the help of commands, the variables that Open reads.
const EnvironmentHelp = `AWS_ENDPOINT_URL_S3, or AWS_ENDPOINT_URL, is the URL of the store (default: AWS). With http:// the transfer is not encrypted.
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are the key; the default is the key of AWS_PROFILE in the shared
credentials file, or that of the role of the machine, task or pod. AWS_REGION is the region. SSL_CERT_FILE names further
certificates to trust.`

const (
	endpointDefault   = "https://s3.amazonaws.com"
	regionDefault     = "us-east-1" // the region that stores other than AWS expect
	roleAnswerTimeMax = 5 * time.Second
)

// newBucket creates the client of an object store from the environment.
func newBucket(ctx context.Context, name, prefix string, getenv func(string) string) (*bucket, error) {
	if err := s3utils.CheckValidBucketNameStrict(name); err != nil {
		return nil, fmt.Errorf("%q is not the name of a bucket: %w", name, err)
	}
	given := cmp.Or(getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL"))
	endpoint, err := url.Parse(cmp.Or(given, endpointDefault))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" || strings.Trim(endpoint.Path, "/") != "" {
		return nil, errors.New("AWS_ENDPOINT_URL_S3 is not the URL of an object store: write it like https://store.example:9000")
	}
	keys := credentialChain(getenv, given == "")
	if found, err := keys.GetWithContext(credContext(ctx)); err != nil || found.SignerType.IsAnonymous() {
		return nil, errors.Join(errors.New("no key for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), err)
	}
	region := cmp.Or(getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION"))
	if region == "" && given != "" {
		region = regionDefault // otherwise the library requests it, which needs an additional permission
	}
	client, err := minio.New(endpoint.Host, &minio.Options{Creds: keys, Secure: endpoint.Scheme == "https", Region: region})
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	client.SetAppInfo("peeklock", "backup")
	return &bucket{
		client: client, name: name, prefix: prefix, part: partBytes, bytesMax: ObjectBytesMax,
		withoutChecksums: s3utils.IsGoogleEndpoint(*endpoint),
	}, nil
}

// credentialChain returns the chain of the library: the environment, the shared files, which the library finds and
// reads itself, and the role. The address at which AWS tells a machine its role is requested only if the machine
// may be in AWS.
func credentialChain(getenv func(string) string, amazon bool) *credentials.Credentials {
	chain := []credentials.Provider{
		&credentials.Static{Value: credentials.Value{
			AccessKeyID: getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: getenv("AWS_SECRET_ACCESS_KEY"),
			SessionToken: getenv("AWS_SESSION_TOKEN"), SignerType: credentials.SignatureV4,
		}},
		&credentials.FileAWSCredentials{},
	}
	told := cmp.Or(getenv("AWS_WEB_IDENTITY_TOKEN_FILE"), getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
	if told != "" || amazon && !strings.EqualFold(getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		chain = append(chain, &credentials.IAM{Client: &http.Client{Timeout: roleAnswerTimeMax}})
	}
	return credentials.NewChainCredentials(chain)
}

// credContext returns a context in which the request for a role ends with ctx.
func credContext(ctx context.Context) *credentials.CredContext {
	return &credentials.CredContext{Client: &http.Client{Timeout: roleAnswerTimeMax}, Context: ctx}
}
