package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A queue is a system that the dispatcher is compared with, as its producer sees it. Its worker is a process
// that posts like the floor.
type queue interface {
	// worker returns the worker's role and the URL of its store.
	worker() (role, store string)
	// fill enqueues n callbacks in the cheapest way of the queue.
	fill(ctx context.Context, n int) error
	// put enqueues callback n alone.
	put(ctx context.Context, n int) error
	// done fails unless n callbacks succeeded and none is left. No worker may run.
	done(ctx context.Context, n int) error
}

// startWorker starts the queue's process.
func (r *run) startWorker(q queue) conversation {
	role, store := q.worker()
	cfg := processConfig{Receiver: r.receiver.url, Concurrency: r.concurrency, Count: r.n, Store: store}
	return r.start(role, cfg)
}

// drained waits until all callbacks have arrived and the workers have committed their results. It returns the
// arrival times.
func (r *run) drained(arriving *arrivals, workers ...conversation) []time.Time {
	at := arriving.await(r, arrivalLimit)
	for _, w := range workers { // each worker finishes its running work
		r.check("stop", errors.Join(w.say(wordStop), w.await(wordStopped)))
	}
	arriving.checkOnce(r)
	return at
}

// work is the common part of a worker's process. start begins the work itself.
func work(words conversation, cfg processConfig, start func(*sender) (stop func() error, err error)) error {
	s := newSender(cfg.Receiver, cfg.Concurrency)
	if err := s.warmUp(cfg.Concurrency); err != nil {
		return err
	}
	if err := words.say(wordReady); err != nil {
		return err
	}
	if err := words.await(wordGo); err != nil {
		return err
	}
	stop, err := start(s)
	if err != nil {
		return err
	}
	if err := words.await(wordStop); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	return errors.Join(words.say(wordStopped), words.awaitEnd())
}

const (
	asynqType = "callback"
	// asynqProducers is the number of concurrent producers, because asynq has no call for several tasks.
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
		return fmt.Errorf("%d left, %d processed, %d of them failed; want %d processed",
			info.Size, info.ProcessedTotal, info.FailedTotal, n)
	}
	return nil
}

// workAsynq is the process of asynq's worker. By default an idle asynq polls once a second.
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

const (
	// riverConns is the size of River's pools, which is the default of the dispatcher's.
	riverConns = 20
	// riverChunk is how many callbacks one call enqueues.
	riverChunk = 1000
)

// riverArgs are the data of a callback in River, which stores only JSON.
type riverArgs struct {
	Number  int    `json:"number"`
	Payload string `json:"payload"`
}

func (riverArgs) Kind() string { return "callback" }

func newRiverArgs(n int) riverArgs {
	payload := newPayload()
	setNumber(payload, n)
	return riverArgs{Number: n, Payload: string(payload)}
}

// riverQueue is River as its producer sees it.
type riverQueue struct {
	url    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func newRiver(r *run) queue {
	url := testserver.NewPostgres(r).Database(r)
	pool, err := riverPool(r.Context(), url)
	r.check("connect River", err)
	r.Cleanup(pool.Close)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: riverLogger()})
	r.check("migrate River", err)
	_, err = migrator.Migrate(r.Context(), rivermigrate.DirectionUp, nil)
	r.check("migrate River", err)
	client, err := river.NewClient(driver, &river.Config{Logger: riverLogger()})
	r.check("River", err)
	return riverQueue{url, pool, client}
}

func riverPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = riverConns
	return pgxpool.NewWithConfig(ctx, cfg)
}

// riverLogger logs only errors.
func riverLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (q riverQueue) worker() (role, store string) { return roleRiver, q.url }

func (q riverQueue) fill(ctx context.Context, n int) error {
	return parallel(2, (n+riverChunk-1)/riverChunk, func() func(int) error {
		return func(chunk int) error {
			var some []river.InsertManyParams
			for i := chunk * riverChunk; i < min(n, (chunk+1)*riverChunk); i++ {
				some = append(some, river.InsertManyParams{Args: newRiverArgs(i)})
			}
			_, err := q.client.InsertManyFast(ctx, some)
			return err
		}
	})
}

func (q riverQueue) put(ctx context.Context, n int) error {
	_, err := q.client.Insert(ctx, newRiverArgs(n), nil)
	return err
}

func (q riverQueue) done(ctx context.Context, n int) error {
	var completed, others int
	err := q.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'completed'),
		count(*) FILTER (WHERE state <> 'completed') FROM river_job`).Scan(&completed, &others)
	if err == nil && (completed != n || others != 0) {
		err = fmt.Errorf("%d completed, %d others; want %d completed", completed, others, n)
	}
	return err
}

// riverWorker posts the callbacks of its jobs.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	sender *sender
}

func (w *riverWorker) Work(ctx context.Context, callback *river.Job[riverArgs]) error {
	return w.sender.send(ctx, callback.Args.Number, []byte(callback.Args.Payload))
}

// workRiver is the process of River's worker. With River's defaults a client starts at most ten times
// MaxWorkers jobs a second. These two intervals were the fastest in our trials.
func workRiver(words conversation, cfg processConfig) error {
	pool, err := riverPool(context.Background(), cfg.Store)
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(words, cfg, func(s *sender) (func() error, error) {
		workers := river.NewWorkers()
		err := river.AddWorkerSafely(workers, &riverWorker{sender: s})
		client, err2 := river.NewClient(riverpgxv5.New(pool), &river.Config{
			FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
			Logger: riverLogger(), Workers: workers,
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cfg.Concurrency}},
		})
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		stop := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), startTime)
			defer cancel()
			return client.Stop(ctx)
		}
		return stop, client.Start(context.Background())
	})
}
