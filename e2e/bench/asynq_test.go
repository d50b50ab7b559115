package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	asynqType = "callback"
	// asynqProducers put in at the same time: asynq has no call for several at once.
	asynqProducers = 16
)

// asynqQueue is asynq as its producer sees it.
type asynqQueue struct {
	client    *asynq.Client
	inspector *asynq.Inspector
}

func measureAsynq(t *testing.T, r *round) figures {
	url := testserver.NewRedis(t).URL
	at, err := asynq.ParseRedisURI(url)
	if err != nil {
		t.Fatal(err)
	}
	q := asynqQueue{asynq.NewClient(at), asynq.NewInspector(at)}
	defer q.client.Close()
	defer q.inspector.Close()
	return measureQueue(t, r, roleAsynqWorker, url, q)
}

func (q asynqQueue) fill(ctx context.Context, n int) error {
	return inParallel(asynqProducers, n, func(i int) error { return q.put(ctx, i) })
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
		return fmt.Errorf("%d left, %d worked on, %d of them failed; want %d", info.Size, info.ProcessedTotal, info.FailedTotal, n)
	}
	return nil
}

// workAsynq is its worker's process. An idle asynq asks for work every second unless told otherwise.
func workAsynq(s stage, cfg childConfig) error {
	parsed, err := asynq.ParseRedisURI(cfg.Store)
	if err != nil {
		return err
	}
	at := parsed.(asynq.RedisClientOpt)
	at.PoolSize = cfg.Concurrency
	return work(s, cfg, func(sender *sender) (func() error, error) {
		server := asynq.NewServer(at, asynq.Config{
			Concurrency: cfg.Concurrency, TaskCheckInterval: 5 * time.Millisecond, DelayedTaskCheckInterval: time.Second, LogLevel: asynq.ErrorLevel,
		})
		err := server.Start(asynq.HandlerFunc(func(ctx context.Context, callback *asynq.Task) error {
			n, ok := numberOf(callback.Payload())
			if !ok {
				return fmt.Errorf("payload %.20q", callback.Payload())
			}
			return sender.send(ctx, "cb_"+strconv.Itoa(n), callback.Payload())
		}))
		return func() error { server.Shutdown(); return nil }, err
	})
}
