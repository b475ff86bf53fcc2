package client

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of CloseReceiver commands that are kept to be submitted again.
const (
	// keptClosesMax bounds the receiver ids that are kept for one partition: as many as its state machine
	// remembers of one incarnation (fsm.receiversPerIncarnationMax). The state machine forgets further
	// receivers only together with this incarnation.
	keptClosesMax = 65536
	closeBatchMax = 256         // receivers whose closing is outstanding again at the same time
	closeAgainMin = time.Second // between the starts of two batches
)

// keptCloses are the closed receivers that the state machine may still remember, because their CloseReceiver
// was refused or its outcome is unknown.
type keptCloses struct {
	receivers   []uint64
	outstanding int       // those of the last batch that have not ended
	due         time.Time // when the next batch may start
}

// closeReceiver lets the state machine forget a receiver id, and keeps the id unless the state machine has
// answered. It does not block. kept means that the id is of the outstanding batch.
func (p *Client) closeReceiver(id uint64, kept bool) {
	p.Submit(fsm.CloseReceiver{Incarnation: p.incarnation, Receiver: id}, func(result fsm.Result) {
		p.mu.Lock()
		defer p.mu.Unlock()
		closes := &p.closes
		if kept {
			closes.outstanding--
		}
		isOpen := result.Code == fsm.ServerBusy || result.Code == fsm.Timeout
		if isOpen && !p.closed && len(closes.receivers)+closes.outstanding < keptClosesMax {
			closes.receivers = append(closes.receivers, id)
		}
	})
}

// closeAgain submits the next batch of kept closes, oldest first, when the last one has ended: a partition without
// a leader has one batch in its window, and one that has a leader again gets them step by step.
func (p *Client) closeAgain(now time.Time) {
	p.mu.Lock()
	closes := &p.closes
	if len(closes.receivers) == 0 || closes.outstanding > 0 || now.Before(closes.due) {
		p.mu.Unlock()
		return
	}
	batch := closes.receivers[:min(len(closes.receivers), closeBatchMax)]
	if closes.receivers = closes.receivers[len(batch):]; len(closes.receivers) == 0 {
		closes.receivers = nil
	}
	closes.outstanding, closes.due = len(batch), now.Add(closeAgainMin)
	p.mu.Unlock()
	for _, id := range batch {
		p.closeReceiver(id, true)
	}
}
