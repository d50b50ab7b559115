package redisq

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingAfter is how long a subscription may be silent before a PING tests it. Without an answer in the
	// same time again, Run subscribes again.
	pingAfter = 5 * time.Second
	// resubscribeAfter is the pause after a subscription broke.
	resubscribeAfter = 100 * time.Millisecond
)

// Hints carries the number of a shard that has an event earlier than announced, and all numbers after each
// subscription, because hints may have been lost before it. If the channel is full, hints are dropped. A hint
// only saves waiting time: claimers poll.
func (ix *Index) Hints() <-chan int { return ix.hints }

// Run keeps the subscription and watches the servers and the shards (see Warnings) until the context ends.
// Then it returns nil.
func (ix *Index) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { ix.watchIndex(ctx) })
	defer watching.Wait()
	broken := false
	for {
		err := ix.listen(ctx, &broken)
		if ctx.Err() != nil {
			return nil
		}
		if !broken {
			broken = true
			ix.log.WarnContext(ctx, "index hints interrupted, claims are late by up to the poll interval",
				"error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(resubscribeAfter):
		}
	}
}

// listen subscribes once. It returns when the subscription breaks or the context ends.
func (ix *Index) listen(ctx context.Context, broken *bool) (err error) {
	sub := ix.client.Subscribe(ctx, ix.channel)
	// A read does not end with the context. Closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer func() {
		if stop() {
			err = errors.Join(err, sub.Close())
		}
	}()
	asked := false
	for {
		message, err := sub.ReceiveTimeout(ctx, pingAfter)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		default:
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if *broken {
				*broken = false
				ix.log.InfoContext(ctx, "index hints restored")
			}
			ix.checkLate(ctx)
			for shard := range ix.keys {
				ix.hint(shard)
			}
		case *redis.Message:
			if shard, err := strconv.Atoi(m.Payload); err == nil && shard >= 0 && shard < len(ix.keys) {
				ix.hint(shard)
			}
		}
	}
}

func (ix *Index) hint(shard int) {
	select {
	case ix.hints <- shard:
	default: // the claimers are behind, and poll anyway
	}
}
