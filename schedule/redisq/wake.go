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
	// pingAfter is how long a subscription may be silent before it is asked whether it still stands; where no
	// answer comes within the same time it is made anew.
	pingAfter = 5 * time.Second
	// resubscribeAfter is the pause after a subscription broke.
	resubscribeAfter = 100 * time.Millisecond
)

// Hints carries the number of a shard that has something to do earlier than was announced, and of every shard
// whenever the subscription was made anew, because what was said meanwhile is lost. Hints that nobody takes
// are dropped when the channel is full.
func (ix *Index) Hints() <-chan int { return ix.hints }

// Run keeps the subscription, and watches over the servers and the shards (see Warnings), until the context
// ends, and then returns nil.
func (ix *Index) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { ix.keepWatch(ctx) })
	defer watching.Wait()
	broken := false
	for {
		err := ix.listen(ctx, &broken)
		if ctx.Err() != nil {
			return nil
		}
		if !broken {
			broken = true
			ix.log.WarnContext(ctx, "hints of the index are interrupted; claims are late by at most the "+
				"poll interval", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(resubscribeAfter):
		}
	}
}

// listen subscribes once, and returns when the subscription breaks or the context ends.
func (ix *Index) listen(ctx context.Context, broken *bool) (err error) {
	sub := ix.client.Subscribe(ctx, ix.channel)
	// A read does not end with the context by itself; closing the connection ends it.
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
				ix.log.InfoContext(ctx, "hints of the index are back")
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
	default: // the claimers are behind, and will ask anyway
	}
}
