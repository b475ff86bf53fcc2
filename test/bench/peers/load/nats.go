package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsBroker speaks to JetStream. A queue is a stream with the work-queue policy and one durable consumer.
type natsBroker struct {
	members []string
	confirm bool // settlements wait for the answer
}

const (
	natsReplicas     = 3
	natsPendingMax   = 1000 // asynchronous publishes without an answer: the widest window of a row
	natsConsumerName = "worker"
	natsLockTime     = 30 * time.Second // as the locks of the other products: longer than a row
	natsPullTime     = 5 * time.Second  // of a request for messages
	natsHeartbeat    = time.Second      // two missing ones repeat the request
)

type natsConnection struct {
	broker *natsBroker
	conn   *nats.Conn
	js     jetstream.JetStream
	stops  []func()
}

func (b *natsBroker) connect(_ context.Context, member int) (connection, error) {
	return b.open(member)
}

func (b *natsBroker) open(member int) (*natsConnection, error) {
	address := b.members[member%len(b.members)]
	conn, err := nats.Connect("nats://"+address, nats.DontRandomize(), nats.IgnoreDiscoveredServers())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPendingMax))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open JetStream at %s: %w", address, err)
	}
	return &natsConnection{broker: b, conn: conn, js: js}, nil
}

func (c *natsConnection) close() {
	for _, stop := range c.stops {
		stop()
	}
	c.conn.Close()
}

// create creates the stream and the consumer of a queue.
func (c *natsConnection) create(ctx context.Context, queue string) error {
	s, err := c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: queue, Subjects: []string{queue}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: natsReplicas,
	})
	if err != nil {
		return fmt.Errorf("create stream %s: %w", queue, err)
	}
	_, err = s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: natsConsumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: natsLockTime, MaxAckPending: settlersPerQueue, Replicas: natsReplicas,
	})
	if err != nil {
		return fmt.Errorf("create consumer of %s: %w", queue, err)
	}
	return nil
}

type natsSender struct {
	js      jetstream.JetStream
	subject string
}

func (c *natsConnection) sender(_ context.Context, queue string) (sender, error) {
	return &natsSender{c.js, queue}, nil
}

func (s *natsSender) send(_ context.Context, body []byte) (answer, error) {
	future, err := s.js.PublishMsgAsync(&nats.Msg{Subject: s.subject, Data: body})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		select {
		case <-future.Ok():
			return nil
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}

type natsReceiver struct {
	messages jetstream.MessagesContext
	confirm  bool
}

func (c *natsConnection) receiver(ctx context.Context, queue string, credit int) (receiver, error) {
	consumer, err := c.js.Consumer(ctx, queue, natsConsumerName)
	if err != nil {
		return nil, fmt.Errorf("find consumer of %s: %w", queue, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(credit), jetstream.PullExpiry(natsPullTime), jetstream.PullHeartbeat(natsHeartbeat))
	if err != nil {
		return nil, fmt.Errorf("receive from %s: %w", queue, err)
	}
	c.stops = append(c.stops, messages.Stop)
	return &natsReceiver{messages, c.broker.confirm}, nil
}

type natsDelivery struct {
	message jetstream.Msg
	confirm bool
}

func (r *natsReceiver) receive(ctx context.Context) (delivery, error) {
	message, err := r.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, err
	}
	return natsDelivery{message, r.confirm}, nil
}

func (d natsDelivery) body() []byte { return d.message.Data() }

func (d natsDelivery) settle(ctx context.Context) error {
	if d.confirm {
		return d.message.DoubleAck(ctx)
	}
	return d.message.Ack()
}

// natsClient is a connection to the first of the members that the arguments name.
func natsClient(args []string) (*natsConnection, error) {
	flags := flag.NewFlagSet("nats", flag.ContinueOnError)
	members := flags.String("members", "", "addresses of the members, separated by commas")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	b := &natsBroker{members: strings.Split(*members, ",")}
	return b.open(0)
}

// createStreams creates the queues of all rows in NATS.
func createStreams(ctx context.Context, args []string) error {
	c, err := natsClient(args)
	if err != nil {
		return err
	}
	defer c.close()
	for _, queue := range queueNames() {
		if err := c.create(ctx, queue); err != nil {
			return err
		}
	}
	return nil
}

// countStreams prints the number of messages in each stream.
func countStreams(ctx context.Context, args []string) error {
	c, err := natsClient(args)
	if err != nil {
		return err
	}
	defer c.close()
	list := c.js.ListStreams(ctx)
	for s := range list.Info() {
		fmt.Println(s.Config.Name, s.State.Msgs)
	}
	return list.Err()
}
