package abuse

import "github.com/peeklock/peeklock/test/harness"

// attacks is the table of all attacks, by theme.
func attacks() []attack {
	return []attack{
		// connection_test.go
		{name: "half open", always: true, limit: "10 s from accept to open; 5,000 connections of an address", run: halfOpen},
		{name: "half handshakes", limit: "10 s from accept to open; 4 KiB of a SASL frame", run: halfHandshakes},
		{name: "TLS slow lorises", limit: "10 s from accept to the end of the handshake", run: tlsLorises},
		{name: "TLS hellos", limit: "the cost of a handshake", run: tlsHellos},
		{name: "HTTP slow lorises", limit: "a deadline for the header of a request", run: httpLorises},
		{name: "connections come and go", limit: "goroutines and buffers of a connection end with it", run: churn},
		{name: "tiny idle-time-outs", limit: "an idle-time-out under a second is refused", run: tinyIdle},
		// websocket_test.go
		{name: "WebSocket slow upgrades", limit: "10 s from accept to open; 16 KiB of the request for an upgrade", run: slowUpgrades},
		{name: "WebSocket endless fragments", limit: "10 s from accept to open; 2 KiB per second that carry nothing", run: endlessFragments},
		// session_test.go
		{name: "session flood", always: true, limit: "the work that sessions cost; 5,000 sessions of a connection; 64 before a token", run: sessionFlood},
		{name: "detach storm", limit: "10,000 links of a connection; the work that attaches cost; nothing is read above 4 MiB of answers", run: detachStorm},
		{name: "flow storm", limit: "the work that frames cost; nothing is read above 4 MiB of answers", run: flowStorm},
		{name: "numbers wrap around", limit: "serial numbers (RFC 1982)", prepare: createQueue(wrapQueue), run: wrapAround, clean: deleteQueue(wrapQueue)},
		// request_test.go
		{name: "put-token flood", always: true, limit: "the work that requests cost; 100 requests in progress on a link; 256 responses that wait; 256 KiB before a token", run: putTokens},
		{name: "management flood", limit: "the work that requests cost; 100 requests in progress on a link; nothing is read above 4 MiB of answers", prepare: filledQueue(unreadQueue, unreadBytes), run: manageFlood, clean: deleteQueue(unreadQueue)},
		// share_test.go
		{name: "settlements with properties", limit: "the work that properties cost, once for each message; the share of a key of settlements in progress", prepare: createQueue(idleQueue), run: settleWithProperties, clean: deleteQueue(idleQueue)},
		{name: "one token thousands of times", limit: "repeated tokens count once", prepare: createQueue(idleQueue), run: settleOneToken, clean: deleteQueue(idleQueue)},
		{name: "dispositions over a range", promised: promisedWait, limit: "the work that properties cost, once for each message; the share of a key of settlements in progress", prepare: filledQueue(rangeQueue, 1000), run: settleRange, clean: deleteQueue(rangeQueue)},
		{name: "idle receivers", limit: "the places of receivers that wait, as many of one entity as are free", prepare: createQueue(idleQueue), run: waitIdle, clean: deleteQueue(idleQueue)},
		{name: "metrics at full rate", sinkAnswersSooner: true, promised: promisedWait, limit: "one answer in a second; the work of an address without a key", run: scrapeAtFullRate},
		// read_test.go
		{name: "long answers never read", limit: "the work that answers cost; the share of a key of responses", prepare: readable, run: readMuch, clean: deleteOwn("queues/"+sessionQueue, "queues/"+unreadQueue, "topics/"+ruleTopic)},
		{name: "session states", promised: promisedWait, limit: "the share of a namespace of memory and disk", prepare: createOwn("queues/"+sessionQueue, harness.Fields{"requiresSession": true, "lockDuration": "5m"}), run: storeStates, clean: deleteQueue(sessionQueue)},
		// load_test.go
		{name: "small messages at full rate", promised: promisedWait, limit: "the turns of namespaces in log entries; 1,000 sends of a link", prepare: createQueue(loadQueue), run: sendSmall, clean: deleteQueue(loadQueue)},
		{name: "large messages at full rate", promised: promisedWait, limit: "the turns of namespaces in log entries; the memory budget", prepare: createQueue(loadQueue), run: sendLarge, clean: deleteQueue(loadQueue)},
		{name: "messages that expire at once", promised: promisedWait, limit: "messages of one pulse; the turns of namespaces in log entries", prepare: createOwn("queues/"+returnQueue, harness.Fields{"deadLetteringOnMessageExpiration": true}), run: sendExpiring, clean: deleteQueue(returnQueue)},
		{name: "schedules and cancellations", promised: promisedWait, limit: "the work that messages of a request cost", prepare: createQueue(loadQueue), run: scheduleFar, clean: deleteQueue(loadQueue)},
		{name: "messages abandoned forever", promised: promisedWait, limit: "the turns of namespaces in log entries", prepare: returnable, run: abandonForever, clean: deleteQueue(returnQueue)},
		{name: "selectors that select nothing", promised: promisedWait, limit: "the work that selectors cost", prepare: filledQueue(unsettledQueue, unsettledBytes), run: selectMuch, clean: deleteQueue(unsettledQueue)},
		{name: "subscriptions that come and go", limit: "the work that subscriptions of links cost; 64 of a connection", prepare: createOwn("topics/"+churnTopic, nil), run: consumeTopics, clean: deleteTopic(churnTopic)},
		{name: "entities that come and go", limit: "the work that requests over HTTP cost", run: churnEntities, clean: deleteChurned},
		{name: "requests of web pages", sinkAnswersSooner: true, promised: promisedWait, limit: "requests without a key are answered with little; 512 connections", run: askFromPages},
		{name: "ports of members", limit: "64 handshakes of unknown addresses, 1 s to the first byte; the parser of gossip", run: gossipMuch},
		// namespace_test.go
		{name: "lists with long keys", limit: "the share of a key of answers that are built or not read; the work that lists cost", prepare: keyedQueues, run: listKeys, clean: deleteOwn(keyedNames()...)},
		{name: "one-byte messages", promised: promisedWait, limit: "the share of a namespace of the memory for messages", prepare: createQueue(tinyQueue), run: sendTiny, clean: deleteQueue(tinyQueue)},
		{name: "ids of duplicate detection", promised: promisedWait, limit: "the share of a namespace of the memory for messages", prepare: createOwn("queues/"+tinyQueue, harness.Fields{"requiresDuplicateDetection": true, "defaultMessageTimeToLive": "1s"}), run: sendTiny, clean: deleteQueue(tinyQueue)},
		{name: "copies by actions", promised: promisedWait, limit: "the share of a namespace of the memory for messages", prepare: copyingTopic, run: sendCopied, clean: deleteTopic(copyTopic)},
		// transfer_test.go
		{name: "endless transfers", always: true, limit: "32 MiB of unfinished deliveries of a connection", prepare: createQueue(endlessQueue), run: endlessTransfers, clean: deleteQueue(endlessQueue)},
		{name: "endless transactions", limit: "32 MiB of transactions of a connection, 2 min of each", prepare: createQueue(endlessQueue), run: endlessTransactions, clean: deleteQueue(endlessQueue)},
		{name: "empty declares", always: true, limit: "1,000 transactions of a connection, 2 min of each; the memory budget; above that a declare waits", run: emptyDeclares},
		{name: "malformed frames", limit: "depth and counts of values; the first error closes a connection", run: malformedFrames},
		// receiver_test.go
		{name: "receivers that never settle", limit: "65,536 unsettled deliveries of a session; locks expire", prepare: filledQueue(unsettledQueue, unsettledBytes), run: receiveWithoutSettling, clean: deleteQueue(unsettledQueue)},
		{name: "receivers that never read", limit: "1 MiB to a peer; 30 s for a write", prepare: filledQueue(unreadQueue, unreadBytes), run: receiveWithoutReading, clean: deleteQueue(unreadQueue)},
		// filter_test.go
		{name: "worst filters", promised: promisedWait, limit: "steps of a rule and of an entry", prepare: worstFilters, run: sendLong, clean: deleteTopic(filterTopic)},
		{name: "wide IN lists", promised: promisedWait, limit: "1,024 characters of a filter; 128 parameters", prepare: wideLists, run: sendLong, clean: deleteTopic(filterTopic)},
		{name: "wide correlation filters", promised: promisedWait, limit: "64 conditions, 16 KiB", prepare: wideCorrelation, run: sendLong, clean: deleteTopic(filterTopic)},
		// document_test.go
		{name: "XML bombs", limit: "bytes and depth of a document; no entities", run: xmlBombs},
		{name: "JSON bombs", limit: "bytes and depth of a document", run: jsonBombs},
		// key_test.go
		{name: "guessed keys", always: true, sinkAnswersSooner: true, promised: promisedWait, limit: "failed sign-ins of an address and a key are answered late", run: guessKeys},
		{name: "guessed tokens", sinkAnswersSooner: true, promised: promisedWait, limit: "failed sign-ins of an address and a key are answered late", run: guessTokens},
	}
}
