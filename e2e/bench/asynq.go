package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	asynqType = "callback"
	// asynqProducers put in callbacks at the same time: asynq has no call for several at once.
	asynqProducers = 16
)

// asynqQueue is asynq as its producer sees it.
type asynqQueue struct {
	url       string
	client    *asynq.Client
	inspector *asynq.Inspector
}

func newAsynq(r *run) queue {
	url := testserver.NewRedis(r).URL
	at, err := asynq.ParseRedisURI(url)
	r.check("asynq", err)
	q := asynqQueue{url, asynq.NewClient(at), asynq.NewInspector(at)}
	r.Cleanup(func() {
		q.client.Close()
		q.inspector.Close()
	})
	return q
}

func (q asynqQueue) worker() (role, store string) { return roleAsynq, q.url }

func (q asynqQueue) fill(ctx context.Context, n int) error {
	return parallel(asynqProducers, n, func() func(int) error {
		return func(i int) error { return q.put(ctx, i) }
	})
}

func (q asynqQueue) put(ctx context.Context, n int) error {
	payload := newPayload()
	setNumber(payload, n)
	_, err := q.client.EnqueueContext(ctx, asynq.NewTask(asynqType, payload))
	return err
}

func (q asynqQueue) done(_ context.Context, n int) error {
	info, err := q.inspector.GetQueueInfo("default")
	if err != nil {
		return err
	}
	if info.Size != 0 || info.ProcessedTotal != n || info.FailedTotal != 0 {
		return fmt.Errorf("%d left, %d worked on, %d of them failed; want %d worked on",
			info.Size, info.ProcessedTotal, info.FailedTotal, n)
	}
	return nil
}

// workAsynq is its worker's process. Unless told otherwise, an idle asynq asks for work once a second.
func workAsynq(words conversation, cfg processConfig) error {
	parsed, err := asynq.ParseRedisURI(cfg.Store)
	if err != nil {
		return err
	}
	at := parsed.(asynq.RedisClientOpt)
	at.PoolSize = cfg.Concurrency
	return work(words, cfg, func(s *sender) (func() error, error) {
		server := asynq.NewServer(at, asynq.Config{
			Concurrency: cfg.Concurrency, TaskCheckInterval: 5 * time.Millisecond,
			DelayedTaskCheckInterval: time.Second, LogLevel: asynq.ErrorLevel,
		})
		err := server.Start(asynq.HandlerFunc(func(ctx context.Context, callback *asynq.Task) error {
			n, ok := numberOf(callback.Payload())
			if !ok {
				return fmt.Errorf("payload %.20q", callback.Payload())
			}
			return s.send(ctx, n, callback.Payload())
		}))
		return func() error { server.Shutdown(); return nil }, err
	})
}
