// A module of its own: the SDK needs an older version of go-amqp than Peeklock does.
module github.com/peeklock/peeklock/test/recipes/cloudevents/events

go 1.26.0

require (
	github.com/Azure/go-amqp v0.17.0
	github.com/cloudevents/sdk-go/protocol/amqp/v2 v2.15.2
	github.com/cloudevents/sdk-go/v2 v2.15.2
)

require (
	github.com/json-iterator/go v1.1.10 // indirect
	github.com/modern-go/concurrent v0.0.0-20180228061459-e0a39a4cb421 // indirect
	github.com/modern-go/reflect2 v0.0.0-20180701023420-4b7aa43c6742 // indirect
)
